"""What the NVML worker tells, as values; how it comes to tell it is in tests/integration/test_nvml.py."""

from typing import Any

from gpusharing.core.devices import Inventory, Link
from gpusharing.discovery.facts import read_inventory

NOTHING = Inventory()
LOST = "GPU is lost (NVML_ERROR_GPU_IS_LOST)"


def gpu(index: int, uuid: str) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": uuid,
        "model": "NVIDIA A100-SXM4-80GB",
        "minor": index,
        "memory": 80 << 30,
        "pci": f"00000000:0{index}:00.0",
        "numa": None,
        "capability": [8, 0],
        "mig": False,
        "devices": [],
    }


def facts(*gpus: dict[str, Any], ends: dict[str, dict[str, int]] | None = None) -> dict[str, Any]:
    seen = [entry["uuid"] for entry in gpus if "uuid" in entry]
    ancestors = [[one, other, 50] for place, one in enumerate(seen) for other in seen[place + 1 :]]
    return {"driver": "580.95.05", "gpus": list(gpus), "ancestors": ancestors, "ends": ends or {u: {} for u in seen}}


def read(told: dict[str, Any], last: Inventory = NOTHING, problems: list[str] | None = None) -> Inventory:
    return read_inventory(told, last, (problems if problems is not None else []).append)


def test_a_lost_gpu_is_as_it_was_last_seen_with_its_links() -> None:
    before = read(facts(gpu(0, "GPU-a"), gpu(1, "GPU-b")))
    problems: list[str] = []
    assert read(facts(gpu(0, "GPU-a"), {"index": 1, "error": LOST}), before, problems) == before
    assert problems == []


def test_one_that_was_never_seen_is_left_out_and_told() -> None:
    problems: list[str] = []
    got = read(facts(gpu(0, "GPU-a"), {"index": 1, "error": LOST}), problems=problems)
    assert [gpu.uuid for gpu in got.gpus] == ["GPU-a"]
    assert problems == [f"GPU 1 cannot be read and is left out: {LOST}"]


def test_of_a_gpu_that_was_swapped_nothing_is_kept() -> None:
    before = read(facts(gpu(0, "GPU-a"), gpu(1, "GPU-b")))
    after = read(facts(gpu(0, "GPU-a"), gpu(1, "GPU-c")), before)
    assert [gpu.uuid for gpu in after.gpus] == ["GPU-a", "GPU-c"]
    assert after.links.keys() == {("GPU-a", "GPU-c")}


def test_a_gpu_that_is_elsewhere_now_is_not_there_twice() -> None:
    before = read(facts(gpu(0, "GPU-a"), gpu(1, "GPU-b")))
    after = read(facts({"index": 0, "error": LOST}, gpu(1, "GPU-a")), before)
    assert [(gpu.index, gpu.uuid) for gpu in after.gpus] == [(1, "GPU-a")]


def test_links_that_lead_nowhere_join_nobody() -> None:
    ends = {uuid: {"": 4, "00000000:00:00.0": 2} for uuid in ("GPU-a", "GPU-b")}
    got = read(facts(gpu(0, "GPU-a"), gpu(1, "GPU-b"), ends=ends))
    assert got.links == {("GPU-a", "GPU-b"): Link(50)}
    assert [gpu.link_group for gpu in got.gpus] == [None, None]


def test_an_end_in_common_that_is_no_gpu_is_a_switch() -> None:
    ends = {uuid: {"00000000:C4:00.0": 2} for uuid in ("GPU-a", "GPU-b")}
    got = read(facts(gpu(0, "GPU-a"), gpu(1, "GPU-b"), ends=ends))
    assert got.links == {("GPU-a", "GPU-b"): Link(50, switched=True)}


def test_a_gpu_that_both_lead_to_is_no_switch() -> None:
    third = gpu(2, "GPU-c")
    ends = {"GPU-a": {third["pci"]: 2}, "GPU-b": {third["pci"]: 2}, "GPU-c": {}}
    got = read(facts(gpu(0, "GPU-a"), gpu(1, "GPU-b"), third, ends=ends))
    assert got.links["GPU-a", "GPU-b"] == Link(50)
    assert got.links["GPU-a", "GPU-c"] == Link(50, nvlinks=0)  # the lower of 2 there and 0 back
