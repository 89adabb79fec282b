"""The reference page tells of every option, word and field that there is."""

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from gpusharing.api.explanation import Explanation
from gpusharing.api.fragmentation import FragmentationOverview
from gpusharing.api.overview import StatusReport
from gpusharing.api.placement import Inventory
from gpusharing.api.placementplan import SavedPlan
from gpusharing.api.plan import ChangeWord, PlanReport
from gpusharing.cli import commands
from gpusharing.cli.complete import complete
from gpusharing.core.standing import Standing

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md").read_text()
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)


def section(name: str) -> str:
    """The text below a heading of the second level, without examples."""
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PROSE, re.MULTILINE | re.DOTALL)
    assert found, f"no section {name}"
    return found[1]


@pytest.mark.parametrize("command", [name for name, _ in commands.modules()])
def test_every_option_of_a_command_is_told(command: str) -> None:
    told = section("What all commands share") + section(command)
    flags = [line.partition("\t")[0] for line in complete([command, "-"])[:-1]]
    assert flags
    assert [flag for flag in flags if f"`{flag}`" not in told] == []


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("plan", PlanReport),
        ("explain", Explanation),
        ("status", StatusReport),
        ("fragmentation", FragmentationOverview),
        ("place", SavedPlan),
        ("place", Inventory),
    ],
)
def test_every_field_of_what_it_prints_is_told(command: str, model: type[BaseModel]) -> None:
    told = set(re.findall(r"[A-Za-z]+", " ".join(re.findall(r"`([^`]+)`", section(command)))))
    assert [field for field in _fields(model) if field not in told] == []


def _fields(model: type[BaseModel]) -> list[str]:
    """The names of a model's fields, those of models inside it included; counts of a policy are told elsewhere."""
    found = []
    for name, field in model.model_fields.items():
        found.append(field.alias or name)
        for inner in _models(field.annotation):
            found += _fields(inner) if inner.__name__ != "NodeCounts" else []
    return found


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def test_every_change_and_every_state_is_told_with_its_meaning() -> None:
    assert [word for word in get_args(ChangeWord) if f"| `{word}` | " not in section("plan")] == []
    assert [word for word in Standing if f"| `{word}` | {word.meaning} |" not in section("States")] == []
