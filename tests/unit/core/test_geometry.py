"""Which MIG devices fit on a board together."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.core.geometry import Placed, instance_profile, misplaced
from gpusharing.core.mig import _BOARDS, Board, board_of

BOARDS = json.loads((Path(__file__).parents[2] / "vectors" / "mig-profiles.json").read_text())["boards"]
A100 = _BOARDS["A100-80GB"]
RTX = _BOARDS["RTX-PRO-6000-96GB"]


def problems(board: Board, *devices: str) -> list[str]:
    """Devices as `1g.10gb@3`."""
    placed = [Placed(profile, int(start)) for profile, _, start in (device.partition("@") for device in devices)]
    return [f"{place}: {message}" for place, message, _ in misplaced(board, placed)]


@pytest.mark.parametrize("entry", BOARDS, ids=[board["board"] for board in BOARDS])
def test_every_profile_fits_as_often_as_the_hardware_says(entry: dict[str, list[dict[str, object]]]) -> None:
    board = board_of(str(entry["models"][0]))
    assert board is not None
    for profile in board.profiles:
        devices = [f"{profile.name}@{start}" for start in profile.starts[: profile.most]]
        assert problems(board, *devices) == []
        assert len(problems(board, *devices, devices[0])) == 1


@pytest.mark.parametrize(
    "devices",
    [
        [f"1g.10gb@{n}" for n in range(7)],
        ["4g.40gb@0", "3g.40gb@4"],
        ["3g.40gb@0", "3g.40gb@4"],
        ["2g.20gb@0", "2g.20gb@2", "1g.20gb@4", "1g.10gb@6"],
        ["1g.10gb+me@0", *(f"1g.10gb@{n}" for n in range(1, 7))],
        ["1c.3g.40gb@0", "2c.3g.40gb@0", "3g.40gb@4"],
        ["1c.3g.40gb@4"] * 3,
    ],
)
def test_real_geometries_of_an_a100_fit(devices: list[str]) -> None:
    assert problems(A100, *devices) == []


@pytest.mark.parametrize(
    ("devices", "want"),
    [
        (["1g.5gb@0"], "0: NVIDIA A100-SXM4-80GB has no MIG profile 1g.5gb"),
        (["banana@0"], "0: NVIDIA A100-SXM4-80GB has no MIG profile banana"),
        (["2g.20gb@1"], "0: 2g.20gb cannot start at 1"),
        (["4g.40gb@4"], "0: 4g.40gb cannot start at 4"),
        (["3g.40gb@0", "1g.10gb@3"], "1: 1g.10gb at 3 overlaps 3g.40gb at 0"),
        (["1g.10gb@3", "3g.40gb@0"], "1: 3g.40gb at 0 overlaps 1g.10gb at 3"),
        (["1g.10gb+me@0", "1g.10gb+me@1"], "1: 1g.10gb+me at 1 wants media engines that 1g.10gb+me has"),
        (["2c.3g.40gb@0", "2c.3g.40gb@0"], "1: 2c.3g.40gb at 0 wants more compute slices than the 1 left there"),
        (["3g.40gb@0", "1c.3g.40gb@0"], "1: 1c.3g.40gb at 0 wants more compute slices than the 0 left there"),
    ],
)
def test_what_does_not_fit_is_said(devices: list[str], want: str) -> None:
    assert problems(A100, *devices) == [want]


def test_every_misplaced_device_is_named_and_the_others_are_judged_without_it() -> None:
    got = problems(A100, "2g.20gb@1", "1g.10gb@1", "9g@0", "1g.10gb@1")
    assert [problem.partition(":")[0] for problem in got] == ["0", "2", "3"]


@pytest.mark.parametrize(
    ("devices", "fits"),
    [
        (["1g.24gb+me.all@0", "1g.24gb-me@3", "2g.48gb-me@6"], True),
        (["1g.24gb+me.all@0", "1g.24gb@3"], False),
        (["1g.24gb+me.all@0", "1g.24gb+gfx@3"], False),
        (["1g.24gb+me.all@0", "1g.24gb+me@3"], False),
        (["1g.24gb+me@0", "1g.24gb@3", "2g.48gb+gfx@6"], True),
        (["1g.24gb@0", "2g.48gb+me.all@6"], False),
    ],
)
def test_all_media_engines_leave_none_to_others(devices: list[str], fits: bool) -> None:
    assert (problems(RTX, *devices) == []) == fits


def test_a_typo_is_guessed() -> None:
    assert [hint for _, _, hint in misplaced(A100, [Placed("1g.10g", 0)])] == ["did you mean 1g.10gb?"]


def test_a_compute_instance_is_in_the_instance_of_its_profile() -> None:
    assert instance_profile("1c.3g.40gb+me") == "3g.40gb+me"


@given(st.lists(st.tuples(st.sampled_from([p.name for p in A100.profiles]), st.integers(0, 8)), max_size=12))
def test_what_fits_never_overlaps_and_never_wants_more_than_seven_slices(devices: list[tuple[str, int]]) -> None:
    placed = [Placed(*device) for device in devices]
    bad = {place for place, _, _ in misplaced(A100, placed)}
    units: list[int] = []
    slices = 0
    for place, device in enumerate(placed):
        profile = A100.profile(device.profile)
        if place not in bad and profile is not None:
            units += range(device.start, device.start + profile.size)
            slices += profile.slices
    assert len(units) == len(set(units))
    assert all(0 <= unit < 8 for unit in units)
    assert slices <= 7
