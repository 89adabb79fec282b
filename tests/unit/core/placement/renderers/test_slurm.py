"""What is written for a batch script: nodes, names of nodes, and a step file where a service shares its node."""

from typing import Any

from tests.support.placements import expected_job

from gpusharing.core.placement.renderers import VISIBLE_DEVICES, slurm


def files(case: str, **wanted: Any) -> dict[str, str]:
    return {file.path: file.text for file in slurm.render(expected_job(case, **wanted))}


def header(case: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in files(case)["header.sh"].splitlines()[1:]]


def test_nodes_are_asked_for_as_one_number() -> None:
    assert header("P03") == ["--nodes=2", "--gpus-per-node=4"]
    assert not [text for text in files("P03").values() if "gpu-0" in text or "gpu-1" in text]


def test_reserved_gpus_are_asked_for_too_since_positions_count_them() -> None:
    assert header("P53") == ["--nodes=1", "--gpus-per-node=4"]


def test_several_pools_are_a_heterogeneous_job() -> None:
    assert header("P34") == ["--nodes=1", "--gpus-per-node=4", "hetjob", "--nodes=1", "--gpus-per-node=4"]


def test_unlike_nodes_of_a_pool_are_asked_for_separately() -> None:
    assert header("P36") == ["--nodes=1", "--gpus-per-node=4", "hetjob", "--nodes=1", "--gpus-per-node=8"]


def test_a_plan_for_named_nodes_asks_for_them() -> None:
    assert header("P44") == ["--nodes=2", "--gpus-per-node=4", "--nodelist=node-a,node-b"]
    assert files("P44")["slots.sh"].splitlines()[2:] == ["export SLOT_GPU_0=node-a", "export SLOT_GPU_1=node-b"]


def test_without_a_shared_node_no_device_line_is_written_anywhere() -> None:
    written = files("P05")
    assert list(written) == ["header.sh", "slots.sh"]
    assert not [text for text in written.values() if VISIBLE_DEVICES in text]


def test_a_pool_that_is_not_planned_is_not_asked_for() -> None:
    assert header("P61") == []
    assert list(files("P61")) == ["header.sh", "slots.sh"]


def test_the_step_says_how_it_is_started() -> None:
    usage = files("P15")["ray.step.sh"].splitlines()[2]
    assert usage == (
        '#   srun --overlap --nodes=2 --ntasks-per-node=1 --nodelist="$SLOT_GPU_0,$SLOT_GPU_1" '
        "sh -c '. DIR/ray.step.sh; exec \"$@\"' -- COMMAND"
    )
    assert "srun --overlap --het-group=1 " in files("P34")["embed.step.sh"]


def test_ray_is_told_how_many_gpus_it_has() -> None:
    usage = files("P12")["ray.step.sh"].splitlines()[2]
    assert usage.endswith("""sh -c '. DIR/ray.step.sh; exec ray start --num-gpus="$GPU_PLACEMENT_COUNT" --block'""")


def test_what_is_not_needed_is_not_written() -> None:
    assert "gpusharing_take" not in files("P06")["policy.step.sh"]
    assert "gpusharing_take" in files("P06", map_pins=True)["policy.step.sh"]
