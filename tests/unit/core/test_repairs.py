from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpusharing.core.repairs import Repairs


def made(*moments: float) -> Repairs:
    """Repairs made at these moments."""
    repairs = Repairs()
    for moment in moments:
        repairs = repairs.made(moment, "kubectl-label")
    return repairs


def fought(count: int) -> list[float]:
    """The moments of so many repairs, each made as soon as it may be, against one who never rests."""
    repairs, now, moments = Repairs(), 1000.0, []
    for _ in range(count):
        now += repairs.wait(now)
        repairs = repairs.made(now, "rogue")
        moments.append(now)
    return moments


def test_the_first_repair_is_made_at_once() -> None:
    assert Repairs().wait(0.0) == 0.0


def test_repairs_are_spaced_1_2_4_up_to_300_seconds() -> None:
    spaces = [later - earlier for earlier, later in pairwise(fought(13))]
    assert spaces == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_what_has_passed_since_the_last_repair_counts() -> None:
    assert made(100.0, 101.0).wait(102.5) == 0.5
    assert made(100.0, 101.0).wait(110.0) == 0.0


def test_ten_quiet_minutes_forget_what_was_before() -> None:
    repairs = made(*fought(9))
    quiet = repairs.last + 600
    assert repairs.wait(quiet) == 0.0
    assert not repairs.contested(quiet)
    assert repairs.made(quiet, "x").count == 1


def test_anything_shorter_does_not() -> None:
    repairs = made(*fought(12))
    almost = repairs.last + 599
    assert repairs.contested(almost)
    assert repairs.made(almost, "x").count == 13


def test_the_third_repair_is_a_contest() -> None:
    assert [made(*range(count)).contested(count) for count in range(5)] == [False, False, False, True, True]


def test_the_quiet_time_is_over_when_the_contest_is() -> None:
    repairs = made(*fought(3))
    over = repairs.last + repairs.quiet_in(repairs.last)
    assert repairs.quiet_in(repairs.last) == 600
    assert (repairs.contested(over - 0.1), repairs.contested(over)) == (True, False)
    assert repairs.quiet_in(over + 5) == 0.0


def test_who_changed_the_label_last_is_remembered() -> None:
    assert made(1.0).made(2.0, "argocd").manager == "argocd"


@given(st.integers(0, 10**6), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_wait_is_never_negative_nor_longer_than_five_minutes(count: int, last: float, later: float) -> None:
    assert 0.0 <= Repairs(count, last).wait(last + later) <= 300.0
