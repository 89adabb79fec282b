"""Rules of a policy's spec: those of the CRD's CEL, restated for files and for objects that bypassed the schema.

Each error has the very sentence of its CEL rule (a test holds the two together on a real API server). Warnings are
what the API server takes but an admin should know.
"""

import re
from collections.abc import Iterable, Iterator

from gpusharing.api.meta import LABEL_KEY_PATTERN, VALUES_MESSAGE, LabelSelector
from gpusharing.api.policy import (
    MIG_RESOURCE_MESSAGE,
    MPS_WITH_MIG_MESSAGE,
    SELF_CHANGED_LABELS,
    SELF_CHANGED_MESSAGE,
    SELF_CHANGED_PREFIX,
    SINGLE_CHANGED_LABELS,
    SINGLE_CHANGED_MESSAGE,
    SINGLE_CHANGED_PREFIXES,
    SPREAD_MESSAGE,
    TOPOLOGY_MESSAGE,
    PolicySpec,
)
from gpusharing.api.problems import Problem, quoted
from gpusharing.api.sharing import (
    MAX_MPS_REPLICAS,
    MAX_REPLICAS,
    MIN_REPLICAS,
    MPS_REPLICAS_MESSAGE,
    REPLICAS_MESSAGE,
    RESOURCE_NAME_MESSAGE,
    RESOURCE_NAME_PATTERN,
)


def check_spec(spec: PolicySpec) -> list[Problem]:
    """Return everything that is wrong with the spec, or worth knowing, in order of its fields."""
    return [*_selector(spec), *_mig(spec), *_allocation(spec), *_sharing(spec), *_plugin(spec)]


def _selector(spec: PolicySpec) -> Iterator[Problem]:
    selector, path = spec.node_selector, "spec.nodeSelector"
    keys = _keys(selector)
    for key in selector.match_labels or {}:
        if not re.fullmatch(LABEL_KEY_PATTERN, key):
            yield Problem(
                f"{path}.matchLabels",
                f"{quoted(key)} is not a label key",
                "a key is a name of letters, digits, -, _ and ., with an optional DNS prefix and a slash before it",
            )
    if any(key in SELF_CHANGED_LABELS or key.startswith(SELF_CHANGED_PREFIX) for key in keys):
        yield Problem(path, SELF_CHANGED_MESSAGE)
    if spec.mig_strategy == "single" and any(
        key in SINGLE_CHANGED_LABELS or key.startswith(SINGLE_CHANGED_PREFIXES) for key in keys
    ):
        yield Problem(path, SINGLE_CHANGED_MESSAGE)
    for index, term in enumerate(selector.match_expressions or ()):
        if not term.values_fit:
            yield Problem(f"{path}.matchExpressions[{index}]", VALUES_MESSAGE)


def _keys(selector: LabelSelector) -> list[str]:
    return [*(selector.match_labels or {}), *(term.key for term in selector.match_expressions or ())]


def _mig(spec: PolicySpec) -> Iterator[Problem]:
    if spec.sharing and spec.sharing.strategy == "mps" and spec.mig_strategy != "none":
        yield Problem("spec.migStrategy", MPS_WITH_MIG_MESSAGE)


def _allocation(spec: PolicySpec) -> Iterator[Problem]:
    allocation, path = spec.allocation, "spec.allocation"
    if allocation.policy == "spread" and allocation.keep_together != "none":
        yield Problem(f"{path}.keepTogether", SPREAD_MESSAGE)
    if allocation.topology != "none" and allocation.keep_together == "none" and allocation.policy != "spread":
        yield Problem(f"{path}.topology", TOPOLOGY_MESSAGE)


def _sharing(spec: PolicySpec) -> Iterator[Problem]:
    if spec.sharing is None:
        return
    path = "spec.sharing.resources"
    for index, resource in enumerate(spec.sharing.resources):
        if not re.fullmatch(RESOURCE_NAME_PATTERN, resource.name):
            yield Problem(
                f"{path}[{index}].name",
                f"{quoted(resource.name)} is {RESOURCE_NAME_MESSAGE}",
                "write nvidia.com/gpu, or nvidia.com/mig-<profile> such as nvidia.com/mig-1g.10gb",
            )
        elif resource.name.startswith("nvidia.com/mig-") and spec.mig_strategy != "mixed":
            yield Problem(f"{path}[{index}].name", MIG_RESOURCE_MESSAGE)
        if not MIN_REPLICAS <= resource.replicas <= MAX_REPLICAS:
            yield Problem(f"{path}[{index}].replicas", f"{resource.replicas}: {REPLICAS_MESSAGE}")
        elif spec.sharing.strategy == "mps" and resource.replicas > MAX_MPS_REPLICAS:
            yield Problem(f"{path}[{index}].replicas", f"{resource.replicas}: {MPS_REPLICAS_MESSAGE}")
    for name in _repeated(resource.name for resource in spec.sharing.resources):
        yield Problem(path, f"{quoted(name)} is listed twice", "one entry says how many shares the resource has")


def _plugin(spec: PolicySpec) -> Iterator[Problem]:
    for word in _repeated((spec.plugin and spec.plugin.device_list_strategy) or ()):
        yield Problem("spec.plugin.deviceListStrategy", f"{quoted(word)} is listed twice", "each strategy once")


def _repeated(words: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [word for word in words if word in seen or seen.add(word)]  # type: ignore[func-returns-value]
