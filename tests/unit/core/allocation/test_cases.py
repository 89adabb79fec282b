"""Files of requests: what they may say, what is wrong with them, and how answers are compared."""

import json
from typing import Any

import pytest

from gpusharing.core.allocation.cases import MAX_CHARACTERS, Case, answer, difference, read_cases
from gpusharing.core.errors import InvalidInput

GREEDY: dict[str, Any] = {
    "policy": "packed",
    "replicas": {"GPU-0": 4, "GPU-1": 4},
    "available": {"GPU-0": 3, "GPU-1": 1},
    "required": {},
    "size": 2,
}
ALIGNED: dict[str, Any] = {
    "links": [[None, [5, 7], [1]], [[5, 7], None, [1]], [[1], [1], None]],
    "available": [0, 1, 2],
    "required": [],
    "size": 2,
}


def _read(*cases: dict[str, Any]) -> list[Case]:
    return read_cases(json.dumps({"cases": cases}), "requests.json")


def _answer(case: dict[str, Any], **more: Any) -> dict[str, Any]:
    return answer(0, _read({**case, **more})[0]).to_wire()


def test_a_case_of_shares_is_answered_with_counts() -> None:
    assert _answer(GREEDY) == {"case": 0, "counts": {"GPU-0": 1, "GPU-1": 1}}
    assert _answer(GREEDY, policy="distributed") == {"case": 0, "counts": {"GPU-0": 2}}
    assert _answer(GREEDY, required={"GPU-0": 1}) == {"case": 0, "counts": {"GPU-0": 1, "GPU-1": 1}}


def test_a_case_of_whole_gpus_is_answered_with_a_set_and_its_points() -> None:
    assert _answer(ALIGNED) == {"case": 0, "choice": [0, 1], "score": 150}
    assert _answer(ALIGNED, unhealthy=[1]) == {"case": 0, "choice": [0, 2], "score": 10}


def test_the_optional_keys_count() -> None:
    assert _answer(GREEDY, keepTogether="preferred")["counts"] == {"GPU-0": 2}
    assert _answer(GREEDY, unhealthy={"GPU-1": 1})["counts"] == {"GPU-0": 2}
    assert _answer(GREEDY, size=1, otherLoad={"GPU-0": 3})["counts"] == {"GPU-0": 1}
    links = [[None, [7]], [[7], None]]
    even = {"keepTogether": "preferred", "topology": "preferred", "links": links, "available": {"GPU-0": 4, "GPU-1": 4}}
    assert _answer(GREEDY, size=6, **even)["counts"] == {"GPU-0": 3, "GPU-1": 3}


def test_a_refusal_is_empty_with_an_error() -> None:
    assert _answer(GREEDY, size=9) == {"case": 0, "counts": {}, "error": "fewer are free than are asked for"}
    assert _answer(ALIGNED, size=9) == {
        "case": 0, "choice": [], "score": 0, "error": "fewer are free than are asked for",
    }  # fmt: skip


def test_gpus_are_numbered_in_the_order_of_their_names_whatever_the_order_of_keys() -> None:
    counts = {f"GPU-{at}": 2 for at in (10, 9, 2)}
    assert _answer(GREEDY, replicas=counts, available=counts, size=3)["counts"] == {"GPU-2": 2, "GPU-9": 1}


@pytest.mark.parametrize(
    ("case", "recorded", "want"),
    [
        (GREEDY, {}, ""),
        (GREEDY, {"outcomes": [{"GPU-1": 1, "GPU-0": 1}]}, ""),
        (GREEDY, {"outcomes": [{"GPU-0": 2}]}, "{'GPU-0': 1, 'GPU-1': 1}, recorded are [{'GPU-0': 2}]"),
        (GREEDY, {"outcomes": [{"GPU-0": 2}], "size": 9}, "a refusal, recorded are [{'GPU-0': 2}]"),
        (GREEDY, {"error": True}, "{'GPU-0': 1, 'GPU-1': 1}, recorded is a refusal"),
        (GREEDY, {"error": True, "size": 9}, ""),
        (ALIGNED, {"chosen": [0, 2], "setScore": 10, "partitionScore": 10}, ""),
        (ALIGNED, {"chosen": [0, 1], "setScore": 151}, "[0, 1] with a score of 150, recorded is [0, 1] with 151"),
        (ALIGNED, {"chosen": [], "setScore": 0}, "[0, 1], recorded is []"),
    ],
    ids=[
        "nothing recorded",
        "right",
        "wrong",
        "refused",
        "not refused",
        "refused rightly",
        "better",
        "worse",
        "chosen",
    ],
)
def test_a_difference_is_told(case: dict[str, Any], recorded: dict[str, Any], want: str) -> None:
    (read,) = _read({**case, **recorded})
    assert difference(read, answer(0, read)) == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "requests.json is not valid JSON: "),
        ("[]", "[] is not a mapping"),
        ("{}", "cases: missing"),
        ("[" * 100_000, "requests.json is not valid JSON: "),
        (" " * (MAX_CHARACTERS + 1), "requests.json has more than 16777216 characters"),
    ],
    ids=["no JSON", "a list", "no cases", "deep", "long"],
)
def test_what_is_no_file_of_requests_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_cases(text, "requests.json")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("case", "wrong", "says"),
    [
        (GREEDY, {"policy": "pack"}, "cases[0].policy: \"pack\" is not one of 'packed', 'distributed' or 'spread'"),
        (GREEDY, {"replica": 1}, "cases[0].replica: unknown field"),
        (GREEDY, {"available": {"GPU-7": 1}}, "cases[0].available.GPU-7: is not a GPU of replicas"),
        (GREEDY, {"otherLoad": {"GPU-7": 1}}, "cases[0].otherLoad.GPU-7: is not a GPU of replicas"),
        (GREEDY, {"required": {"GPU-1": 2}}, "cases[0].required.GPU-1: 2 of which only 1 are available"),
        (GREEDY, {"unhealthy": {"GPU-0": 2}}, "cases[0].available.GPU-0: more available and unhealthy shares than"),
        (GREEDY, {"topology": "preferred"}, "cases[0].links: missing: topology: preferred needs them"),
        (GREEDY, {"links": [[None]]}, "cases[0].links: must be 2 rows of 2"),
        (GREEDY, {"replicas": {"GPU-0": 99_999, "GPU-1": 99_999}}, "cases[0].replicas: more than 100000 shares"),
        (ALIGNED, {"links": [[None], []]}, "cases[0].links: must be 2 rows of 2"),
        (ALIGNED, {"available": [3]}, "cases[0].available: 3 is not one of the 3 GPUs of links"),
        ({"size": 1}, {}, "cases[0].policy: missing"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_is_wrong_with_a_case_is_told_with_its_place(
    case: dict[str, Any], wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        _read({**case, **wrong})
    assert says in str(refused.value)
    assert refused.value.hint


def test_all_that_is_wrong_is_counted() -> None:
    with pytest.raises(InvalidInput, match=r"; and 4 more\."):
        _read(*[{**GREEDY, "policy": "pack"}] * 9)
