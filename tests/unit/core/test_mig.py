import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpusharing.api.sharing import RESOURCE_NAME_PATTERN
from gpusharing.core.mig import _BOARDS, resource_profiles

BOARDS = json.loads((Path(__file__).parents[2] / "vectors" / "mig-profiles.json").read_text())["boards"]


@pytest.mark.parametrize("board", BOARDS, ids=[board["board"] for board in BOARDS])
class TestBoard:
    def test_its_models_make_exactly_its_profiles(self, board: dict[str, Any]) -> None:
        want = {entry["profile"].replace("+", ".") for entry in board["profiles"]}
        for model in board["models"]:
            assert resource_profiles(model) == want
            assert resource_profiles(model.replace(" ", "-")) == want

    def test_its_profiles_are_resource_names_that_a_policy_may_share(self, board: dict[str, Any]) -> None:
        for profile in resource_profiles(board["models"][0]) or ():
            assert re.fullmatch(RESOURCE_NAME_PATTERN, f"nvidia.com/mig-{profile}")


def test_no_other_board_is_known() -> None:
    assert set(_BOARDS) == {board["board"] for board in BOARDS}


@pytest.mark.parametrize("model", ["", "NVIDIA L4", "NVIDIA-A100"])
def test_of_a_model_that_is_not_known_nothing_is_said(model: str) -> None:
    assert resource_profiles(model) is None
