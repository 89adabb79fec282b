"""The text of a plugin config: strictly where our controller rendered it, as NVIDIA reads it elsewhere (decision 38).

Both ways have the same limits (1 MiB, 64 levels, 10,000 values with aliases written out), so that no text stops the
plugin, and both refuse with one sentence.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel

from gpusharing.api.located import Document
from gpusharing.api.pluginconfig import Flags, GfdSection, PluginConfig, PluginSection
from gpusharing.api.problems import Problem, parse
from gpusharing.api.yamltext import read
from gpusharing.core.checks.pluginconfig import check_content
from gpusharing.core.checks.pluginconfig.keys import known_keys, meant, section_of, written
from gpusharing.core.checks.pluginconfig.resourcenames import full_name
from gpusharing.core.errors import InvalidInput

VALUES_MAX = 10_000
# Read by GFD, or validated and dropped (contract 1.4, 2.2): what is no part of what the plugin serves.
_NOT_SERVED = frozenset({"resources", "flags.gfd", "flags.useNodeFeatureAPI"})
_DROPPED = frozenset({"devices", "rename"})


@dataclass(frozen=True, slots=True)
class ForeignConfig:
    """A config that somebody wrote by hand, and what there is to say about it."""

    config: PluginConfig
    # paths of the keys that NVIDIA's plugin does not know: ignored
    unknown_keys: tuple[str, ...] = ()
    # a sentence for whatever else does not mean what it seems to: aliases, keys that stand twice, further documents
    remarks: tuple[str, ...] = ()


def read_rendered(text: str) -> PluginConfig:
    """Read a config that our controller rendered. Raises InvalidInput for anything that it does not write."""
    document, others = _first(text)
    problems = [finding.problem for finding in document.findings]
    if others:
        problems.append(Problem("", "a second document", "our controller renders one"))
    if problems:
        raise _refused(problems)
    config, problems = parse(PluginConfig, document.data)
    if config is None:
        raise _refused(problems)
    _refuse_errors(check_content(document.data))
    return config


def read_foreign(text: str, mig_strategy: str = "") -> ForeignConfig:
    """Read a config as NVIDIA's plugin does; `mig_strategy` is the one that is given otherwise, empty = the config's.

    Raises InvalidInput for what NVIDIA's plugin refuses (contract 1.2 to 1.7), and for both sharing strategies at once.
    """
    document, others = _first(text)
    found = [finding.problem for finding in document.findings]
    if not document.whole:
        raise _refused(found)
    problems = check_content(document.data, mig_strategy)
    _refuse_errors(problems)
    config, wrong = parse(PluginConfig, _as_read(document.data or {}, PluginConfig, ""))
    if config is None:  # the checks let something pass that the model does not take: better refused than misread
        raise _refused(wrong)
    unknown = [problem for problem in problems if _is_unknown_key(problem)]
    remarks = [*found, *(problem for problem in problems if problem.severity == "warning" and problem not in unknown)]
    if others:
        remarks.append(Problem("", "only the first document counts", "leave out what follows it"))
    return ForeignConfig(config, tuple(problem.path for problem in unknown), tuple(map(_ours, remarks)))


def _first(text: str) -> tuple[Document, bool]:
    """Return the first document, and whether others that say something follow; a text that says nothing is null."""
    documents = [
        document for document in read(text, values_max=VALUES_MAX) if document.data is not None or document.findings
    ]
    return (documents[0], len(documents) > 1) if documents else (Document(None, 1), False)


def _is_unknown_key(problem: Problem) -> bool:
    return problem.message.startswith(("unknown key", "not read here"))


def _refuse_errors(problems: Iterable[Problem]) -> None:
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise _refused(errors)


def _refused(problems: list[Problem]) -> InvalidInput:
    """Return one sentence of the first error, else of the first problem, and how many more there are."""
    first = next((problem for problem in problems if problem.severity == "error"), problems[0])
    more = len(problems) - 1
    sentence = _ours(Problem(first.path, first.message))
    return InvalidInput(f"{sentence} (and {more} more)" if more else sentence, hint=first.hint)


def _ours(problem: Problem) -> str:
    """Return the sentence without NVIDIA's plugin, which exits where ours keeps the last good config."""
    return str(problem).replace(", the plugin exits", "")


# --- as NVIDIA's loader takes it


def _as_read(data: Mapping[str, Any], model: type[BaseModel], path: str) -> dict[str, Any]:
    """Return what the plugin makes of a section that has no error: known keys in our spelling, without nulls."""
    taken: dict[str, Any] = {}
    for name in known_keys(model):
        here = f"{path}.{name}" if path else name
        key = written(data, name)
        if meant(model, key) != name or here in _NOT_SERVED or data.get(key) is None:
            continue
        section, listed = section_of(known_keys(model)[name].annotation)
        value = data[key]
        if section and listed:
            taken[name] = [_as_read(entry, section, here) for entry in value]
        elif section:
            taken[name] = _as_read(value, section, here)
        elif name not in _DROPPED:
            taken[name] = _VALUES.get(here, _unchanged)(value)
    return {**_emptied(data), **taken} if model is Flags else taken


def _emptied(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that a key one level too deep sets to nothing: NVIDIA's loader, v0.20.0 (`checks/…/keys.py`)."""
    emptied: dict[str, Any] = {}
    for section, model in (("plugin", PluginSection), ("gfd", GfdSection)):
        below = flags.get(written(flags, section))
        for key in below if isinstance(below, Mapping) else ():
            name = "" if meant(model, key) else meant(Flags, key)
            if (
                name
                and f"flags.{name}" not in _NOT_SERVED
                and section_of(known_keys(Flags)[name].annotation)[0] is None
            ):
                emptied[name] = False if bool in get_args(known_keys(Flags)[name].annotation) else ""
    return emptied


def _unchanged(value: Any) -> Any:
    return value


_VALUES: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "version": lambda value: value or "v1",
        "sharing.timeSlicing.resources.name": full_name,
        "sharing.mps.resources.name": full_name,
        # the loader reads numbers as floats: 4.0 is four, and no channel is channel 0
        "sharing.timeSlicing.resources.replicas": int,
        "sharing.mps.resources.replicas": int,
        "imex.channelIDs": lambda value: [int(channel or 0) for channel in value],
    }
)
