"""Every rule of the CRD's CEL, restated for files: the sentence, the place, and what it must let through."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import make_spec
from tests.support.strategies import specs

from gpusharing.api import policy as api
from gpusharing.api import sharing
from gpusharing.api.crd import policy_crd
from gpusharing.core.checks.policy import check_spec


def shared(*resources: tuple[str, int], strategy: str = "time-slicing") -> dict[str, Any]:
    return {"strategy": strategy, "resources": [{"name": name, "replicas": count} for name, count in resources]}


GPU = "nvidia.com/gpu"
REFUSED: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "no replicas at all": (
        {"sharing": shared((GPU, 0))},
        [("spec.sharing.resources[0].replicas", f"0: {sharing.REPLICAS_MESSAGE}")],
    ),
    "one replica": (
        {"sharing": shared((GPU, 1))},
        [("spec.sharing.resources[0].replicas", f"1: {sharing.REPLICAS_MESSAGE}")],
    ),
    "fewer than none": (
        {"sharing": shared((GPU, -1))},
        [("spec.sharing.resources[0].replicas", f"-1: {sharing.REPLICAS_MESSAGE}")],
    ),
    "too many replicas": (
        {"sharing": shared((GPU, 10**9))},
        [("spec.sharing.resources[0].replicas", f"1000000000: {sharing.REPLICAS_MESSAGE}")],
    ),
    "more replicas than MPS allows": (
        {"sharing": shared((GPU, 49), strategy="mps")},
        [("spec.sharing.resources[0].replicas", f"49: {sharing.MPS_REPLICAS_MESSAGE}")],
    ),
    "MPS with MIG mixed": (
        {"migStrategy": "mixed", "sharing": shared((GPU, 4), strategy="mps")},
        [("spec.migStrategy", api.MPS_WITH_MIG_MESSAGE)],
    ),
    "MPS with MIG single": (
        {"migStrategy": "single", "sharing": shared((GPU, 4), strategy="mps")},
        [("spec.migStrategy", api.MPS_WITH_MIG_MESSAGE)],
    ),
    "a MIG resource without MIG": (
        {"sharing": shared(("nvidia.com/mig-1g.10gb", 4))},
        [("spec.sharing.resources[0].name", api.MIG_RESOURCE_MESSAGE)],
    ),
    "a MIG resource under single": (
        {"migStrategy": "single", "sharing": shared(("nvidia.com/mig-1g.10gb", 4))},
        [("spec.sharing.resources[0].name", api.MIG_RESOURCE_MESSAGE)],
    ),
    "a resource listed twice": (
        {"sharing": shared((GPU, 4), (GPU, 8))},
        [("spec.sharing.resources", '"nvidia.com/gpu" is listed twice')],
    ),
    "a device list strategy listed twice": (
        {"plugin": {"deviceListStrategy": ["envvar", "cdi-cri", "envvar"]}},
        [("spec.plugin.deviceListStrategy", '"envvar" is listed twice')],
    ),
    "spread that keeps together": (
        {"allocation": {"policy": "spread", "keepTogether": "preferred"}},
        [("spec.allocation.keepTogether", api.SPREAD_MESSAGE)],
    ),
    "topology of what is not kept together": (
        {"allocation": {"policy": "packed", "topology": "preferred"}},
        [("spec.allocation.topology", api.TOPOLOGY_MESSAGE)],
    ),
    "a selector on what the config changes": (
        {"nodeSelector": {"matchLabels": {"nvidia.com/gpu.replicas": "4"}}},
        [("spec.nodeSelector", api.SELF_CHANGED_MESSAGE)],
    ),
    "a selector on a MIG label": (
        {"nodeSelector": {"matchExpressions": [{"key": "nvidia.com/mig-1g.10gb.count", "operator": "Exists"}]}},
        [("spec.nodeSelector", api.SELF_CHANGED_MESSAGE)],
    ),
    "In without values": (
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        [("spec.nodeSelector.matchExpressions[0]", api.VALUES_MESSAGE)],
    ),
    "In with no values": (
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": []}]}},
        [("spec.nodeSelector.matchExpressions[0]", api.VALUES_MESSAGE)],
    ),
    "Exists with values": (
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
        [("spec.nodeSelector.matchExpressions[0]", api.VALUES_MESSAGE)],
    ),
    "a selector with an invalid key": (
        {"nodeSelector": {"matchLabels": {"a b": "c"}}},
        [("spec.nodeSelector.matchLabels", '"a b" is not a label key')],
    ),
    "a selector with a final newline": (
        {"nodeSelector": {"matchLabels": {"a\n": "c"}}},
        [("spec.nodeSelector.matchLabels", '"a\\n" is not a label key')],
    ),
    "everything at once, in the order of the fields": (
        {
            "nodeSelector": {"matchLabels": {"nvidia.com/mig.strategy": "mixed"}},
            "migStrategy": "single",
            "allocation": {"policy": "spread", "keepTogether": "required"},
            "sharing": shared(("gpu", 1), (GPU, 99), (GPU, 4), strategy="mps"),
            "plugin": {"deviceListStrategy": ["envvar", "envvar"]},
        },
        [
            ("spec.nodeSelector", api.SELF_CHANGED_MESSAGE),
            ("spec.migStrategy", api.MPS_WITH_MIG_MESSAGE),
            ("spec.allocation.keepTogether", api.SPREAD_MESSAGE),
            ("spec.sharing.resources[0].name", f'"gpu" is {sharing.RESOURCE_NAME_MESSAGE}'),
            ("spec.sharing.resources[0].replicas", f"1: {sharing.REPLICAS_MESSAGE}"),
            ("spec.sharing.resources[1].replicas", f"99: {sharing.MPS_REPLICAS_MESSAGE}"),
            ("spec.sharing.resources", '"nvidia.com/gpu" is listed twice'),
            ("spec.plugin.deviceListStrategy", '"envvar" is listed twice'),
        ],
    ),
}


@pytest.mark.parametrize(("spec", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_is_refused_with_its_place_and_sentence(spec: dict[str, Any], want: list[tuple[str, str]]) -> None:
    problems = check_spec(make_spec(**spec))
    assert [(problem.path, problem.message) for problem in problems] == want
    assert {problem.severity for problem in problems} == {"error"}


ACCEPTED: dict[str, dict[str, Any]] = {
    "two replicas": {"sharing": shared((GPU, 2))},
    "the most replicas": {"sharing": shared((GPU, 2048))},
    "the most replicas of MPS": {"sharing": shared((GPU, 48), strategy="mps")},
    "MIG and whole GPUs side by side": {
        "migStrategy": "mixed",
        "sharing": shared((GPU, 4), ("nvidia.com/mig-1g.10gb", 4)),
    },
    "spread over linked GPUs": {"allocation": {"policy": "spread", "topology": "preferred"}},
    "packed over linked GPUs": {
        "allocation": {"policy": "packed", "keepTogether": "required", "topology": "preferred"}
    },
    "a selector on the count without single": {"nodeSelector": {"matchLabels": {"nvidia.com/gpu.count": "8"}}},
    "a selector on mig.capable, which no config changes": {
        "nodeSelector": {"matchLabels": {"nvidia.com/mig.capable": "true"}}
    },
    "a selector on the product": {"nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-L4"}}},
    "Exists and DoesNotExist": {
        "nodeSelector": {
            "matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]
        }
    },
}


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_is_let_through(spec: dict[str, Any]) -> None:
    assert check_spec(make_spec(**spec)) == []


SELF_CHANGED = [
    "nvidia.com/device-plugin.config",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.strategy",
    "nvidia.com/mig-1g.10gb.product",
    "nvidia.com/mps.capable",
]
CHANGED_BY_SINGLE = [
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.multiprocessors",
    "nvidia.com/gpu.slices.gi",
    "nvidia.com/gpu.engines.copy",
]


@pytest.mark.parametrize("key", SELF_CHANGED)
@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_a_label_that_the_config_changes_is_refused_under_every_strategy(key: str, strategy: str) -> None:
    spec = make_spec(nodeSelector={"matchLabels": {key: "x"}}, migStrategy=strategy)
    assert [problem.message for problem in check_spec(spec)] == [api.SELF_CHANGED_MESSAGE]


@pytest.mark.parametrize("key", CHANGED_BY_SINGLE)
@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_a_label_that_single_changes_is_refused_under_single_alone(key: str, strategy: str) -> None:
    expression = {"key": key, "operator": "Exists"}
    spec = make_spec(nodeSelector={"matchExpressions": [expression]}, migStrategy=strategy)
    want = [api.SINGLE_CHANGED_MESSAGE] if strategy == "single" else []
    assert [problem.message for problem in check_spec(spec)] == want


NAMES = {
    "nvidia.com/gpu": True,
    "nvidia.com/mig-1g.5gb": True,
    "nvidia.com/mig-1g.5gb.me": True,
    "nvidia.com/mig-1g.24gb.me.all": True,
    "nvidia.com/mig-1g.24gb.gfx": True,
    "nvidia.com/mig-1g.24gb-me": True,
    "nvidia.com/mig-7g.141gb": True,
    "gpu": False,
    "nvidia.com/gpu.shared": False,
    "nvidia.com/GPU": False,
    "nvidia.com/mig-1g.5gb+me": False,
    "nvidia.com/mig-8g.80gb": False,
    "nvidia.com/mig-1c.3g.20gb": False,
    "nvidia.com/mig-1g.05gb": False,
    "amd.com/gpu": False,
    "nvidia.com/gpu\n": False,
    "nvidiaXcom/gpu": False,
}


@pytest.mark.parametrize(("name", "valid"), NAMES.items(), ids=[repr(name) for name in NAMES])
def test_a_resource_is_named_as_the_plugin_advertises_it(name: str, valid: bool) -> None:
    problems = check_spec(make_spec(migStrategy="mixed", sharing=shared((name, 2))))
    assert (problems == []) is valid
    assert all("write nvidia.com/gpu" in problem.hint for problem in problems)


@given(specs)
def test_what_the_rules_let_through_stays_let_through(spec: dict[str, Any]) -> None:
    assert check_spec(make_spec(**spec)) == []


@given(st.integers(-10, 3000))
def test_replicas_are_let_through_exactly_from_2_to_2048(replicas: int) -> None:
    assert (check_spec(make_spec(sharing=shared((GPU, replicas)))) == []) == (2 <= replicas <= 2048)


def test_the_sentence_of_every_cel_rule_that_files_can_break_is_said_here_too() -> None:
    def messages(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {rule["message"] for rule in node.get("x-kubernetes-validations", ())}
            return own.union(*map(messages, node.values()))
        return set().union(*map(messages, node)) if isinstance(node, list) else set()

    said = {problem[1] for _, problems in REFUSED.values() for problem in problems}
    said |= {api.SINGLE_CHANGED_MESSAGE}
    for message in messages(policy_crd()):
        assert any(re.search(re.escape(message) + "$", sentence) for sentence in said), message
