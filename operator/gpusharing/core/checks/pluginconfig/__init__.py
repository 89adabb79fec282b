"""What NVIDIA's device plugin v0.20.0 makes of a config: all that it ignores, dies on or silently changes.

Checked against the plugin's own loader: what is an error here ends that process, a warning is written there without
effect, a hint is worth knowing.

>>> slicing = {"resources": [{"name": "nvidia.com/gpu", "replicas": 1}]}
>>> [str(problem) for problem in check({"sharing": {"timeSlicing": slicing}})]
['sharing.timeSlicing.resources[0].replicas: 1, must be at least 2, the plugin exits. \
hint: to not share it leave it out']
>>> check({"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}})
[]
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from gpusharing.api.problems import Problem, quoted
from gpusharing.core.checks.pluginconfig.keys import ignored, written
from gpusharing.core.checks.pluginconfig.sharing import wrong_sharing
from gpusharing.core.checks.pluginconfig.values import kind_of, wrong_values
from gpusharing.core.pluginenv import VARIABLES, Environment

IGNORED_MAX = 100


def check(config: Any, environment: Environment | None = None) -> list[Problem]:
    """Return everything that is wrong with a config, or worth knowing. No environment = we do not know which."""
    if not isinstance(config, Mapping):
        return check_content(config)
    hidden = _hidden(config, environment) if environment else _maybe_hidden(config)
    return [*check_content(config, _mig_strategy(config, environment)), *hidden]


def check_content(config: Any, mig_strategy: str = "") -> list[Problem]:
    """Return what is wrong in a config itself. `mig_strategy` is the one in force; empty = the config's."""
    if config is None:  # an empty file: every default
        return []
    if not isinstance(config, Mapping):
        return [Problem("", f"{kind_of(config)} where a mapping is expected, the plugin exits", _SHAPE)]
    strategy = mig_strategy or _mig_strategy(config, None)
    sharing = written(config, "sharing")
    return [
        *check_keys(config),
        *wrong_values(config),
        *wrong_sharing(config.get(sharing), sharing, strategy),
        *_mps_with_mig(config, strategy),
    ]


def check_keys(config: Any) -> list[Problem]:
    """Return the keys that are ignored: all that can be said of a config that could not be read to its end."""
    return list(islice(ignored(config), IGNORED_MAX))


def uses_mps(config: Any) -> bool:
    """Whether the config asks for MPS."""
    sharing = config.get(written(config, "sharing")) if isinstance(config, Mapping) else None
    return isinstance(sharing, Mapping) and sharing.get(written(sharing, "mps")) is not None


_SHAPE = "a config begins with version: v1; an unshared one is just that"


def _flag(config: Mapping[str, Any], key: str) -> tuple[str, Any]:
    """Return path as written, and value, of a key below `flags` such as `plugin.deviceIDStrategy`; None = absent."""
    path = written(config, "flags")
    here = config.get(path)
    for part in key.split("."):
        name = written(here, part)
        path, here = f"{path}.{name}", here.get(name) if isinstance(here, Mapping) else None
    return path, here


def _mig_strategy(config: Mapping[str, Any], environment: Environment | None) -> str:
    """Return the MIG strategy that will be in force."""
    _, value = _flag(config, "migStrategy")
    return str((environment and environment.values.get("migStrategy")) or value or "none")


def _mps_with_mig(config: Mapping[str, Any], strategy: str) -> Iterator[Problem]:
    if not uses_mps(config):
        return
    path, _ = _flag(config, "migStrategy")
    if strategy == "mixed":
        yield Problem(path, "MPS with migStrategy: mixed, the plugin exits", "set none, or share by timeSlicing")
    elif strategy == "single":
        message = "MPS with migStrategy: single: the plugin exits on every node where a GPU has MIG enabled"
        yield Problem(path, message, "set none, or share by timeSlicing", "hint")


def _hidden(config: Mapping[str, Any], environment: Environment) -> Iterator[Problem]:
    for key, value in environment.values.items():
        path, said = _flag(config, key)
        if said is None:
            continue
        message = f"hidden: {environment.by} sets {VARIABLES[key]} in the environment, and that wins"
        agrees = value is None or said == value or {str(said), str(value)} == {"none", "single"}
        if agrees:
            yield Problem(path, message, severity="hint")
        else:
            yield Problem(path, f"{message}: {quoted(value)}", "set it there", "warning")


def _maybe_hidden(config: Mapping[str, Any]) -> Iterator[Problem]:
    path, said = _flag(config, "migStrategy")
    if said in ("single", "mixed"):
        message = "the GPU operator sets MIG_STRATEGY in the environment, which hides this key"
        yield Problem(path, message, "with it, leave mig.strategy of its values empty", "hint")
