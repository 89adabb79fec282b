"""What NVIDIA's device plugin v0.20.0 makes of a config: all that it ignores, dies on or silently changes.

Checked against the plugin's own loader: what is an error here ends that process, a warning is written there without
effect, a hint is worth knowing.

>>> [str(problem) for problem in check({"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 1}]}}})]
['sharing.timeSlicing.resources[0].name: read as nvidia.com/gpu. hint: write nvidia.com/gpu', \
'sharing.timeSlicing.resources[0].replicas: 1, must be at least 2, the plugin exits. hint: to not share it leave it out']
>>> check({"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}})
[]
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusharing.api.problems import Problem, quoted
from gpusharing.core.checks.pluginconfig.keys import ignored, written
from gpusharing.core.checks.pluginconfig.sharing import uses_mps, wrong_sharing
from gpusharing.core.checks.pluginconfig.values import kind_of, wrong_values


@dataclass(frozen=True, slots=True)
class Environment:
    """Values that the deployment sets in the plugin's environment; each hides the config's own (contract 2)."""

    # Key of the config below `flags`, such as plugin.deviceIDStrategy → value; None = set, to something unknown.
    values: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""


def check(config: Any, environment: Environment | None = None) -> list[Problem]:
    """Return everything that is wrong with a config, or worth knowing."""
    if config is None:  # an empty file: every default
        return []
    if not isinstance(config, Mapping):
        return [Problem("", f"{kind_of(config)} where a mapping is expected, the plugin exits", _SHAPE)]
    environment = environment or Environment()
    strategy = _mig_strategy(config, environment)
    key = written(config, "sharing")
    return [
        *ignored(config),
        *wrong_values(config),
        *wrong_sharing(config.get(key), key, strategy),
        *_mps_with_mig(config, strategy),
        *_hidden(config, environment),
    ]


def check_keys(config: Any) -> list[Problem]:
    """Return the keys that are ignored: all that can be said of a config that could not be read to its end."""
    return list(ignored(config))


_SHAPE = "a config begins with version: v1; an unshared one is just that"


def flag(config: Any, key: str) -> tuple[str, Any]:
    """Return path as written, and value, of a key below `flags` such as `plugin.deviceIDStrategy`; None = absent."""
    path, here = written(config, "flags"), config.get(written(config, "flags"))
    for part in key.split("."):
        name = written(here, part)
        path, here = f"{path}.{name}", here.get(name) if isinstance(here, Mapping) else None
    return path, here


def _mig_strategy(config: Mapping[str, Any], environment: Environment) -> str:
    _, value = flag(config, "migStrategy")
    return str(environment.values.get("migStrategy") or value or "none")


def _mps_with_mig(config: Mapping[str, Any], strategy: str) -> Iterator[Problem]:
    if not uses_mps(config.get(written(config, "sharing"))):
        return
    path, _ = flag(config, "migStrategy")
    if strategy == "mixed":
        yield Problem(path, "MPS with migStrategy: mixed, the plugin exits", "set none, or share by timeSlicing")
    elif strategy == "single":
        message = "MPS with migStrategy: single: the plugin exits on every node where a GPU has MIG enabled"
        yield Problem(path, message, "set none, or share by timeSlicing", "warning")


def _hidden(config: Mapping[str, Any], environment: Environment) -> Iterator[Problem]:
    for key, value in environment.values.items():
        path, said = flag(config, key)
        if said is None:
            continue
        message = f"hidden: {environment.by} sets {_variable(key)} in the environment, and that wins"
        if value is None or said == value or {said, value} == {"none", "single"}:
            yield Problem(path, message, severity="hint")
        else:
            yield Problem(path, f"{message}: {quoted(value)}", "set it there", "warning")


def _variable(key: str) -> str:
    return {
        "migStrategy": "MIG_STRATEGY",
        "failOnInitError": "FAIL_ON_INIT_ERROR",
        "mpsRoot": "MPS_ROOT",
        "nvidiaDriverRoot": "NVIDIA_DRIVER_ROOT",
        "nvidiaDevRoot": "NVIDIA_DEV_ROOT",
        "gdrcopyEnabled": "GDRCOPY_ENABLED",
        "gdsEnabled": "GDS_ENABLED",
        "mofedEnabled": "MOFED_ENABLED",
        "deviceDiscoveryStrategy": "DEVICE_DISCOVERY_STRATEGY",
        "plugin.passDeviceSpecs": "PASS_DEVICE_SPECS",
        "plugin.deviceListStrategy": "DEVICE_LIST_STRATEGY",
        "plugin.deviceIDStrategy": "DEVICE_ID_STRATEGY",
    }[key]
