"""How full a GPU looks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.api.fragmentation import GpuShares
from gpusharing.cli.pictures import BAR_MAX, bar, filling


def gpu(in_use: int, shares: int, *, healthy: bool = True) -> GpuShares:
    return GpuShares(index=0, uuid="GPU-a", healthy=healthy, shares=shares, in_use=in_use)


@pytest.mark.parametrize(
    ("in_use", "shares", "want"),
    [(0, 4, "·"), (1, 4, "▂"), (4, 4, "█"), (1, 1000, "▁"), (999, 1000, "▇"), (0, 0, "·"), (0, 1, "·"), (1, 1, "█")],
)
def test_any_use_shows_and_only_a_full_gpu_looks_full(in_use: int, shares: int, want: str) -> None:
    assert filling(gpu(in_use, shares)) == want


def test_a_sick_gpu_is_told_apart_however_full_it_is() -> None:
    assert {filling(gpu(in_use, 4, healthy=False)) for in_use in range(5)} == {"x"}


@given(shares=st.integers(0, 200), part=st.floats(0, 1))
def test_a_bar_is_as_long_as_there_are_shares_up_to_a_limit_and_as_full_as_the_gpu(shares: int, part: float) -> None:
    in_use = round(shares * part)
    drawn = bar(gpu(in_use, shares))
    assert len(drawn) == min(shares, BAR_MAX)
    assert drawn == "█" * drawn.count("█") + "░" * drawn.count("░")
    assert (drawn.count("█") == 0) == (in_use == 0)
    assert (drawn.count("░") == 0) == (in_use == shares)
    if shares <= BAR_MAX:
        assert drawn.count("█") == in_use
