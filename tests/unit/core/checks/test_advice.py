"""What a valid policy does not do as it seems."""

import pytest

from gpusharing.api.policy import PolicySpec
from gpusharing.core.checks.advice import advise
from gpusharing.core.checks.policy import check_spec

MPS = {"strategy": "mps", "renameByDefault": True, "failRequestsGreaterThanOne": True}
SLICES = {"strategy": "time-slicing", "renameByDefault": True}


def resources(name: str = "nvidia.com/gpu", replicas: int = 4) -> dict[str, object]:
    return {"resources": [{"name": name, "replicas": replicas}]}


def product(*models: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": list(models)}]}


ADVICE = {
    "allocation of whole GPUs": ({"allocation": {"policy": "packed"}}, "per-node", "warning", "spec.allocation"),
    "requests that keepTogether is for": (
        {
            "allocation": {"keepTogether": "preferred"},
            "sharing": {**SLICES, **resources(), "failRequestsGreaterThanOne": True},
        },
        "per-node",
        "warning",
        "spec.allocation.keepTogether",
    ),
    "a loop of refused pods": (
        {"allocation": {"keepTogether": "required"}, "sharing": {**SLICES, **resources()}},
        "per-node",
        "hint",
        "spec.allocation.keepTogether",
    ),
    "spread by NVIDIA's plugin": (
        {"allocation": {"policy": "spread"}, "sharing": {**SLICES, **resources()}},
        "shared",
        "warning",
        "spec.allocation.policy",
    ),
    "keepTogether by NVIDIA's plugin": (
        {"allocation": {"keepTogether": "preferred"}, "sharing": {**SLICES, **resources()}},
        "shared",
        "warning",
        "spec.allocation.keepTogether",
    ),
    "topology by NVIDIA's plugin": (
        {
            "allocation": {"keepTogether": "preferred", "topology": "preferred"},
            "sharing": {**SLICES, **resources()},
        },
        "shared",
        "warning",
        "spec.allocation.topology",
    ),
    "a suffix in the selector": (
        {"nodeSelector": product("NVIDIA-A100-SXM4-40GB-SHARED")},
        "per-node",
        "warning",
        "spec.nodeSelector.matchExpressions[0].values[0]",
    ),
    "a suffix in a label": (
        {"nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}}},
        "per-node",
        "warning",
        "spec.nodeSelector.matchLabels.nvidia.com/gpu.product",
    ),
    "a profile that the model cannot make": (
        {
            "nodeSelector": product("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "Some-New-Model"),
            "migStrategy": "mixed",
            "sharing": {**SLICES, **resources("nvidia.com/mig-1g.5gb")},
        },
        "per-node",
        "warning",
        "spec.sharing.resources[0].name",
    ),
    "pods that select the product": (
        {"sharing": {**MPS, **resources(), "renameByDefault": False}},
        "per-node",
        "hint",
        "spec.sharing.renameByDefault",
    ),
    "time and memory": ({"sharing": {**SLICES, **resources()}}, "per-node", "hint", "spec.sharing.strategy"),
    "MPS refuses two shares": (
        {"sharing": {"strategy": "mps", "renameByDefault": True, **resources()}},
        "per-node",
        "hint",
        "spec.sharing.failRequestsGreaterThanOne",
    ),
    "MPS on unknown cards": (
        {"sharing": {**MPS, **resources(replicas=17)}},
        "per-node",
        "hint",
        "spec.sharing.resources[0].replicas",
    ),
    "MPS on old cards": (
        {"nodeSelector": product("Tesla-V100-SXM2-16GB"), "sharing": {**MPS, **resources(replicas=17)}},
        "per-node",
        "warning",
        "spec.sharing.resources[0].replicas",
    ),
    "two resources in one container": ({"migStrategy": "mixed"}, "per-node", "hint", "spec.plugin.deviceListStrategy"),
}


@pytest.mark.parametrize(("fields", "layout", "severity", "path"), ADVICE.values(), ids=ADVICE)
def test_advice_is_given_where_it_belongs(fields: dict[str, object], layout: str, severity: str, path: str) -> None:
    spec = PolicySpec.model_validate({"nodeSelector": {}, **fields})
    assert check_spec(spec) == [], "advice is about valid policies"
    assert (severity, path) in {(problem.severity, problem.path) for problem in advise(spec, layout)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"migStrategy": "single", "allocation": {"policy": "packed"}},
        {"sharing": {**MPS, **resources(replicas=16)}, "allocation": {"policy": "packed"}},
        {"nodeSelector": product("NVIDIA-A100-SXM4-40GB")},
        {"migStrategy": "mixed", "plugin": {"deviceListStrategy": ["volume-mounts"]}},
    ],
    ids=str,
)
def test_a_policy_that_does_what_it_says_is_left_alone(fields: dict[str, object]) -> None:
    assert advise(PolicySpec.model_validate({"nodeSelector": {}, **fields}), "per-node") == []


def test_packed_is_nvidias_own_too() -> None:
    spec = PolicySpec.model_validate(
        {"nodeSelector": {}, "allocation": {"policy": "packed"}, "sharing": {**SLICES, **resources()}}
    )
    assert [problem.severity for problem in advise(spec, "shared")] == ["hint"]
