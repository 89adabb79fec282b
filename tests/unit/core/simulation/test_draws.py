"""Chance that is the same each time."""

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.core.simulation.draws import Draws


def test_the_numbers_of_a_seed_are_these_and_stay_so() -> None:
    """Figures of a scenario may be quoted: another stream would change them all."""
    draws = Draws(0, "pods")
    assert [round(draws.uniform(), 6) for _ in range(3)] == [0.396274, 0.709425, 0.81034]


@given(seed=st.integers(0, 1 << 62))
def test_numbers_are_from_0_to_below_1_and_as_often_below_as_above_a_half(seed: int) -> None:
    draws = Draws(seed, "test")
    numbers = [draws.uniform() for _ in range(400)]
    assert all(0 <= number < 1 for number in numbers)
    assert 0.35 < mean(number < 0.5 for number in numbers) < 0.65


def test_streams_of_another_purpose_or_seed_are_others() -> None:
    assert len({Draws(seed, purpose).uniform() for seed in (0, 1) for purpose in ("a", "b")}) == 4


def test_waiting_times_have_the_mean_that_was_asked_for() -> None:
    draws = Draws(0, "test")
    assert mean(draws.exponential(5) for _ in range(4_000)) == pytest.approx(5, rel=0.05)


@given(seed=st.integers(0, 99), things=st.lists(st.integers(), unique=True, max_size=9), data=st.data())
def test_some_of_them_are_different_ones(seed: int, things: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(things)))
    some = Draws(seed, "test").some_of(things, count)
    assert len(some) == len(set(some)) == count
    assert set(some) <= set(things)


def test_each_is_drawn_as_often() -> None:
    draws = Draws(0, "test")
    drawn = [draws.one_of("abc") for _ in range(3_000)]
    assert [drawn.count(each) for each in "abc"] == pytest.approx([1_000] * 3, rel=0.1)
