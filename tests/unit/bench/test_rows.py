"""A goal is the most that a figure may be; ratios are those of neighbours."""

import pytest
from tests.bench.rows import Row, median_ratio


@pytest.mark.parametrize(
    ("measured", "goal", "ok"),
    [(1.15, 1.15, True), (1.16, 1.15, False), (0.0, 0.0, True), (99.0, None, True)],
    ids=["just", "above", "nothing-allowed-nothing-there", "no-goal"],
)
def test_a_row_is_ok_up_to_its_goal(measured: float, goal: float | None, ok: bool) -> None:
    assert Row("x", measured, "s", goal).ok is ok


def test_the_ratio_is_the_median_of_neighbours_so_that_a_slow_minute_does_not_decide() -> None:
    assert median_ratio([10.0, 30.0, 11.0], [10.0, 25.0, 10.0]) == pytest.approx(1.1)


def test_runs_without_a_neighbour_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        median_ratio([1.0, 2.0], [1.0])
