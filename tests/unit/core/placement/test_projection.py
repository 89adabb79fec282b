"""What nodes are told of stored plans, and when."""

from typing import Any

import pytest
from tests.support.planning import pool, service
from tests.support.stage import placement_object, resource

from gpusharing.api.node import Reservation, ReservationReport
from gpusharing.core.placement.observed import SeenGpuNode, read_gpu_node
from gpusharing.core.placement.projection import has_ownerless, has_to_be_told, project
from gpusharing.core.placement.stored import Placement, read_placement

SPEC = {"pools": [pool(1, None)], "services": [service("x", 1)]}


def stored(name: str, *gpus: str, age: int = 0, node: str = "a", generation: int = 1, **more: Any) -> Placement:
    """A placement whose service x has these GPUs."""
    place = {
        "slot": "gpu/0",
        "nodeName": node,
        "indexes": [0],
        "uuids": list(gpus),
        "resource": resource("x", name),
        **more,
    }
    status = {"observedGeneration": generation, "services": [{"name": "x", "assignments": [place]}]}
    return read_placement({**placement_object(name, SPEC, age=age), "status": status})


def entry(name: str, *gpus: str) -> Reservation:
    return Reservation(
        resource=resource("x", name), placement=f"team-a/{name}", service="x", gpus=list(gpus), exclusive=True
    )


def test_each_node_is_told_what_the_plans_have_there_by_name() -> None:
    placements = [stored("q", "GPU-1"), stored("p", "GPU-0"), stored("r", "GPU-2", node="b")]
    assert project(placements, {}) == {"a": (entry("p", "GPU-0"), entry("q", "GPU-1")), "b": (entry("r", "GPU-2"),)}


def test_of_two_plans_that_have_one_gpu_the_older_is_told_and_the_other_as_a_whole_is_not() -> None:
    """No controller stores such plans; somebody who writes a status by hand may."""
    placements = [stored("young", "GPU-0", "GPU-1"), stored("old", "GPU-1", age=1)]
    assert project(placements, {}) == {"a": (entry("old", "GPU-1"),)}


def test_what_reserves_nothing_is_told_to_nobody() -> None:
    assert project([stored("p", "GPU-0", resource=""), stored("q")], {}) == {}


def test_an_entry_stays_for_a_placement_of_its_name_that_is_not_planned_yet() -> None:
    present = {"a": (entry("p", "GPU-0"), entry("gone", "GPU-1"))}
    assert project([read_placement(placement_object("p", SPEC))], present) == {"a": (entry("p", "GPU-0"),)}
    assert project([stored("p", "GPU-3")], present) == {"a": (entry("p", "GPU-3"),)}


REPORTED = (ReservationReport(resource=resource("x"), gpus=["GPU-0"], state="Active"),)


@pytest.mark.parametrize(
    ("gpu_node", "wanted", "told"),
    {
        "nothing is said and nothing is to be said": (SeenGpuNode("a"), (), False),
        "nothing is said and something is to be said": (SeenGpuNode("a"), (entry("p", "GPU-0"),), True),
        "nothing is said, and the plugin has something in its ledger": (SeenGpuNode("a", entries=REPORTED), (), True),
        "what is to be said is said": (SeenGpuNode("a", wanted=(entry("p", "GPU-0"),)), (entry("p", "GPU-0"),), False),
        "something else is said": (SeenGpuNode("a", wanted=(entry("p", "GPU-1"),)), (entry("p", "GPU-0"),), True),
        "nothing is wanted any more": (SeenGpuNode("a", wanted=(entry("p", "GPU-0"),)), (), True),
        "all is released": (SeenGpuNode("a", wanted=(), entries=REPORTED), (), False),
    }.values(),
)
def test_a_node_is_told_where_its_spec_differs_or_lacks_something(
    gpu_node: SeenGpuNode, wanted: tuple[Reservation, ...], told: bool
) -> None:
    assert has_to_be_told(gpu_node, wanted) is told


def test_an_entry_without_a_placement_of_its_name_is_ownerless() -> None:
    gpu_node = SeenGpuNode("a", wanted=(entry("p", "GPU-0"),))
    assert has_ownerless(gpu_node, {"team-a/q"})
    assert not has_ownerless(gpu_node, {"team-a/p"})
    assert not has_ownerless(SeenGpuNode("a"), {})


# --- what is read of a GpuNode


def test_a_gpu_node_is_read_with_its_spec_and_the_answer_to_it() -> None:
    managed = [{"manager": "gpu-sharing-operator-placement", "time": "2026-11-30T12:00:00Z"}]
    obj = {
        "metadata": {"name": "a", "uid": "u", "generation": 4, "managedFields": managed},
        "spec": {"reservations": [entry("p", "GPU-0").to_wire()]},
        "status": {
            "gpus": [
                {"index": 0, "uuid": "GPU-0", "model": "L4", "linkGroup": 1},
                {"index": 1, "uuid": "GPU-1", "model": "L4"},
            ],
            "occupancy": [{"gpu": "GPU-1", "shares": 4, "inUse": 3}],
            "reservations": [each.to_wire() for each in REPORTED],
            "reservationsObservedGeneration": 3,
        },
    }
    seen = read_gpu_node(obj)
    assert seen is not None
    assert (seen.uid, seen.generation, seen.wanted, seen.answered) == ("u", 4, (entry("p", "GPU-0"),), 3)
    assert [(gpu.link_group, gpu.shares, gpu.in_use) for gpu in seen.gpus] == [(1, 1, 0), (None, 4, 3)]
    assert seen.told_at is not None
    assert not seen.ready
    assert not seen.current
    assert (seen.current_entries, seen.entries) == ((), REPORTED)


@pytest.mark.parametrize("obj", [{"status": {"gpus": "two"}}, {"spec": {"reservations": [{"resource": 1}]}}])
def test_a_gpu_node_of_another_shape_counts_as_none(obj: dict[str, Any]) -> None:
    assert read_gpu_node({"metadata": {"name": "a"}, **obj}) is None


@pytest.mark.parametrize(("spec", "wanted"), [(None, None), ({}, None), ({"reservations": []}, ())])
def test_absent_is_unknown_and_empty_is_none(spec: Any, wanted: Any) -> None:
    seen = read_gpu_node({"metadata": {"name": "a"}, "spec": spec})
    assert seen is not None
    assert seen.wanted == wanted
