"""Values of the GPU operator's Helm chart: `devicePlugin.config.data` holds the configs.

>>> good = {"create": True, "name": "c", "default": "a", "data": {"a": "version: v1"}}
>>> check({"devicePlugin": {"config": good}})
[]
>>> [str(problem) for problem in check({"devicePlugin": {"config": {**good, "default": "b"}}})]
['devicePlugin.config.default: "b" is no entry of devicePlugin.config.data: config-manager exits on every node \
without a label. hint: the entries are a']
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gpusharing.api.problems import Problem, nearest, quoted
from gpusharing.core.documents import Embedded, embedded
from gpusharing.core.pluginenv import VARIABLES, Environment

UNKNOWN_MAX = 100
_PATH = "devicePlugin.config"
_CONFIG_VALUES = ("create", "name", "default", "data")
_PLUGIN_VALUES = (
    *("enabled", "repository", "image", "version", "imagePullPolicy", "imagePullSecrets", "args", "env"),
    *("resources", "config", "mps", "hostNetwork"),
)
_MIG_STRATEGIES = ("none", "single", "mixed")
_CHART_MIG_STRATEGY = "single"
_TRUE, _FALSE = {"1", "t", "T", "true", "TRUE", "True"}, {"0", "f", "F", "false", "FALSE", "False"}


def configs(values: Mapping[str, Any]) -> list[Embedded]:
    """Return the configs of `devicePlugin.config.data`."""
    return embedded(values["devicePlugin"]["config"].get("data"), f"{_PATH}.data")[0]


def environment(values: Mapping[str, Any]) -> Environment:
    """Return what the operator sets in the plugin's environment with these values (contract 10.2)."""
    said: dict[str, Any] = {
        "failOnInitError": True,
        "mpsRoot": None,
        "plugin.passDeviceSpecs": True,
        "plugin.deviceListStrategy": None,  # depends on cdi and on the operator's version
        "plugin.deviceIDStrategy": "uuid",
    }
    if strategy := _mig_strategy(values):
        said["migStrategy"] = strategy
    variables = {variable: key for key, variable in VARIABLES.items()}
    env = values["devicePlugin"].get("env")
    for entry in env if isinstance(env, list) else ():
        if isinstance(entry, Mapping) and (key := variables.get(str(entry.get("name")))):
            said[key] = _read(entry.get("value"))
    return Environment(said, "the GPU operator")


def _mig_strategy(values: Mapping[str, Any]) -> str:
    mig = values.get("mig")
    strategy = mig.get("strategy", _CHART_MIG_STRATEGY) if isinstance(mig, Mapping) else _CHART_MIG_STRATEGY
    return strategy if strategy in _MIG_STRATEGIES else ""


def _read(value: Any) -> Any:
    """Return a variable's value as the plugin reads it."""
    return True if str(value) in _TRUE else False if str(value) in _FALSE else value


def check(values: Mapping[str, Any], mps_users: Sequence[str] = ()) -> list[Problem]:
    """Return what is wrong with the values themselves. `mps_users`: the configs that ask for MPS."""
    config = values["devicePlugin"]["config"]
    return [
        *islice(_unknown(values["devicePlugin"], config), UNKNOWN_MAX),
        *_created(config),
        *embedded(config.get("data"), f"{_PATH}.data")[1],
        *_default(config),
        *_mig(values),
        *_mps_without_gfd(values, mps_users),
    ]


def _unknown(plugin: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Problem]:
    for key in plugin:
        similar = nearest(key, _PLUGIN_VALUES)
        if key not in _PLUGIN_VALUES and similar:  # other versions of the chart have values of their own
            message = "not a value of the chart, ignored"
            yield Problem(f"devicePlugin.{key}", message, f"did you mean {similar}?", "warning")
    for key in config:
        if key not in _CONFIG_VALUES:
            hint = f"configs are text under {_PATH}.data"
            yield Problem(f"{_PATH}.{key}", "not a value of the chart, ignored", hint, "warning")


def _created(config: Mapping[str, Any]) -> Iterator[Problem]:
    name, create, data = config.get("name"), config.get("create"), config.get("data")
    if create and not name:
        yield Problem(f"{_PATH}.name", "empty with create: true: the chart refuses to render", "name the ConfigMap")
    elif not name and (config.get("default") or data):
        message = f"empty, so no ConfigMap is used and {_PATH}.{'data' if data else 'default'} has no effect"
        yield Problem(f"{_PATH}.name", message, "name the ConfigMap; create: true makes it from data", "warning")
    if create and not data:
        yield Problem(f"{_PATH}.data", "empty with create: true: the chart refuses to render", "add a config")
    elif data and not create:
        message = "has no effect without create: true"
        yield Problem(f"{_PATH}.data", message, f"set {_PATH}.create: true", "warning")


def _default(config: Mapping[str, Any]) -> Iterator[Problem]:
    data, default = config.get("data"), config.get("default")
    if not isinstance(data, Mapping) or not config.get("create") or not default or str(default) in data:
        return
    message = f"{quoted(default)} is no entry of {_PATH}.data: config-manager exits on every node without a label"
    yield Problem(f"{_PATH}.default", message, f"the entries are {', '.join(list(data)[:10])}")


def _mig(values: Mapping[str, Any]) -> Iterator[Problem]:
    mig = values.get("mig")
    strategy = mig.get("strategy") if isinstance(mig, Mapping) else None
    if strategy and strategy not in _MIG_STRATEGIES:
        yield Problem("mig.strategy", f"{quoted(strategy)} is refused", f"one of {', '.join(_MIG_STRATEGIES)}")


def _mps_without_gfd(values: Mapping[str, Any], mps_users: Sequence[str]) -> Iterator[Problem]:
    gfd = values.get("gfd")
    if mps_users and isinstance(gfd, Mapping) and gfd.get("enabled") is False:
        message = f"off, but MPS ({', '.join(mps_users[:3])}) needs GPU Feature Discovery to start its daemon"
        yield Problem("gfd.enabled", message, "leave it on", "hint")
