"""Packing against trying everything."""

from collections.abc import Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from gpusharing.core.packing import Request, Room, fewest_gpus, fits

ROOMS = st.lists(st.fixed_dictionaries({"a": st.integers(0, 4), "b": st.integers(0, 2)}), max_size=4)
REQUESTS = st.lists(st.builds(Request, st.sampled_from("ab"), st.integers(1, 4)), max_size=5)


def _ways(requests: Sequence[Request], rooms: Sequence[Room]) -> list[int]:
    """The number of GPUs in use for each way to place everything."""
    found = []
    for places in product(range(len(rooms)), repeat=len(requests)):
        used = [
            {name: sum(r.size for r, at in zip(requests, places, strict=True) if (at, r.resource) == (gpu, name))
             for name in "ab"}
            for gpu in range(len(rooms))
        ]  # fmt: skip
        if all(used[gpu][name] <= room[name] for gpu, room in enumerate(rooms) for name in "ab"):
            found.append(len(set(places)))
    return found


@given(requests=REQUESTS, rooms=ROOMS)
def test_requests_fit_if_there_is_a_way_to_place_them(requests: list[Request], rooms: list[Room]) -> None:
    assert fits(requests, rooms) == bool(_ways(requests, rooms))


@given(requests=REQUESTS, rooms=ROOMS)
def test_the_fewest_gpus_are_those_of_the_best_way(requests: list[Request], rooms: list[Room]) -> None:
    assert fewest_gpus(requests, rooms, at_most=9) == min(_ways(requests, rooms), default=9)


def test_no_more_are_needed_than_are_in_use() -> None:
    assert fewest_gpus([Request("a", 2), Request("a", 2)], [{"a": 2}, {"a": 2}], at_most=1) == 1


def test_what_first_fit_misses_is_found() -> None:
    requests = [Request("a", size) for size in (6, 5, 5, 4)]
    assert fits(requests, [{"a": 10}, {"a": 10}])


def test_where_there_are_too_many_for_a_search_the_largest_go_first() -> None:
    requests = [Request("a", 4), Request("a", 6)] * 40
    assert fits(requests, [{"a": 10}] * 40)
    assert fewest_gpus(requests, [{"a": 10}] * 60, at_most=60) == 40


def test_thousands_of_requests_are_packed_by_first_fit() -> None:
    requests = [Request("a", 1)] * 2_000
    rooms = [{"a": 1_000}] * 8
    assert fewest_gpus(requests, rooms, at_most=8) == 2
    assert fits(requests, rooms)
    assert not fits(requests, rooms[:1])
