import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpusharing.api.sharing import RESOURCE_NAME_PATTERN
from gpusharing.core.mig import _BOARDS, board_of, profile_name, resource_profiles

BOARDS = json.loads((Path(__file__).parents[2] / "vectors" / "mig-profiles.json").read_text())["boards"]
PROFILES = [(board, entry) for board in BOARDS for entry in board["profiles"]]


@pytest.mark.parametrize("board", BOARDS, ids=[board["board"] for board in BOARDS])
class TestBoard:
    def test_its_models_make_exactly_its_profiles(self, board: dict[str, Any]) -> None:
        want = frozenset(entry["profile"].replace("+", ".") for entry in board["profiles"])
        for model in board["models"]:
            assert resource_profiles(model) == want
            assert resource_profiles(model.replace(" ", "-")) == want

    def test_its_profiles_are_resource_names_that_a_policy_may_share(self, board: dict[str, Any]) -> None:
        for profile in resource_profiles(board["models"][0]) or ():
            assert re.fullmatch(RESOURCE_NAME_PATTERN, f"nvidia.com/mig-{profile}")

    def test_its_profiles_have_the_sizes_and_places_of_the_hardware(self, board: dict[str, Any]) -> None:
        got = board_of(board["models"][0])
        assert got is not None
        assert got.units == board["memorySlices"]
        for entry in board["profiles"]:
            profile = got.profile(entry["profile"])
            assert profile is not None
            assert profile.slices == entry["computeSlices"]
            assert (profile.size, list(profile.starts)) == (entry["placements"]["size"], entry["placements"]["starts"])
            assert profile.most == entry["maxInstances"]
            assert profile.memory_gib == entry["memoryGiB"]


@pytest.mark.parametrize(("board", "entry"), PROFILES, ids=[f"{b['board']} {e['profile']}" for b, e in PROFILES])
class TestNames:
    def test_memory_and_slices_give_nvidias_name(self, board: dict[str, Any], entry: dict[str, Any]) -> None:
        known = board_of(board["models"][0])
        assert known is not None
        profile = known.profile(entry["profile"])
        assert profile is not None
        memory = known.memory_mib(profile, board["memoryMiB"])
        slices = entry["computeSlices"]
        want = re.split(r"[+-]", entry["profile"])[0]
        assert profile_name(slices, slices, memory, board["memoryMiB"]) == want
        assert profile_name(slices, 1, memory, board["memoryMiB"]) == (want if slices == 1 else f"1c.{want}")


def test_no_other_board_is_known() -> None:
    assert set(_BOARDS) == {board["board"] for board in BOARDS}


@pytest.mark.parametrize("model", ["", "NVIDIA L4", "NVIDIA-A100"])
def test_of_a_model_that_is_not_known_nothing_is_said(model: str) -> None:
    assert resource_profiles(model) is None
