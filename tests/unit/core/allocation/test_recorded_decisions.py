"""What NVIDIA's allocators were seen to decide: `vectors/greedy.json` and `vectors/aligned.json`, every case."""

import json
from functools import cache
from pathlib import Path

import pytest

from gpusharing.api.allocationcases import AlignedAnswer, AlignedCase
from gpusharing.core.allocation.cases import Case, answer, difference, read_cases

VECTORS = Path(__file__).resolve().parents[3] / "vectors"


@cache
def _cases(name: str) -> list[Case]:
    return read_cases((VECTORS / f"{name}.json").read_text(), name)


@pytest.mark.parametrize(("name", "count"), [("greedy", 600), ("aligned", 400)], ids=["greedy", "aligned"])
def test_every_recorded_decision_holds(name: str, count: int) -> None:
    cases = _cases(name)
    wrong = {number: text for number, case in enumerate(cases) if (text := difference(case, answer(number, case)))}
    assert wrong == {}
    assert len(cases) == count


def test_an_aligned_choice_is_a_set_of_available_gpus_with_the_required_ones() -> None:
    for number, case in enumerate(_cases("aligned")):
        got = answer(number, case)
        assert isinstance(case, AlignedCase)
        assert isinstance(got, AlignedAnswer)
        choice = set(got.choice)
        assert len(choice) == len(got.choice) == case.size, number
        assert set(case.required) <= choice <= set(case.available), number


def test_the_recorded_partition_score_is_what_our_points_add_up_to() -> None:
    """Where all available GPUs are asked for, the set is the partition: both scores are known."""
    cases = json.loads((VECTORS / "aligned.json").read_text())["cases"]
    for number, (raw, case) in enumerate(zip(cases, _cases("aligned"), strict=True)):
        if raw["size"] == len(raw["available"]):
            got = answer(number, case)
            assert isinstance(got, AlignedAnswer)
            assert got.score == raw["partitionScore"], number
