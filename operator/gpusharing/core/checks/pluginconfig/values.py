"""Values of a plugin config, outside `sharing`: what NVIDIA's plugin dies on, and what it does not take as meant."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from gpusharing.api.pluginconfig import GpuSharingSection, PluginConfig
from gpusharing.api.problems import Problem, nearest, parse, quoted
from gpusharing.api.sharing import DeviceListStrategy
from gpusharing.core.checks.pluginconfig.keys import known_keys, meant, section_of
from gpusharing.core.checks.pluginconfig.resourcenames import check_name

STRATEGIES_MAX = 100

Rule = Callable[[str, Any], Iterator[Problem]]
# Go's time.ParseDuration.
_DURATION = re.compile(r"[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")


def kind_of(value: Any) -> str:
    """Return what a value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "a mapping"
        case _:
            return "a list"


def is_whole(value: Any) -> bool:
    """Whether the value is read as an integer; `2.0` is, infinity and booleans are not."""
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


def wrong_values(data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every value outside `sharing` that is refused, or not taken as meant."""
    yield from _section(data, PluginConfig, "", "")


def _section(data: Any, model: type[BaseModel], path: str, place: str) -> Iterator[Problem]:
    """Check a mapping against its model; `path` is as written, `place` as the plugin spells it."""
    if data is None:
        return
    if not isinstance(data, Mapping):
        yield Problem(
            path, f"{kind_of(data)} where a mapping is expected", f"known here: {', '.join(known_keys(model))}"
        )
        return
    for key, value in data.items():
        if not (name := meant(model, key)):
            continue
        here, there = _join(path, key), _join(place, name)
        if there in _RULES:
            yield from _RULES[there](here, value)
            continue
        annotation = known_keys(model)[name].annotation
        section, _ = section_of(annotation)
        if section:
            yield from _section(value, section, here, there)
        else:
            yield from _scalar(annotation)(here, value)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _scalar(annotation: Any) -> Rule:
    """Return the rule for `bool | None`, `str | None` or `Literal[...] | None`."""
    (inner,) = [part for part in get_args(annotation) if part is not NoneType]
    if inner is bool:
        return boolean
    return one_of(*get_args(inner)) if get_origin(inner) is Literal else _text


def boolean(path: str, value: Any) -> Iterator[Problem]:
    """Yield what is wrong with a boolean; null counts as absent."""
    if value is not None and not isinstance(value, bool):
        hint = "write it without quotes" if str(value).lower() in {"true", "false"} else "write true or false"
        yield Problem(path, f"{quoted(value)} is {kind_of(value)}, must be a boolean", hint)


def _text(path: str, value: Any) -> Iterator[Problem]:
    if value is not None and not isinstance(value, str):
        yield Problem(path, f"{quoted(value)} is {kind_of(value)}, must be a string", "write it in quotes")


def one_of(*words: str) -> Rule:
    """Return the rule for one word of a list; null counts as absent, an empty string does not."""

    def rule(path: str, value: Any) -> Iterator[Problem]:
        if value is not None and value not in words:
            similar = nearest(value, words) if isinstance(value, str) else ""
            hint = f"did you mean {similar}?" if similar else f"one of {', '.join(words)}"
            yield Problem(path, f"{quoted(value)} is not known, the plugin exits", hint)

    return rule


def _version(path: str, value: Any) -> Iterator[Problem]:
    if value not in (None, "", "v1"):
        yield Problem(path, f"{quoted(value)} is an unknown version, the plugin exits", "write v1, or leave it out")


def _device_list_strategy(path: str, value: Any) -> Iterator[Problem]:
    if isinstance(value, str) and "," in value:
        listed = ", ".join(word.strip() for word in value.split(","))
        message = f"{quoted(value)} is one unknown strategy in a file, the plugin exits"
        yield Problem(path, message, f"commas separate only on the command line: write the list [{listed}]")
    elif isinstance(value, list):
        if not value:
            yield Problem(path, "an empty list: no container is given its GPU", "leave it out", "warning")
        yield from islice(_strategies(path, value), STRATEGIES_MAX)
    else:
        yield from one_of(*_STRATEGIES)(path, value)


_STRATEGIES = get_args(DeviceListStrategy)


def _strategies(path: str, words: list[Any]) -> Iterator[Problem]:
    for index, word in enumerate(words):
        if word is None:
            yield Problem(f"{path}[{index}]", "null, must be a strategy", f"one of {', '.join(_STRATEGIES)}")
        yield from one_of(*_STRATEGIES)(f"{path}[{index}]", word)


def _allocation_policy(path: str, value: Any) -> Iterator[Problem]:
    yield from one_of("distributed", "packed")(path, value)
    if value == "packed":
        yield Problem(path, "ignored by plugins older than v0.20.0", severity="hint")


def _sleep_interval(path: str, value: Any) -> Iterator[Problem]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield Problem(path, f"{quoted(value)} without a unit is nanoseconds", f"write {quoted(value)}s", "warning")
    elif isinstance(value, str):
        if value != "infinite" and not _DURATION.fullmatch(value):
            yield Problem(path, f"{quoted(value)} is not a duration, the plugin exits", "write 60s, 1m30s or infinite")
    elif value is not None:
        yield Problem(path, f"{quoted(value)} is {kind_of(value)}, must be a duration", "write 60s or infinite")


def _channel_ids(path: str, value: Any) -> Iterator[Problem]:
    accepted = value in (None, [], [0], [None]) and not (value and isinstance(value[0], bool))
    if not accepted:
        yield Problem(path, f"{quoted(value)} is refused, the plugin exits", "only [] and [0] are accepted")


def _patterns(path: str, value: Any) -> Iterator[Problem]:
    """`resources.gpus` and `resources.mig`: validated, then replaced by the built-in rules (contract 1.4)."""
    if value is None:
        return
    if not isinstance(value, list):
        yield Problem(path, f"{kind_of(value)} where a list is expected")
        return
    if value:
        hint = "the resources are always nvidia.com/gpu and nvidia.com/mig-<profile>"
        yield Problem(path, "read, then replaced by the built-in rules", hint, "warning")
    for index, entry in enumerate(value):
        here = f"{path}[{index}]"
        if entry is not None and not isinstance(entry, Mapping):
            yield Problem(here, f"{kind_of(entry)} where a mapping with pattern and name is expected")
            continue
        for key in ("pattern", "name"):
            if key not in (entry or {}):
                yield Problem(f"{here}.{key}", "missing, the plugin exits", "an entry needs pattern and name")
        if entry and "pattern" in entry:
            yield from _text(f"{here}.pattern", entry["pattern"])
        if entry and "name" in entry:
            yield from check_name(f"{here}.name", entry["name"])


def _gpusharing(path: str, value: Any) -> Iterator[Problem]:
    """Our own key, which our plugin reads strictly and NVIDIA's ignores."""
    _, problems = parse(GpuSharingSection, value, at=path)
    yield from problems


def _elsewhere(path: str, value: Any) -> Iterator[Problem]:
    """`sharing` has a file of its own."""
    return iter(())


_RULES: dict[str, Rule] = {
    "version": _version,
    "flags.plugin.deviceListStrategy": _device_list_strategy,
    "flags.plugin.sharedDevicesAllocationPolicy": _allocation_policy,
    "flags.gfd.sleepInterval": _sleep_interval,
    "resources.gpus": _patterns,
    "resources.mig": _patterns,
    "sharing": _elsewhere,
    "imex.channelIDs": _channel_ids,
    "gpusharing": _gpusharing,
}
