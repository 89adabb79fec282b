"""What a valid policy does not do, or does not do as it seems: warnings and hints that no API server gives.

>>> from gpusharing.api.policy import PolicySpec
>>> packed = {"nodeSelector": {}, "allocation": {"policy": "packed"}}
>>> [problem.path for problem in advise(PolicySpec.model_validate(packed), "per-node")]
['spec.allocation']
>>> advise(PolicySpec.model_validate({"nodeSelector": {}, "migStrategy": "single"}), "per-node")
[]
"""

import re
from collections.abc import Iterator
from typing import Literal

from gpusharing.api import names
from gpusharing.api.policy import PolicySpec
from gpusharing.api.problems import Problem, quoted
from gpusharing.api.sharing import Allocation
from gpusharing.core.gfd import model_of
from gpusharing.core.mig import resource_profiles

MPS_REPLICAS_OF_OLD_GPUS = 16
_OLD_MODELS = re.compile(r"\b(V100|P100|P40|P4|M60|K80)\b")


def advise(spec: PolicySpec, layout: Literal["per-node", "shared"]) -> list[Problem]:
    """Return what an admin should know about a spec that is valid, in order of its fields."""
    return [*_selector(spec), *_impossible_profiles(spec), *_allocation(spec, layout), *_sharing(spec), *_envvar(spec)]


def _products(spec: PolicySpec) -> Iterator[tuple[str, str]]:
    """Yield path and value of every product label that the selector asks for."""
    selector, path = spec.node_selector, "spec.nodeSelector"
    if product := (selector.match_labels or {}).get(names.PRODUCT_LABEL):
        yield f"{path}.matchLabels.{names.PRODUCT_LABEL}", product
    for index, term in enumerate(selector.match_expressions or ()):
        if term.key == names.PRODUCT_LABEL and term.operator == "In":
            for place, product in enumerate(term.values or ()):
                yield f"{path}.matchExpressions[{index}].values[{place}]", product


def _models(spec: PolicySpec) -> list[str]:
    """Return the GPU models that the selector names; empty = it does not name them."""
    return [model_of(product) for _, product in _products(spec)]


def _selector(spec: PolicySpec) -> Iterator[Problem]:
    for path, product in _products(spec):
        if (model := model_of(product)) != product:
            message = f"{quoted(product)} is what the label says only while the nodes are shared so already"
            yield Problem(path, message, f"write {model}: it matches the label with and without suffix", "warning")


def _impossible_profiles(spec: PolicySpec) -> Iterator[Problem]:
    for index, resource in enumerate(spec.sharing.resources if spec.sharing else ()):
        profile = resource.name.removeprefix(names.MIG_RESOURCE_PREFIX)
        if profile == resource.name:
            continue
        for model in _models(spec):
            possible = resource_profiles(model)
            if possible is not None and profile not in possible:
                path = f"spec.sharing.resources[{index}].name"
                hint = f"it can make {', '.join(sorted(possible))}"
                yield Problem(path, f"{model} cannot make the MIG profile {profile}", hint, "warning")


def _allocation(spec: PolicySpec, layout: str) -> Iterator[Problem]:
    allocation, path = spec.allocation, "spec.allocation"
    if spec.sharing is None and spec.mig_strategy == "none" and allocation != Allocation():
        message = "without effect: whole, unshared GPUs are always chosen by their links"
        yield Problem(path, message, "add sharing or a migStrategy, or leave allocation out", "warning")
        return
    if layout == "shared":
        yield from _ignored_by_nvidia(allocation)
    if allocation.keep_together == "required":
        message = "required refuses a pod that no GPU can hold; its controller then makes new ones in a loop"
        yield Problem(f"{path}.keepTogether", message, "preferred never splits what one GPU can hold", "hint")
    if allocation.keep_together != "none" and spec.sharing and spec.sharing.fail_requests_greater_than_one:
        message = "failRequestsGreaterThanOne: true refuses the very requests that keepTogether is for"
        yield Problem(f"{path}.keepTogether", message, "set one of the two", "warning")


def _ignored_by_nvidia(allocation: Allocation) -> Iterator[Problem]:
    settings = {
        "policy": allocation.policy == "spread",
        "keepTogether": allocation.keep_together != "none",
        "topology": allocation.topology != "none",
    }
    for field, said in settings.items():
        if said:
            message = "NVIDIA's plugin, which layout shared is for, knows packed and distributed only: ignored there"
            hint = "the policy will be Degraded, reason AllocationUnsupportedByPlugin"
            yield Problem(f"spec.allocation.{field}", message, hint, "warning")


def _sharing(spec: PolicySpec) -> Iterator[Problem]:
    sharing, path = spec.sharing, "spec.sharing"
    if sharing is None:
        return
    if not sharing.rename_by_default:
        message = "nvidia.com/gpu.product of these nodes becomes <model>-SHARED: pods that select it no longer match"
        hint = "policies still do; renameByDefault: true keeps the label"
        yield Problem(f"{path}.renameByDefault", message, hint, "hint")
    if sharing.strategy == "time-slicing":
        message = "shares take turns: no memory isolation, and a container with several shares gets no more time"
        yield Problem(f"{path}.strategy", message, "MIG isolates; MPS limits memory", "hint")
        return
    if sharing.fail_requests_greater_than_one is None:
        message = "absent: with MPS a container that asks for two shares is refused"
        yield Problem(f"{path}.failRequestsGreaterThanOne", message, "false allows it, with the limits of one", "hint")
    old = [model for model in _models(spec) if _OLD_MODELS.search(model)]
    for index, resource in enumerate(sharing.resources):
        if resource.replicas > MPS_REPLICAS_OF_OLD_GPUS:
            message = f"{resource.replicas}: GPUs of compute capability below 7.5, such as V100, allow MPS 16"
            severity: Literal["warning", "hint"] = "warning" if old else "hint"
            yield Problem(f"{path}.resources[{index}].replicas", message, severity=severity)


def _envvar(spec: PolicySpec) -> Iterator[Problem]:
    strategies = (spec.plugin and spec.plugin.device_list_strategy) or ["envvar"]
    if spec.mig_strategy == "mixed" and strategies == ["envvar"]:
        message = "with envvar alone a container that asks for two resources, such as two profiles, sees one of them"
        yield Problem("spec.plugin.deviceListStrategy", message, "volume-mounts or CDI have no such limit", "hint")
