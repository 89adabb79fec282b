"""The CRDs on the real API server: every CEL rule refuses what it should, and Python refuses the same."""

from typing import Any

import pytest
from tests.support.cluster.api import CRDS, POLICIES, ApiStatusError
from tests.support.fleet import Fleet, policy_object

from gpusharing.api import crd, names
from gpusharing.api.policy import PolicySpec
from gpusharing.api.problems import parse
from gpusharing.core.checks.policy import check_spec

GPU = "nvidia.com/gpu"


def _sharing(replicas: Any = 4, name: str = GPU, strategy: str = "time-slicing") -> dict[str, Any]:
    return {"strategy": strategy, "resources": [{"name": name, "replicas": replicas}]}


# What is refused, by the words of the rule's message; at least one for each rule of the CRD.
REFUSED = {
    "mps with mig": ({"migStrategy": "single", "sharing": _sharing(strategy="mps")}, "MPS cannot be combined with MIG"),
    "mig resource without mixed": ({"sharing": _sharing(name="nvidia.com/mig-1g.10gb")}, "exist only with migStrategy"),
    "selector on gpu.count with single": (
        {"migStrategy": "single", "nodeSelector": {"matchLabels": {"nvidia.com/gpu.count": "8"}}},
        "migStrategy: single changes",
    ),
    "selector on gpu.slices with single": (
        {
            "migStrategy": "single",
            "nodeSelector": {"matchExpressions": [{"key": "nvidia.com/gpu.slices.gi", "operator": "Exists"}]},
        },
        "migStrategy: single changes",
    ),
    "selector on the config label": (
        {"nodeSelector": {"matchLabels": {names.CONFIG_LABEL: "a"}}},
        "the config itself changes",
    ),
    "selector on a mig label": (
        {"nodeSelector": {"matchExpressions": [{"key": "nvidia.com/mig-1g.10gb.count", "operator": "Exists"}]}},
        "the config itself changes",
    ),
    "In without values": (
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "values must be set for the operators In and NotIn",
    ),
    "Exists with values": (
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
        "values must be set for the operators In and NotIn",
    ),
    "a key that is none": ({"nodeSelector": {"matchLabels": {"not a key!": "x"}}}, "not a label key"),
    "too many MPS clients": ({"sharing": _sharing(49, strategy="mps")}, "MPS allows at most 48 replicas"),
    "replicas 1": ({"sharing": _sharing(1)}, "replicas must be from 2 to 2048"),
    "replicas 0": ({"sharing": _sharing(0)}, "replicas must be from 2 to 2048"),
    "replicas -1": ({"sharing": _sharing(-1)}, "replicas must be from 2 to 2048"),
    "replicas 10^9": ({"sharing": _sharing(10**9)}, "replicas must be from 2 to 2048"),
    "a foreign resource": (
        {"sharing": _sharing(name="amd.com/gpu")},
        "not a resource name the device plugin",
    ),
    "a misspelt profile": ({"sharing": _sharing(name="nvidia.com/mig-1g10gb")}, "not a resource name"),
    "spread kept together": ({"allocation": {"policy": "spread", "keepTogether": "preferred"}}, "contradicts policy"),
    "topology alone": ({"allocation": {"policy": "packed", "topology": "preferred"}}, "topology: preferred needs"),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "nothing said": {},
    "mps with 48": {"sharing": _sharing(48, strategy="mps")},
    "replicas 2": {"sharing": _sharing(2)},
    "replicas 2048": {"sharing": _sharing(2048)},
    "mixed": {"migStrategy": "mixed", "sharing": _sharing(7, "nvidia.com/mig-1g.10gb.me")},
    "single": {"migStrategy": "single", "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "A"}}},
    "gpu.count without single": {"nodeSelector": {"matchLabels": {"nvidia.com/gpu.count": "8"}}},
    "expressions": {"nodeSelector": {"matchExpressions": [{"key": "a/b", "operator": "NotIn", "values": ["c"]}]}},
    "spread": {"allocation": {"policy": "spread", "topology": "preferred"}},
    "required": {"allocation": {"policy": "packed", "keepTogether": "required", "topology": "preferred"}},
    "plugin flags": {"plugin": {"deviceListStrategy": ["envvar", "cdi-cri"], "deviceIDStrategy": "index"}},
}

# What the schema refuses before any rule is asked.
MALFORMED = {
    "unknown field": ({"prioritty": 1}, "prioritty"),
    "unknown field of a resource": (
        {"sharing": {"strategy": "mps", "resources": [{"name": GPU, "replicas": 4, "memoryGB": 8}]}},
        "memoryGB",
    ),
    "a string for a number": ({"sharing": _sharing("4")}, "replicas"),
    "a number for a boolean": ({"adoptManual": 1}, "adoptManual"),
    "an unknown word": ({"migStrategy": "double"}, "migStrategy"),
    "no resources": ({"sharing": {"strategy": "mps", "resources": []}}, "resources"),
    "a resource twice": (
        {"sharing": {"strategy": "mps", "resources": [{"name": GPU, "replicas": 2}, {"name": GPU, "replicas": 3}]}},
        "Duplicate value",
    ),
    "an invalid key of an expression": (
        {"nodeSelector": {"matchExpressions": [{"key": "not a key!", "operator": "Exists"}]}},
        "key",
    ),
    "a list for a mapping": ({"nodeSelector": []}, "nodeSelector"),
}


def _create(fleet: Fleet, spec: dict[str, Any]) -> None:
    body = policy_object("probe")
    body["spec"] = {"nodeSelector": {}, **spec}
    fleet.api.create(POLICIES, body, fieldValidation="Strict", dryRun="All")


def _python_says(spec: dict[str, Any]) -> str:
    model, problems = parse(PolicySpec, {"nodeSelector": {}, **spec}, at="spec")
    found = [*problems, *(check_spec(model) if model else [])]
    return "\n".join(str(problem) for problem in found if problem.severity == "error")


@pytest.mark.parametrize("case", REFUSED)
def test_a_rule_refuses_with_one_sentence_and_python_says_the_same(fleet: Fleet, case: str) -> None:
    spec, words = REFUSED[case]
    with pytest.raises(ApiStatusError) as refusal:
        _create(fleet, spec)
    assert refusal.value.status == 422
    assert words in str(refusal.value)
    assert words in _python_says(spec)


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_breaks_no_rule_is_let_through_by_both(fleet: Fleet, case: str) -> None:
    _create(fleet, ACCEPTED[case])
    assert _python_says(ACCEPTED[case]) == ""


@pytest.mark.parametrize("case", MALFORMED)
def test_the_schema_refuses_what_is_malformed_and_python_too(fleet: Fleet, case: str) -> None:
    spec, words = MALFORMED[case]
    with pytest.raises(ApiStatusError) as refusal:
        _create(fleet, spec)
    assert words in str(refusal.value)
    assert _python_says(spec)


def test_every_rule_of_the_crd_has_a_case_that_it_refuses() -> None:
    messages = set(_messages(crd.policy_crd()))
    assert len(messages) >= 11
    cases = [words for _, words in REFUSED.values()]
    assert [message for message in messages if not any(words in message for words in cases)] == []


def _messages(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [rule["message"] for rule in node.get("x-kubernetes-validations", [])]
        return own + [message for value in node.values() for message in _messages(value)]
    return [message for value in node for message in _messages(value)] if isinstance(node, list) else []


def test_kubectl_apply_refuses_an_unknown_field_by_itself(fleet: Fleet) -> None:
    head = "apiVersion: gpusharing.io/v1alpha1\nkind: GpuSharingPolicy\nmetadata: {name: a}\n"
    text = head + "spec: {nodeSelector: {}, x: 1}"
    done = fleet.cluster.kubectl("apply", "-f", "-", stdin=text, check=False)
    assert done.returncode != 0
    assert 'unknown field "spec.x"' in done.stderr


def test_defaults_are_filled_in_and_flags_of_the_plugin_are_not(fleet: Fleet) -> None:
    stored = fleet.policy("a")["spec"]
    assert stored["allocation"] == {"policy": "distributed", "keepTogether": "none", "topology": "none"}
    assert (stored["priority"], stored["mode"]) == (0, "enforce")
    assert (stored["migStrategy"], stored["adoptManual"]) == ("none", False)
    assert "plugin" not in stored
    assert "failRequestsGreaterThanOne" not in stored["sharing"]


def test_a_status_in_an_apply_of_the_spec_is_ignored_and_a_spec_in_one_of_the_status_too(fleet: Fleet) -> None:
    body = {**policy_object("a"), "status": {"configName": "x"}}
    assert fleet.api.create(POLICIES, body)["status"] == {"observedGeneration": 0}  # nobody has looked at it yet
    fleet.api.patch(POLICIES, "a", {"spec": {"priority": 9}, "status": {"configName": "y"}}, subresource="status")
    stored = fleet.api.get(POLICIES, "a")
    assert (stored["spec"]["priority"], stored["status"]["configName"]) == (0, "y")


@pytest.mark.parametrize("words", [["gsp"], ["gpu"], ["gn"], ["gpusharingpolicies"], ["gpunode"]])
def test_kubectl_knows_the_names(fleet: Fleet, words: list[str]) -> None:
    assert fleet.cluster.kubectl("get", *words).returncode == 0


def test_kubectl_explain_shows_a_description_of_every_field(fleet: Fleet) -> None:
    text = fleet.cluster.kubectl("explain", "gsp.spec.allocation.keepTogether").stdout
    assert "never split what one" in " ".join(text.split())
    for definition in (crd.policy_crd(), crd.gpu_node_crd()):
        [version] = definition["spec"]["versions"]
        undescribed = list(_undescribed(version["schema"]["openAPIV3Schema"], ""))
        assert undescribed == []


def _undescribed(schema: dict[str, Any], path: str) -> list[str]:
    found = []
    for name, child in schema.get("properties", {}).items():
        if not child.get("description") and (path, name) != ("", "metadata"):
            found.append(f"{path}.{name}")
        found += _undescribed(child, f"{path}.{name}")
        if isinstance(child.get("items"), dict):
            found += _undescribed(child["items"], f"{path}.{name}[]")
    return found


def test_the_crds_stand_without_a_complaint_of_the_server(fleet: Fleet) -> None:
    for plural in (names.POLICIES, names.GPU_NODES):
        conditions = fleet.api.get(CRDS, f"{plural}.{names.GROUP}")["status"]["conditions"]
        by = {condition["type"]: condition["status"] for condition in conditions}
        assert by["Established"] == "True"
        assert by.get("NonStructuralSchema", "False") == "False"
