"""The order of tests is told by their files: so these have to be what they are taken for."""

import re

from tests.support.install import ROOT
from tests.support.scheduling import Part

ON_A_NODE = re.compile(r"\b(?:gpu_node: GpuNode|real_node: RealNode|installed_product: Product)\b")


def parts(*folders: str) -> dict[Part, set[str]]:
    """The files with tests, by their part."""
    found: dict[Part, set[str]] = {part: set() for part in Part}
    for file in (file for folder in folders for file in (ROOT / "tests" / folder).rglob("test_*.py")):
        name = file.relative_to(ROOT).as_posix()
        found[Part.of(f"{name}::test_a[b]")].add(name)
    return found


def test_what_runs_on_a_node_comes_first_for_it_waits_much() -> None:
    found = parts("e2e", "integration", "faults")
    asking = {name for names in found.values() for name in names if ON_A_NODE.search((ROOT / name).read_text())}
    assert asking
    assert asking <= found[min(Part)]


def test_what_needs_no_cluster_comes_last() -> None:
    assert {part for part, names in parts("unit").items() if names} == {max(Part)}
