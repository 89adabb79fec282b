"""A spec or an inventory from plain data; whatever has the wrong shape is an `InvalidDocument`, all of it at once."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpusharing.api.problems import PROBLEMS_MAX, dotted, known_keys, nearest, quoted
from gpusharing.core.placement.problems import Code, Problem

M = TypeVar("M", bound=BaseModel)


def read(model: type[M], data: object, at: str) -> M | tuple[Problem, ...]:
    """Return the model, or one problem per wrong place: `PATH: VALUE, EXPECTED`. `at` is the path of the data."""
    try:
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        findings = error.errors(include_url=False)[:PROBLEMS_MAX]
        return tuple(_problem(model, finding, at) for finding in findings)


def _problem(model: type[BaseModel], finding: Mapping[str, Any], at: str) -> Problem:
    location = tuple(finding["loc"])
    path = dotted((at, *location) if at else location)
    said, hint = _sentence(model, finding, location)
    return Problem(Code.INVALID_DOCUMENT, f"{path}: {said}" if path else said, hint)


def _sentence(model: type[BaseModel], finding: Mapping[str, Any], location: Sequence[str | int]) -> tuple[str, str]:
    """Return what is wrong and, for a misspelt word, the one that was probably meant."""
    value, limits = finding["input"], finding.get("ctx", {})
    match finding["type"]:
        case "expected":
            return f"{quoted(value)}, expected {finding['msg']}", _meant(value, finding["msg"])
        case "extra_forbidden":
            known = known_keys(model, location[:-1])
            meant = nearest(str(location[-1]), known)
            hint = f"did you mean {meant}?" if meant else ""
            return f"{quoted(value)}, unknown field; expected one of {', '.join(known)}", hint
        case "missing":
            return "missing, expected a value", ""
        case "too_long":
            return f"{len(value)} {location[-1]}, at most {limits['max_length']}", ""
        case "too_short":
            return f"{quoted(value)}, expected at least {limits['min_length']} entry", ""
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"{quoted(value)}, expected a mapping", ""
        case "list_type":
            return f"{quoted(value)}, expected a list", ""
        case _:
            wanted = str(finding["msg"]).removeprefix("Input should be ").removeprefix("Input should ")
            return f"{quoted(value)}, expected {wanted[:1].lower()}{wanted[1:]}", ""


def _meant(value: object, expected: str) -> str:
    words = expected.removeprefix("one of ").split(", ") if expected.startswith("one of ") else []
    meant = nearest(value, words) if isinstance(value, str) else ""
    return f"did you mean {meant}?" if meant else ""
