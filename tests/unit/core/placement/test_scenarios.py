"""The scenarios of `vectors/placement.json`: the plan, or every error, that the placement guide asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.core.placement.document import document
from gpusharing.core.placement.planner import place
from gpusharing.core.placement.request import Bound, Request

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[3] / "vectors" / "placement.json").read_text()
)["cases"]
COMPARED = ("leadSlot", "seesAll", "slots")


def _planned(case: dict[str, Any]) -> dict[str, Any]:
    given = case["input"]
    bound = [Bound(each["service"], each["node"], tuple(each["indexes"])) for each in given.get("bound", [])]
    request = Request(
        PlacementSpec.model_validate(given["request"]),
        bound=tuple(bound),
        compat=given.get("compat"),
        namespace="team-a",
    )
    inventory = Inventory.model_validate(given["inventory"]) if "inventory" in given else None
    return document(place(request, inventory))


def _as_set(said: list[dict[str, str]]) -> list[tuple[str, str]]:
    return sorted((each["code"], each["message"]) for each in said)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].split()[0])
def test_a_scenario_is_planned_as_the_guide_says(case: dict[str, Any]) -> None:
    want, got = case["expect"], _planned(case)
    if "errors" in want:
        assert set(got) == {"errors"}
        assert _as_set(got["errors"]) == _as_set(want["errors"])
        hints = {each["message"]: each["hint"] for each in want["errors"] if "hint" in each}
        assert hints == {each["message"]: each["hint"] for each in got["errors"] if each["message"] in hints}
        return
    assert {key: _without_uuids(got[key]) for key in COMPARED} == {key: want[key] for key in COMPARED}
    assert {name: {key: got["pools"][name][key] for key in pool} for name, pool in want["pools"].items()} == want[
        "pools"
    ]
    assert set(got["pools"]) == set(want["pools"])
    for said in ("warnings", "notices"):
        assert _as_set(got[said]) == _as_set(want[said])


def _without_uuids(value: Any) -> Any:
    """The same, without the UUIDs that stand beside indexes where there is an inventory."""
    if isinstance(value, dict):
        return {key: _without_uuids(inner) for key, inner in value.items() if key != "uuids"}
    return value
