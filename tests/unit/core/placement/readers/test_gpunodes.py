"""A saved `kubectl get nodes,gpunodes`: what a placement can be planned on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.api.placement import Inventory
from gpusharing.core.placement.readers import gpunodes

READY = [
    {"type": "GpuSharingReady", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-01-01T00:00:00Z"}
]
GPUS = [
    {"index": 0, "uuid": "GPU-a0", "model": "H200", "linkGroup": 1},
    {"index": 1, "uuid": "GPU-a1", "model": "H200", "healthy": False, "migMode": True},
]


def gpu_node(name: str = "node-a", spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    status = {"gpus": GPUS, "conditions": READY, **status}
    return {"kind": "GpuNode", "metadata": {"name": name}, "spec": spec or {}, "status": status}


def node(name: str = "node-a", ready: str = "True", **spec: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    metadata = {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}}
    return {"kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def read(*objects: dict[str, Any]) -> Inventory:
    inventory, problems = gpunodes.read(objects, "team-a/rl-eval")
    assert problems == ()
    return inventory


def test_gpus_are_as_the_plugin_reports_them() -> None:
    occupancy = [{"gpu": "GPU-a0", "shares": 10, "inUse": 3}]
    (found,) = read(gpu_node(occupancy=occupancy), node()).nodes
    assert found.to_wire() == {
        "name": "node-a",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"},
        "names": 0,
        "ready": True,
        "schedulable": True,
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-a0",
                "healthy": True,
                "migMode": False,
                "linkGroup": 1,
                "shares": 10,
                "inUse": 3,
            },
            {"index": 1, "uuid": "GPU-a1", "healthy": False, "migMode": True, "shares": 1, "inUse": 0},
        ],
    }


@pytest.mark.parametrize(
    ("objects", "ready", "schedulable"),
    [
        ([gpu_node()], True, True),
        ([gpu_node(conditions=[])], False, True),
        ([gpu_node(), node(ready="Unknown")], False, True),
        ([gpu_node(), node(unschedulable=True)], True, False),
    ],
    ids=["without Nodes", "plugin not ready", "node not ready", "cordoned"],
)
def test_a_node_is_ready_and_schedulable_as_far_as_is_known(
    objects: list[dict[str, Any]], ready: bool, schedulable: bool
) -> None:
    (found,) = read(*objects).nodes
    assert (found.ready, found.schedulable) == (ready, schedulable)


def test_what_is_reserved_for_others_is_not_free() -> None:
    reservations = [
        {"placement": "team-b/other", "gpus": ["GPU-a0"]},
        {"placement": "team-a/rl-eval", "gpus": ["GPU-a1"]},
    ]
    (found,) = read(gpu_node(spec={"reservations": reservations})).nodes
    assert [gpu.reserved_by for gpu in found.gpus] == ["team-b/other", None]


def test_a_node_without_a_report_has_no_gpus_that_we_know_of() -> None:
    assert read(node("other"), gpu_node()).nodes[0].name == "node-a"
    assert len(read(node("other"), gpu_node()).nodes) == 1


def test_a_report_that_cannot_be_read_is_named() -> None:
    _, problems = gpunodes.read([gpu_node(gpus=[{"index": "first"}])], "team-a/rl-eval")
    assert [str(problem).partition(": ")[2].partition(":")[0] for problem in problems] == [
        "node-a.status.gpus[0].index",
        "node-a.status.gpus[0].uuid",
        "node-a.status.gpus[0].model",
    ]


JUNK = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.lists(st.none() | st.dictionaries(st.text(max_size=2), st.none()))
)
PARTS = st.sampled_from(["name", "labels", "conditions", "reservations", "gpus", "occupancy"])
OBJECTS = st.dictionaries(
    st.sampled_from(["metadata", "spec", "status"]), JUNK | st.dictionaries(PARTS, JUNK, max_size=3), max_size=3
)


@settings(deadline=None, max_examples=50)
@given(st.lists(OBJECTS, max_size=2), st.sampled_from(["Node", "GpuNode"]))
def test_whatever_people_made_of_the_file_there_is_an_answer(objects: list[dict[str, Any]], kind: str) -> None:
    gpunodes.read([{"kind": kind, **each} for each in objects], "team-a/rl-eval")
