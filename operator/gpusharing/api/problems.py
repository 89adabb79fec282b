"""One thing wrong with what somebody wrote, as a value; and pydantic's findings in that form."""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from gpusharing.api.reasons import Reason

Severity = Literal["error", "warning", "hint"]
M = TypeVar("M", bound=BaseModel)
_VALUE_MAX = 80
PROBLEMS_MAX = 100  # of one input: naming the nearest key of each of 10,000 unknown ones would take minutes


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where, and what to do; the same text in command line, condition, Event and log."""

    path: str
    message: str
    hint: str = ""
    severity: Severity = "error"
    reason: Reason = Reason.INVALID_SPEC

    def __str__(self) -> str:
        """Return `path: message`, and the hint behind it."""
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text}. hint: {self.hint}" if self.hint else text


def quoted(value: object) -> str:
    """Return the value as JSON on one line, cut, so that user text cannot break a log line or a table."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # YAML has keys that JSON has not, and values that hold themselves
        text = f"a {type(value).__name__}"
    return text if len(text) <= _VALUE_MAX else text[: _VALUE_MAX - 1] + "…"


def nearest(word: str, known: Sequence[str]) -> str:
    """Return the known word that was probably meant, or an empty string."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.7)
    return by_lower[found[0]] if found else ""


def dotted(path: Sequence[str | int]) -> str:
    """Return the path as people write it: `sharing.resources[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def parse(model: type[M], data: object, *, at: str = "") -> tuple[M | None, list[Problem]]:
    """Validate data strictly. Returns the model, or None and everything that is wrong, in order of the text."""
    try:
        return model.model_validate(data, by_alias=True, by_name=False), []
    except ValidationError as error:
        prefix = (at,) if at else ()
        findings = error.errors(include_url=False)[:PROBLEMS_MAX]
        findings.sort(key=lambda finding: _position(data, finding["loc"]))
        return None, [_problem(model, finding, prefix) for finding in findings]


def _position(data: object, location: Sequence[str | int]) -> tuple[int, ...]:
    """Return where in the text the place is; what is missing comes after what is there."""
    position: list[int] = []
    for part in location:
        match data:
            case Mapping():
                keys = list(data)
            case list():
                keys = list(range(len(data)))
            case _:
                keys = []
        at = keys.index(part) if part in keys else len(keys)
        position.append(at)
        data = data[keys[at]] if at < len(keys) else None  # type: ignore[index]
    return tuple(position)


def _problem(model: type[BaseModel], finding: Mapping[str, Any], prefix: tuple[str, ...]) -> Problem:
    location = tuple(finding["loc"])
    path = dotted((*prefix, *location))
    match finding["type"]:
        case "extra_forbidden":
            known = known_keys(model, location[:-1])
            meant = nearest(str(location[-1]), known)
            return Problem(
                path, "unknown field", f"did you mean {meant}?" if meant else f"known here: {', '.join(known)}"
            )
        case "missing":
            return Problem(path, "missing", f"{location[-1]} is required")
        case "literal_error":
            return Problem(path, f"{quoted(finding['input'])} is not one of {finding['ctx']['expected']}")
        case "model_type" | "dict_type":
            return Problem(path, f"{quoted(finding['input'])} is not a mapping")
        case _:
            expected = str(finding["msg"]).replace("Input should", "must")
            return Problem(path, f"{quoted(finding['input'])}: {expected[:1].lower()}{expected[1:]}")


def known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the keys that the model at this place of the document knows."""
    here: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, str) and here is not None:
            here = next(
                (
                    _model_in(field.annotation)
                    for name, field in here.model_fields.items()
                    if (field.alias or name) == part
                ),
                None,
            )
    return [field.alias or name for name, field in here.model_fields.items()] if here else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `X`, `X | None` or `list[X]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)
