"""What every renderer of files keeps: same job, same bytes; the marker first; names that stay in the folder."""

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import pytest
from tests.support.placements import cases, expected_job

from gpusharing.core.placement.renderers import File, Job, env, kubernetes, slurm

PLANS = [name for name, case in cases().items() if "slots" in case["expect"]]
Render = Callable[[Job], Iterator[File]]
renderers = pytest.mark.parametrize(
    "render", [env.render, slurm.render, kubernetes.render], ids=["env", "slurm", "kubernetes"]
)


@renderers
def test_files_are_marked_distinct_and_the_same_each_time(render: Render) -> None:
    for case in PLANS:
        job = expected_job(case)
        files = list(render(job))
        assert files == list(render(expected_job(case))), case
        paths = [PurePosixPath(file.path) for file in files]
        assert len(set(paths)) == len(paths), case
        assert all(len(path.parts) <= 2 and ".." not in path.parts and not path.is_absolute() for path in paths), case
        assert all(file.text.startswith(job.marker) and file.text.endswith("\n") for file in files), case


def test_exactly_what_the_plan_exports_has_a_device_line() -> None:
    for case in PLANS:
        job = expected_job(case)
        want = {f"{slot.name.replace('/', '-')}/{service}.env" for slot in job.plan.slots for service in slot.exported}
        assert {file.path for file in env.render(job) if "\nCUDA_VISIBLE_DEVICES=" in file.text} == want, case
        steps = {file.path for file in slurm.render(job) if file.path.endswith(".step.sh")}
        assert steps == {f"{service}.step.sh" for slot in job.plan.slots for service in slot.exported}, case
