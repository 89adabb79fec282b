"""The cases of `vectors/allocation_cases.yaml`: upstream's own tests, what follows from them, and where we differ."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.allocation import counts, ids_of, linked, mig_gpus, parents, shared_gpus, whole_gpus

from gpusharing.core.allocation import partition
from gpusharing.core.allocation.prefer import Preferences, prefer
from gpusharing.core.allocation.request import AllocationRequest
from gpusharing.core.devices import Link

DATA: dict[str, Any] = yaml.safe_load(
    (Path(__file__).resolve().parents[3] / "vectors" / "allocation_cases.yaml").read_text()
)
GREEDY = [(policy, case) for policy in ("distributed", "packed") for case in DATA[policy]]
SEQUENCES = DATA["best_effort_sequence"]
OURS = [case for case in DATA["ours"] if "total" in case]


def _free(case: Mapping[str, Any]) -> list[str]:
    """The available ids: all, a number or numbers per GPU, or ids."""
    free = case.get("free", "all")
    if isinstance(free, list):
        return free
    per_gpu = case["total"] if free == "all" else free
    return [
        f"{gpu}::{replica}"
        for gpu, which in per_gpu.items()
        for replica in (range(which) if isinstance(which, int) else which)
    ]


def _named(value: Any) -> str:
    return f"{value['total']} {value.get('free', 'all')} {value['size']}" if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("policy", "case"), GREEDY, ids=_named)
def test_shares_of_whole_gpus_are_chosen_as_upstream_does(policy: str, case: dict[str, Any]) -> None:
    request = AllocationRequest(_free(case), case["size"], case.get("required", ()))
    choice = prefer(request, shared_gpus(case["total"], policy))
    got = counts(choice.ids)
    if case["want"] == "error":
        assert (got, choice.refusal) == ({}, "insufficient")
    elif case["size"] < len(case.get("required", ())):
        # decision 53: exactly as many as asked for, or nothing; the reference returns too many
        assert (got, choice.refusal) == ({}, "must-include")
    else:
        # the tie order: the lower GPU first
        assert got == case["want"][0]


@pytest.mark.parametrize("case", DATA["contrast"], ids=_named)
def test_packed_and_distributed_answer_the_same_request_differently(case: dict[str, Any]) -> None:
    for policy in ("packed", "distributed"):
        choice = prefer(AllocationRequest(_free(case), case["size"]), shared_gpus(case["total"], policy))
        assert counts(choice.ids) == case[policy][0]


@pytest.mark.parametrize("case", DATA["mig_parent"], ids=lambda case: f"{case['boards']} {case['used']} {case['size']}")
@pytest.mark.parametrize("policy", ["packed", "distributed"])
def test_mig_devices_are_chosen_by_their_parent_gpu(policy: str, case: dict[str, Any]) -> None:
    table = mig_gpus(case["boards"], policy)
    used = {f"{board}-{at}" for board, count in case["used"].items() for at in range(count)}
    choice = prefer(AllocationRequest([each for each in ids_of(table) if each not in used], case["size"]), table)
    assert parents(choice.ids) == case[policy][0]


# --- whole GPUs


def _topology(name: str) -> Preferences:
    if name == "uneven_5":
        return _made(5, {(0, 1): 4}, {50: ["2-3", "2-4", "3-4"]}, lambda one, other: 10)
    data = DATA["topologies"][name]
    nvlinks = {_pair(pair): count for count, pairs in data["nvlinks"].items() for pair in pairs}
    pcie = {points: pairs for points, pairs in data["pcie"].items() if isinstance(pairs, list)}
    return _made(
        4 if name == "rtx8000_x4" else 8, nvlinks, pcie, lambda one, other: 30 if one // 4 == other // 4 else 10
    )


def _pair(text: str) -> tuple[int, int]:
    one, other = text.split("-")
    return int(one), int(other)


def _made(size: int, nvlinks: Mapping[tuple[int, int], int], pcie: Mapping[int, list[str]], rest: Any) -> Preferences:
    points = {_pair(pair): each for each, pairs in pcie.items() for pair in pairs}
    links = {
        (str(one), str(other)): Link(60 - points.get((one, other), rest(one, other)), nvlinks.get((one, other), 0))
        for other in range(size)
        for one in range(other)
    }
    return whole_gpus(links, [str(at) for at in range(size)])


@pytest.mark.parametrize(
    "case", DATA["best_effort_single_call"], ids=lambda case: f"{case['available']} {case['required']} {case['size']}"
)
def test_one_request_for_whole_gpus(case: dict[str, Any]) -> None:
    request = AllocationRequest(
        [str(at) for at in case["available"]], case["size"], [str(at) for at in case["required"]]
    )
    choice = prefer(request, _topology("dgx1_volta"))
    assert sorted(map(int, choice.ids)) == case["want"]


@pytest.mark.parametrize("case", SEQUENCES, ids=lambda case: f"{case['topology']} {case['sizes']}")
def test_a_sequence_of_requests_for_whole_gpus(case: dict[str, Any]) -> None:
    table = _topology(case["topology"])
    left, got = ids_of(table), []
    for size in case["sizes"]:
        choice = prefer(AllocationRequest(left, size), table)
        left = [each for each in left if each not in choice.ids]
        got.append(sorted(map(int, choice.ids)))
    assert got == case["want"]


# --- where ours must answer differently


def _of_ours(case: dict[str, Any]) -> Iterator[dict[str, int]]:
    keep_together = "preferred" if case["why"] == "keepTogether" else case.get("keepTogether", "none")
    links = linked(sorted(case["total"]), *case.get("links", {}))
    table = shared_gpus(case["total"], case["policy"], keep_together, case.get("topology", "none"), links)
    sick = {
        f"{gpu}::{case['total'][gpu] - 1 - at}"
        for gpu, count in case.get("unhealthy", {}).items()
        for at in range(count)
    }
    yield counts(prefer(AllocationRequest(_free(case), case["size"], sick=sick), table).ids)


@pytest.mark.parametrize("case", OURS, ids=lambda case: case["why"])
def test_ours_differs_from_upstream(case: dict[str, Any]) -> None:
    assert [*_of_ours(case)] == case["ours"]


def test_two_mig_devices_go_to_one_parent_if_kept_together() -> None:
    case = next(case for case in DATA["ours"] if case["why"] == "keepTogether, MIG")
    table = mig_gpus(case["boards"], case["policy"], "preferred")
    used = {f"{board}-{at}" for board, count in case["used"].items() for at in range(count)}
    choice = prefer(AllocationRequest([each for each in ids_of(table) if each not in used], case["size"]), table)
    assert [parents(choice.ids)] == case["ours"]


def test_seven_requests_for_one_mig_device_touch_one_gpu() -> None:
    case = next(case for case in DATA["ours"] if case["why"] == "MIG parent")
    table = mig_gpus(case["boards"], case["policy"])
    left, taken = ids_of(table), list[str]()
    for size in case["requests"]:
        choice = prefer(AllocationRequest(left, size), table)
        taken += choice.ids
        left = [each for each in left if each not in choice.ids]
    assert [parents(taken)] == case["ours"]


# --- which algorithm answers, what it compares, how much there is to look at


@pytest.mark.parametrize("case", DATA["comparator"], ids=str)
def test_gpus_are_compared_by_what_is_allocated_on_them_alone(case: dict[str, Any]) -> None:
    if "ranks" in case:
        total = {"A": case["a"]["total"], "B": case["b"]["total"]}
        free = [f"{gpu}::{at}" for gpu, side in (("A", "a"), ("B", "b")) for at in range(case[side]["free"])]
        got = {
            policy: counts(prefer(AllocationRequest(free, 1), shared_gpus(total, policy)).ids)
            for policy in ("packed", "distributed")
        }
        # of equal ones the GPU with more free goes first, whatever the policy
        want = {"packed": {"A": 1} if case["ranks"] == "equal" else {"B": 1}, "distributed": {"A": 1}}
        assert got == want
    else:
        policy = shared_gpus({"A": 4, "B": 4}, case.get("behaves_as", case["policy"])).rule.policy
        assert (-1 if case.get("prefers") == "more-allocated" else 1) == policy.LOAD_SIGN


def test_whole_gpus_are_aligned_and_everything_else_is_by_policy() -> None:
    got = [
        whole_gpus({}, ["A", "B", "C", "D"]).rule.policy.NAME,
        mig_gpus({"P0": 1}).rule.policy.NAME,
        shared_gpus({"A": 2}).rule.policy.NAME,
    ]
    want = {"aligned": "aligned", "policy": "packed"}
    assert got == [want[case["path"]] for case in DATA["path"]]


@pytest.mark.parametrize("count", sorted(DATA["partitions_enumerated"]))
def test_there_are_as_many_partitions_as_upstream_looks_at(count: int) -> None:
    for size, partitions in DATA["partitions_enumerated"][count].items():
        if partitions and size > 1:  # one GPU is not chosen by partition
            assert len(partition.partitions(count, size)) == partitions, size
