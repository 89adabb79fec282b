"""Values of the device plugin's Helm chart, v0.20.0: `config.map` holds the configs.

>>> check({"config": {"map": {"a": "version: v1"}, "default": "a"}})
[]
>>> [str(problem) for problem in check({"config": {"map": {"a": "version: v1"}, "default": "b"}})]
['config.default: "b" is no entry of config.map: config-manager exits on every node without a label. \
hint: the entries are a']
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gpusharing.api.problems import Problem, nearest, quoted
from gpusharing.core.documents import Embedded, embedded
from gpusharing.core.pluginenv import Environment

UNKNOWN_MAX = 100
_VALUES = (
    *("affinity", "allowDefaultNamespace", "cdi", "compatWithCPUManager", "config", "deviceDiscoveryStrategy"),
    *("deviceIDStrategy", "deviceListStrategy", "devicePlugin", "failOnInitError", "fullnameOverride"),
    *("gdrcopyEnabled", "gdsEnabled", "gfd", "global", "image", "imagePullSecrets", "migStrategy", "mofedEnabled"),
    *("mps", "nameOverride", "namespaceOverride", "nfd", "nodeSelector", "nvidiaDevRoot", "nvidiaDriverRoot"),
    *("podAnnotations", "podSecurityContext", "priorityClassName", "resources", "runtimeClassName"),
    *("securityContext", "selectorLabelsOverride", "tolerations", "updateStrategy"),
)
_CONFIG_VALUES = ("name", "map", "default", "fallbackStrategies")
# Values that become environment variables, and with them hide the key of that name in every config. A value of
# another type is dropped by the chart without a word.
_TO_ENVIRONMENT: dict[str, tuple[str, type]] = {
    "migStrategy": ("migStrategy", str),
    "failOnInitError": ("failOnInitError", bool),
    "compatWithCPUManager": ("plugin.passDeviceSpecs", bool),
    "deviceListStrategy": ("plugin.deviceListStrategy", str),
    "deviceIDStrategy": ("plugin.deviceIDStrategy", str),
    "nvidiaDriverRoot": ("nvidiaDriverRoot", str),
    "nvidiaDevRoot": ("nvidiaDevRoot", str),
    "gdrcopyEnabled": ("gdrcopyEnabled", bool),
    "gdsEnabled": ("gdsEnabled", bool),
    "mofedEnabled": ("mofedEnabled", bool),
    "deviceDiscoveryStrategy": ("deviceDiscoveryStrategy", str),
}


def configs(values: Mapping[str, Any]) -> list[Embedded]:
    """Return the configs of `config.map`."""
    return embedded(values["config"].get("map"), "config.map")[0]


def environment(values: Mapping[str, Any]) -> Environment:
    """Return what the chart sets in the plugin's environment with these values."""
    said = {key: values[name] for name, (key, kind) in _TO_ENVIRONMENT.items() if isinstance(values.get(name), kind)}
    mps = values.get("mps")
    said["mpsRoot"] = mps.get("root") if isinstance(mps, Mapping) else None
    return Environment(said, "the chart")


def check(values: Mapping[str, Any], mps_users: Sequence[str] = ()) -> list[Problem]:
    """Return what is wrong with the values themselves. `mps_users`: the configs that ask for MPS."""
    config = values["config"]
    return [
        *islice(_unknown(values), UNKNOWN_MAX),
        *_dropped(values),
        *islice(_unknown(config, "config.", _CONFIG_VALUES), UNKNOWN_MAX),
        *_source(config),
        *embedded(config.get("map"), "config.map")[1],
        *_default(config),
        *_mps_without_gfd(values, mps_users),
    ]


def _unknown(values: Mapping[str, Any], prefix: str = "", known: tuple[str, ...] = _VALUES) -> Iterator[Problem]:
    for key in values:
        if f"{prefix}{key}" == "namespace":
            yield Problem(key, "the chart refuses it", "use --namespace with --create-namespace")
        elif key not in known:
            similar = nearest(key, known)
            hint = f"did you mean {prefix}{similar}?" if similar else ""
            yield Problem(f"{prefix}{key}", "not a value of the chart, ignored", hint, "warning")


def _dropped(values: Mapping[str, Any]) -> Iterator[Problem]:
    for name, (_, kind) in _TO_ENVIRONMENT.items():
        value = values.get(name)
        if value is not None and not isinstance(value, kind):
            wanted = "a boolean without quotes" if kind is bool else "a string"
            yield Problem(name, f"{quoted(value)} is dropped by the chart without a word", f"write {wanted}", "warning")


def _source(config: Mapping[str, Any]) -> Iterator[Problem]:
    if config.get("name") and config.get("map"):
        yield Problem("config", "both name and map: the chart refuses to render", "leave one of them out")


def _default(config: Mapping[str, Any]) -> Iterator[Problem]:
    entries, default = config.get("map"), config.get("default")
    if not isinstance(entries, Mapping) or not entries:
        return
    listed = f"the entries are {', '.join(list(entries)[:10])}"
    if isinstance(default, str) and "\n" in default:
        message = "holds a config text, but it is the name of an entry of config.map: config-manager exits"
        yield Problem("config.default", message, listed)
    elif default and str(default) not in entries:
        message = f"{quoted(default)} is no entry of config.map: config-manager exits on every node without a label"
        yield Problem("config.default", message, listed)
    elif not default and not _falls_back(entries, config.get("fallbackStrategies", ["named", "single"])):
        yield Problem("config.default", "missing: with several entries the chart refuses to render", listed)


def _falls_back(entries: Mapping[str, Any], strategies: Any) -> bool:
    """Whether one of the fallback strategies finds a config."""
    named = strategies if isinstance(strategies, list) else []
    return "empty" in named or ("named" in named and "default" in entries) or ("single" in named and len(entries) == 1)


def _mps_without_gfd(values: Mapping[str, Any], mps_users: Sequence[str]) -> Iterator[Problem]:
    gfd = values.get("gfd")
    enabled = isinstance(gfd, Mapping) and gfd.get("enabled") is True
    if mps_users and not enabled:
        message = f"off, but MPS ({', '.join(mps_users[:3])}) needs GPU Feature Discovery to start its daemon"
        yield Problem("gfd.enabled", message, "set gfd.enabled: true unless it runs already", "hint")
