"""Plain data that knows its lines: what a YAML text is read into, so that every problem can name its line."""

import re
from dataclasses import dataclass
from typing import Any

from gpusharing.api.problems import Problem


class Mapping(dict[str, Any]):
    """A mapping that knows where it stands."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        # key → its line; for a literal block also the line of the block's first line
        self.lines: dict[str, int] = {}
        self.blocks: dict[str, int] = {}


class Sequence(list[Any]):
    """A sequence that knows where it stands."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and the line it is on."""

    line: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: the line of its key, and of a literal block (`|`) the first line of its text."""

    line: int
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text. `whole` is False where reading broke off: `data` is what was read until then."""

    data: Any
    line: int
    whole: bool = True
    findings: tuple[Finding, ...] = ()

    def line_of(self, path: str) -> int:
        """Return the line of `sharing.resources[0].name`, or of the nearest part of the path that is there."""
        return self.place_of(path).line

    def place_of(self, path: str) -> Place:
        """Return where the value of the path stands, or the nearest part of the path that is there."""
        place, here, rest = Place(self.line), self.data, path
        while rest:
            if isinstance(here, Sequence) and (index := re.match(r"\[(\d+)\]\.?", rest)):
                item = int(index[1])
                if item >= len(here):
                    break
                place, here, rest = Place(here.lines[item]), here[item], rest[index.end() :]
                continue
            key = _leading_key(here, rest)
            if key is None:
                break
            place = Place(here.lines[key], here.blocks.get(key))
            here, rest = here[key], rest[len(key) :].removeprefix(".")
        return place


def _leading_key(here: Any, rest: str) -> str | None:
    """Return the longest key of the mapping that the rest of the path begins with; keys may hold dots and brackets."""
    if not isinstance(here, Mapping):
        return None
    ends = [match.start() for match in re.finditer(r"[.\[]", rest)]
    return next((rest[:end] for end in (len(rest), *reversed(ends)) if rest[:end] in here.lines), None)
