"""What `place` reads: a placement in our form or in another, the nodes to plan on, and an earlier plan."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusharing.api import names
from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.api.placementplan import SavedPlan
from gpusharing.api.yamltext import MAX_BYTES
from gpusharing.cli.files import STDIN, read_text, shown
from gpusharing.cli.saved import documents
from gpusharing.core.errors import InvalidInput
from gpusharing.core.placement.plan import PoolPlan
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.readers import gpunodes, gym, manifest
from gpusharing.core.placement.schema import read as read_model

DEFAULT_NAME, DEFAULT_NAMESPACE = "placement", "default"


class Refused(Exception):
    """There is no plan: the problems say why; `pools` what became of them, as far as they were looked at."""

    def __init__(self, problems: Iterable[Problem], pools: tuple[PoolPlan, ...] = ()) -> None:
        super().__init__()
        self.problems = tuple(problems)
        self.pools = pools


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement as its file has it."""

    name: str
    namespace: str
    spec: PlacementSpec
    # what of a foreign file was left out, a sentence each
    notices: tuple[str, ...] = ()


def read_placement(file: str, namespace: str) -> Placement:
    """Read our own form. `namespace` wins over the file's; a bare spec is named after the file. Raises Refused."""
    found = manifest.read(_text(file))
    if isinstance(found, tuple):
        raise Refused(found)
    return Placement(found.name or _name_of(file), namespace or found.namespace or DEFAULT_NAMESPACE, found.spec)


def read_gym(file: str, namespace: str) -> Placement:
    """Read a submit file of NeMo Gym. Raises Refused."""
    found = manifest.read_documents(_text(file))
    if isinstance(found, tuple):
        raise Refused(found)
    reading, problems = gym.read(found[0], os.environ)
    if reading is None:
        raise Refused(
            _invalid(f"{each.path}: {each.message}" if each.path else each.message, each.hint) for each in problems
        )
    spec = read_model(PlacementSpec, reading.spec, "spec")
    if isinstance(spec, tuple):
        raise Refused(spec)
    return Placement(_name_of(file), namespace or DEFAULT_NAMESPACE, spec, reading.notices)


def read_inventory(file: str, placement: str) -> Inventory:
    """Read the nodes to plan on: a saved cluster, or the planner's own form. Raises Refused."""
    data = _documents(file)
    if objects := [each for one in data for each in _objects(one)]:
        found, problems = gpunodes.read(objects, placement)
        if problems:
            raise Refused(problems)
        if not found.nodes:
            hint = "save them with: kubectl get nodes,gpunodes -o json"
            raise Refused([_invalid(f"{shown(file)} has no {names.NODE_KIND}", hint)])
        return found
    own = read_model(Inventory, data[0] if len(data) == 1 else data, "inventory")
    if isinstance(own, tuple):
        raise Refused(own)
    return own


def read_plan(file: str) -> SavedPlan:
    """Read a plan that was printed earlier. Raises Refused."""
    data = _documents(file)
    plan = read_model(SavedPlan, data[0] if len(data) == 1 else data, "plan")
    if isinstance(plan, tuple):
        hint = f"{shown(file)} is no plan: make one with -o json"
        raise Refused(Problem(each.code, each.message, each.hint or hint) for each in plan)
    return plan


def _text(file: str) -> str:
    return read_text(file, at_most=MAX_BYTES + 1)  # a longer one is refused as too long


def _name_of(file: str) -> str:
    """Return the file's name as that of a placement."""
    if file == STDIN:
        return DEFAULT_NAME
    name = re.sub(r"[^a-z0-9]+", "-", Path(file).name.partition(".")[0].lower())[:63].strip("-")
    return name or DEFAULT_NAME


def _documents(file: str) -> list[Any]:
    text = read_text(file)
    try:
        return list(documents(file, text))
    except InvalidInput as error:
        raise Refused([_invalid(error.message, error.hint)]) from error


def _objects(data: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, Mapping) and isinstance(data.get("items"), list):
        for item in data["items"]:
            yield from _objects(item)
    elif isinstance(data, Mapping) and "kind" in data:
        yield data


def _invalid(message: str, hint: str = "") -> Problem:
    return Problem(Code.INVALID_DOCUMENT, message, hint)
