"""Env files: what `docker run --env-file` gives to each service on each slot."""

from typing import Any

from tests.support.placements import expected_job, known_at_run_time_only

from gpusharing.core.placement.renderers import env

MARKER = "# Written by kubectl gpusharing place for team-a/rl-eval"


def files(case: str, **wanted: Any) -> dict[str, list[str]]:
    """Lines by path, without the marker that every file begins with."""
    found = {file.path: file.text.splitlines() for file in env.render(expected_job(case, **wanted))}
    assert {lines[0] for lines in found.values()} <= {MARKER}
    return {path: lines[1:] for path, lines in found.items()}


def test_each_service_of_a_slot_has_a_file() -> None:
    assert files("P01") == {
        "gpu-0/judge.env": [
            "CUDA_VISIBLE_DEVICES=0",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "GPU_PLACEMENT_COUNT=1",
            "GPU_PLACEMENT_SLOT=gpu/0",
        ],
        "gpu-0/policy.env": [
            "CUDA_VISIBLE_DEVICES=1,2",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "GPU_PLACEMENT_COUNT=2",
            "GPU_PLACEMENT_SLOT=gpu/0",
        ],
    }


def test_a_service_alone_on_its_node_gets_no_device_line() -> None:
    assert files("P05") == {"gpu-0/policy.env": ["GPU_PLACEMENT_COUNT=2", "GPU_PLACEMENT_SLOT=gpu/0"]}


def test_slots_of_one_service_differ() -> None:
    written = files("P15")
    assert written["gpu-0/ray.env"][0] == "CUDA_VISIBLE_DEVICES=2,3"
    assert written["gpu-1/ray.env"][0] == "CUDA_VISIBLE_DEVICES=3"
    assert written["gpu-1/ray.env"][-1] == "GPU_PLACEMENT_RANK=1"


def test_instances_are_numbered_over_the_nodes() -> None:
    assert files("P23")["gpu-1/policy.env"][-3:] == [
        "GPU_PLACEMENT_RANK=1",
        "GPU_PLACEMENT_INSTANCES=2",
        "GPU_PLACEMENT_FIRST_INSTANCE=2",
    ]


def test_gpus_by_uuid_need_no_order() -> None:
    assert files("P33", visible="uuid")["gpu-0/policy.env"] == [
        "CUDA_VISIBLE_DEVICES=GPU-b2,GPU-b0",
        "GPU_PLACEMENT_COUNT=2",
        "GPU_PLACEMENT_SLOT=gpu/0",
    ]


def test_arguments_take_the_place_of_the_variable() -> None:
    lines = files("P01", visible="args")["gpu-0/policy.env"]
    assert lines[0] == "GPU_PLACEMENT_ARGS=--device-ids 1,2"
    assert not [line for line in lines if line.startswith("CUDA_VISIBLE_DEVICES")]


def test_a_list_known_at_run_time_only_is_not_made_up() -> None:
    (file,) = env.render(known_at_run_time_only())
    assert file.text.splitlines()[1:] == [
        "# CUDA_VISIBLE_DEVICES is what MY_GPUS holds at run time",
        "GPU_PLACEMENT_COUNT=2",
        "GPU_PLACEMENT_SLOT=gpu/0",
    ]
