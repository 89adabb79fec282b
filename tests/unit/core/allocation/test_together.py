"""Sets of GPUs on nodes that are too large for the word-for-word comparison."""

from collections.abc import Mapping

import pytest
from tests.support.allocation import counts, linked, shared_gpus

from gpusharing.core.allocation.prefer import prefer
from gpusharing.core.allocation.request import AllocationRequest

MANY = [f"G{at:02}" for at in range(40)]


def _free(free: Mapping[str, int]) -> list[str]:
    return [f"{gpu}::{at}" for gpu, count in free.items() for at in range(count)]


@pytest.mark.parametrize("topology", ["none", "preferred"])
@pytest.mark.parametrize("policy", ["packed", "distributed"])
def test_forty_gpus_get_as_few_as_can_hold_the_request(policy: str, topology: str) -> None:
    free = {gpu: 10 - at % 4 for at, gpu in enumerate(MANY)}
    table = shared_gpus(dict.fromkeys(MANY, 10), policy, "preferred", topology, linked(MANY))
    choice = prefer(AllocationRequest(_free(free), 118), table)
    assert len(choice.ids) == 118
    assert len(counts(choice.ids)) == 12  # ten GPUs have 10 free each, ten have 9


def test_spread_over_linked_gpus_answers_on_forty_gpus_too() -> None:
    pairs = [f"{MANY[at]}-{MANY[at + 1]}" for at in range(0, 40, 2)]
    table = shared_gpus(dict.fromkeys(MANY, 4), "spread", "none", "preferred", linked(MANY, *pairs))
    choice = prefer(AllocationRequest(_free(dict.fromkeys(MANY, 4)), 20), table)
    assert counts(choice.ids) == dict.fromkeys(MANY[:20], 1)


def test_a_request_that_one_gpu_holds_is_never_split() -> None:
    free = {"A": 3, "B": 5, "C": 1}
    for policy in ("packed", "distributed"):
        table = shared_gpus(dict.fromkeys("ABC", 8), policy, "preferred")
        for size in range(1, 6):
            assert len(counts(prefer(AllocationRequest(_free(free), size), table).ids)) == 1, (policy, size)


def test_the_gpu_of_a_must_include_id_is_filled_first() -> None:
    table = shared_gpus(dict.fromkeys("ABC", 4), "packed", "preferred")
    request = AllocationRequest(_free({"A": 4, "B": 4, "C": 1}), 3, ["B::0"])
    assert counts(prefer(request, table).ids) == {"B": 3}


def test_linked_gpus_go_before_fuller_ones_and_even_before_close() -> None:
    links = linked("ABCD", "B-C", "C-D")
    table = shared_gpus(dict.fromkeys("ABCD", 4), "packed", "preferred", "preferred", links)
    # A is fullest but has no NVLink; B and C can be level, C and D cannot
    request = AllocationRequest(_free({"A": 3, "B": 4, "C": 4, "D": 2}), 6)
    assert counts(prefer(request, table).ids) == {"B": 3, "C": 3}


def test_a_request_that_must_not_be_split_is_not_split_over_linked_gpus_either() -> None:
    table = shared_gpus({"A": 2, "B": 2}, "packed", "required", "preferred", linked("AB", "A-B"))
    choice = prefer(AllocationRequest(_free({"A": 2, "B": 2}), 3), table)
    assert (choice.ids, choice.refusal) == ((), "split")
