"""How fast changes of config follow one another, on a clock that is a number."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.core.changepace import COALESCE, SPACING, ChangePace

Asked = list[tuple[float, str]]


def run(asked: Asked, pace: ChangePace[str], *, refused: str = "") -> tuple[ChangePace[str], Asked]:
    """Play what is asked for, in order of time. Returns the pace at the end, and what was taken when."""
    taken: Asked = []

    def catch_up(pace: ChangePace[str], until: float) -> ChangePace[str]:
        while (due := pace.due()) is not None and due <= until:
            pace = pace.take()
            assert pace.current is not None
            taken.append((due, pace.current))
            if pace.current != refused:
                pace = pace.applied(due)
        return pace

    for now, wanted in asked:
        pace = catch_up(pace, now).ask(wanted, now)
    return catch_up(pace, float("inf")), taken


QUIET = ChangePace(current="a")


def test_the_first_config_of_a_start_is_taken_at_once() -> None:
    assert run([(5.0, "a")], ChangePace())[1] == [(5.0, "a")]


def test_a_change_after_a_quiet_time_is_taken_after_a_moment() -> None:
    assert run([(100.0, "b")], QUIET)[1] == [(100.0 + COALESCE, "b")]


def test_what_was_served_at_the_start_is_no_change_that_the_next_would_have_to_wait_for() -> None:
    assert run([(0.0, "b")], QUIET)[1] == [(COALESCE, "b")]


def test_changes_within_a_moment_are_one_and_do_not_put_it_off() -> None:
    assert run([(1.0, "b"), (1.1, "c"), (1.19, "d")], QUIET)[1] == [(1.0 + COALESCE, "d")]


def test_a_change_long_after_another_is_no_sooner_than_one_after_none() -> None:
    _, taken = run([(0.0, "b"), (100.0, "c"), (100.1, "d")], QUIET)
    assert taken == [(COALESCE, "b"), (100.0 + COALESCE, "d")]


def test_a_further_change_waits_and_the_last_one_wins() -> None:
    _, taken = run([(0.0, "b"), (1.0, "c"), (20.0, "d")], QUIET)
    assert taken == [(COALESCE, "b"), (COALESCE + SPACING, "d")]


def test_what_is_taken_back_in_time_is_no_change() -> None:
    assert run([(0.0, "b"), (0.1, "a")], QUIET)[1] == []
    assert run([(0.0, "b"), (1.0, "c"), (2.0, "b")], QUIET)[1] == [(COALESCE, "b")]


def test_a_refused_config_does_not_make_its_correction_wait() -> None:
    _, taken = run([(0.0, "bad"), (5.0, "b")], QUIET, refused="bad")
    assert taken == [(COALESCE, "bad"), (5.0 + COALESCE, "b")]


@pytest.mark.fault("F21")
def test_of_a_thousand_flips_few_are_taken_and_the_last_one_wins() -> None:
    flips = [(number * 0.1, "b" if number % 2 else "c") for number in range(1_000)]
    pace, taken = run(flips, QUIET)
    assert pace.current == flips[-1][1]
    assert len(taken) <= flips[-1][0] // SPACING + 2


@given(
    st.lists(st.tuples(st.floats(0, 200), st.sampled_from("abc")), min_size=1, max_size=40),
    st.sampled_from([ChangePace[str](), QUIET]),
)
@settings(deadline=None, max_examples=200)
@pytest.mark.fault("F21")
def test_whatever_is_asked_for_the_last_one_is_served_and_changes_keep_their_distance(
    asked: Asked, start: ChangePace[str]
) -> None:
    asked = sorted(asked, key=lambda entry: entry[0])
    pace, taken = run(asked, start)
    assert pace.current == asked[-1][1]
    assert pace.due() is None
    times = [time for time, _ in taken]
    assert all(later - sooner >= SPACING - 1e-9 for sooner, later in pairwise(times))
    assert all(value in {wanted for _, wanted in asked} for _, value in taken)
    # nothing waits for longer than it has to
    assert not taken or taken[-1][0] <= asked[-1][0] + SPACING + COALESCE
