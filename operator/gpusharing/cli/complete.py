"""`kubectl_complete-gpusharing`: kubectl runs it with the words so far, and prints what it prints.

The answer is one candidate per line, a tab and its description behind it, and last a directive: `:4` offers nothing
beside the candidates, `:0` lets the shell offer files. It must be quick, and silent when something fails.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from gpusharing.cli import commands
from gpusharing.cli.sources import Source

TIMEOUT = 5.0
ONLY_THESE, FILES = ":4", ":0"
ROOT_FLAGS = {"--help": "Show help.", "--version": "Print the version."}
FLAGS = {"--help": "Show help.", "--debug": "Show the traceback of an error."}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option or argument of a command."""

    flags: tuple[str, ...]
    help: str
    metavar: str
    choices: tuple[str, ...]
    takes_value: bool


def main() -> None:
    """Answer kubectl."""
    print("\n".join(complete(sys.argv[1:])))


def complete(words: Sequence[str]) -> list[str]:
    """Return the lines for the words behind `kubectl gpusharing`; the last one is being written."""
    *before, word = words or [""]
    at = next((place for place, each in enumerate(before) if not each.startswith("-")), None)
    if at is None:
        about = {name: _summary(module) for name, module in commands.modules()}
        return _offer(word, ROOT_FLAGS if word.startswith("-") else about)
    if before[at] not in commands.names():
        return [ONLY_THESE]
    return _complete_command(_parameters(commands.module(before[at]), before[at]), before[at + 1 :], word)


def _complete_command(parameters: Sequence[Parameter], before: Sequence[str], word: str) -> list[str]:
    options = {flag: parameter for parameter in parameters for flag in parameter.flags}
    given, arguments, pending = _read(options, before)
    flag, equals, value = word.partition("=")
    if pending is not None:
        return _values(pending, word, "", given, arguments)
    if equals and flag in options:
        return _values(options[flag], value, f"{flag}=", given, arguments)
    if word.startswith("-"):
        return _offer(word, {**{flag: option.help for flag, option in options.items()}, **FLAGS})
    argument = next((parameter for parameter in parameters if not parameter.flags), None)
    return _values(argument, word, "", given, arguments) if argument else [ONLY_THESE]


def _read(options: dict[str, Parameter], before: Sequence[str]) -> tuple[dict[str, str], list[str], Parameter | None]:
    """Return the values of options, the arguments, and the option whose value comes next."""
    given: dict[str, str] = {}
    arguments: list[str] = []
    pending: str | None = None
    for each in before:
        if pending is not None:
            given[options[pending].flags[0]], pending = each, None
            continue
        flag, equals, value = each.partition("=")
        if flag in options and equals:
            given[options[flag].flags[0]] = value
        elif flag in options and options[flag].takes_value:
            pending = flag
        elif not each.startswith("-"):
            arguments.append(each)
    return given, arguments, options[pending] if pending is not None else None


def _values(parameter: Parameter, word: str, prefix: str, given: dict[str, str], arguments: Sequence[str]) -> list[str]:
    if parameter.choices:
        return _offer(prefix + word, dict.fromkeys((prefix + choice for choice in parameter.choices), ""))
    match parameter.metavar:
        case "FILE" | "FILE..." | "DIR":
            return [FILES]
        case "POLICY":
            return _offer(prefix + word, dict.fromkeys((prefix + name for name in _names("policies", given)), ""))
        case "node/NAME" if not arguments:
            return _offer(word, dict.fromkeys((f"node/{name}" for name in _names("nodes", given)), ""))
        case "node/NAME" if len(arguments) == 1 and "/" not in arguments[0]:
            return _offer(word, dict.fromkeys(_names("nodes", given), ""))
        case _:
            return [ONLY_THESE]


def _offer(word: str, known: dict[str, str]) -> list[str]:
    return [
        *(f"{name}\t{text}".rstrip() for name, text in sorted(known.items()) if name.startswith(word)),
        ONLY_THESE,
    ]


def _names(kind: Literal["nodes", "policies"], given: dict[str, str]) -> list[str]:
    saved = [given["--from"]] if "--from" in given else []
    source = Source(saved, given.get("--kubeconfig", ""), given.get("--context", ""))
    try:
        return source.names_of(kind, timeout=TIMEOUT)
    except Exception:
        return []  # the person is in the middle of a line: no candidates say enough


# --- what a command takes, from its signature


def _summary(module: ModuleType) -> str:
    function = getattr(module, module.__name__.rpartition(".")[2])
    return (inspect.getdoc(function) or "").partition("\n")[0]


def _parameters(module: ModuleType, name: str) -> list[Parameter]:
    function: Callable[..., Any] = getattr(module, name)
    found = []
    for parameter, hint in get_type_hints(function, include_extras=True).items():
        kind, *infos = get_args(hint) or [hint]
        info = next((info for info in infos if isinstance(info, OptionInfo | ArgumentInfo)), None)
        if info is None:
            continue
        flags = _flags(info, parameter) if isinstance(info, OptionInfo) else ()
        found.append(
            Parameter(flags, info.help or "", str(info.metavar or ""), _choices(kind), takes_value=kind is not bool)
        )
    return found


def _flags(info: OptionInfo, name: str) -> tuple[str, ...]:
    """Return the spellings; in an annotation Typer takes the first one for the default."""
    said = (info.default, *(info.param_decls or ()))
    flags = tuple(word for word in said if isinstance(word, str) and word.startswith("-"))
    return flags or (f"--{name.replace('_', '-')}",)


def _choices(kind: Any) -> tuple[str, ...]:
    """Return the words of `Literal[...]`, also inside `... | None`."""
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    return next((found for inner in get_args(kind) if (found := _choices(inner))), ())
