"""The CRDs on a real API server: what they refuse, with which words, what they fill in, what kubectl shows."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.cluster.api import CRDS, GPU_NODES, POLICIES, ApiStatusError, Object
from tests.support.eventually import eventually
from tests.support.fleet import Fleet

from gpusharing.api import crd, meta, names, policy, sharing
from gpusharing.api.policy import PolicyObject
from gpusharing.api.problems import parse
from gpusharing.core.checks.policy import check_spec

SPECS = [crd.policy_crd(), crd.gpu_node_crd(), crd.placement_crd()]
KINDS = pytest.mark.parametrize("definition", SPECS, ids=lambda definition: definition["spec"]["names"]["kind"])
GPU = {"name": "nvidia.com/gpu", "replicas": 4}
MIG = {"name": "nvidia.com/mig-1g.10gb", "replicas": 4}


def shared(*resources: Object, strategy: str = "time-slicing", **fields: Any) -> Object:
    return {"strategy": strategy, "resources": list(resources), **fields}


def labels(*keys: str) -> Object:
    return {"matchLabels": dict.fromkeys(keys, "x")}


def terms(*terms_: Object) -> Object:
    return {"matchExpressions": list(terms_)}


@dataclass(frozen=True)
class Rule:
    """One CEL rule: where the server points to, and specs (beside a selector of all nodes) on either side of it."""

    at: str
    refused: dict[str, Object]
    allowed: dict[str, Object] = field(default_factory=dict)


# By message. A rule of these CRDs that has no entry here fails a test; placements have one in test_placement_crd.py.
RULES = {
    policy.MPS_WITH_MIG_MESSAGE: Rule(
        at="spec.migStrategy",
        refused={
            "single": {"migStrategy": "single", "sharing": shared(GPU, strategy="mps")},
            "mixed": {"migStrategy": "mixed", "sharing": shared(GPU, strategy="mps")},
        },
        allowed={
            "without-mig": {"sharing": shared(GPU, strategy="mps")},
            "time-slicing": {"migStrategy": "mixed", "sharing": shared(GPU, MIG)},
            "no-sharing": {"migStrategy": "single"},
        },
    ),
    policy.MIG_RESOURCE_MESSAGE: Rule(
        at="spec.sharing.resources",
        refused={
            "none": {"sharing": shared(MIG)},
            "single": {"migStrategy": "single", "sharing": shared(MIG)},
            "second": {"sharing": shared(GPU, MIG)},
        },
        allowed={"mixed": {"migStrategy": "mixed", "sharing": shared(MIG)}},
    ),
    policy.SINGLE_CHANGED_MESSAGE: Rule(
        at="spec.nodeSelector",
        refused={
            key: {"migStrategy": "single", "nodeSelector": selector}
            for key, selector in {
                "count": labels("nvidia.com/gpu.count"),
                "memory": labels("team", "nvidia.com/gpu.memory"),
                "multiprocessors": labels("nvidia.com/gpu.multiprocessors"),
                "slices": labels("nvidia.com/gpu.slices.gi"),
                "engines": terms({"key": "nvidia.com/gpu.engines.copy", "operator": "Exists"}),
                "count-term": terms({"key": "nvidia.com/gpu.count", "operator": "In", "values": ["8"]}),
            }.items()
        },
        allowed={
            "mixed": {"migStrategy": "mixed", "nodeSelector": labels("nvidia.com/gpu.count")},
            "product": {"migStrategy": "single", "nodeSelector": labels("nvidia.com/gpu.product")},
        },
    ),
    policy.SELF_CHANGED_MESSAGE: Rule(
        at="spec.nodeSelector",
        refused={
            **{key: {"nodeSelector": labels(key)} for key in policy.SELF_CHANGED_LABELS},
            "profile": {"nodeSelector": labels("nvidia.com/mig-1g.10gb.count")},
            "term": {"nodeSelector": terms({"key": "nvidia.com/gpu.replicas", "operator": "DoesNotExist"})},
        },
        allowed={
            "product": {"nodeSelector": labels("nvidia.com/gpu.product", "team")},
            "capable": {"nodeSelector": terms({"key": "nvidia.com/mig.capable", "operator": "Exists"})},
        },
    ),
    meta.VALUES_MESSAGE: Rule(
        at="spec.nodeSelector.matchExpressions",
        refused={
            "in-absent": {"nodeSelector": terms({"key": "team", "operator": "In"})},
            "not-in-empty": {"nodeSelector": terms({"key": "team", "operator": "NotIn", "values": []})},
            "exists": {"nodeSelector": terms({"key": "team", "operator": "Exists", "values": ["a"]})},
            "second": {
                "nodeSelector": terms(
                    {"key": "team", "operator": "Exists"}, {"key": "zone", "operator": "DoesNotExist", "values": ["a"]}
                )
            },
        },
        allowed={
            "in": {"nodeSelector": terms({"key": "team", "operator": "In", "values": ["a", ""]})},
            "exists": {"nodeSelector": terms({"key": "team", "operator": "Exists"})},
            "exists-empty": {"nodeSelector": terms({"key": "team", "operator": "DoesNotExist", "values": []})},
        },
    ),
    meta.LABEL_KEY_MESSAGE: Rule(
        at="spec.nodeSelector.matchLabels",
        refused={
            "blank": {"nodeSelector": labels("two words")},
            "empty": {"nodeSelector": labels("")},
            "no-name": {"nodeSelector": labels("nvidia.com/")},
            "two-slashes": {"nodeSelector": labels("team", "a/b/c")},
            "upper-prefix": {"nodeSelector": labels("NVIDIA.com/gpu")},
            "long-name": {"nodeSelector": labels("a" * 64)},
            "newline": {"nodeSelector": labels("team\n")},
        },
        allowed={
            "plain": {"nodeSelector": labels("Team_1.a-b")},
            "longest": {"nodeSelector": labels(f"{'a' * 253}/{'b' * 63}")},
            "most": {"nodeSelector": labels(*(f"example.com/{number}" for number in range(32)))},
        },
    ),
    policy.SPREAD_MESSAGE: Rule(
        at="spec.allocation.keepTogether",
        refused={
            "preferred": {"allocation": {"policy": "spread", "keepTogether": "preferred"}},
            "required": {"allocation": {"policy": "spread", "keepTogether": "required"}},
        },
        allowed={
            "spread": {"allocation": {"policy": "spread"}},
            "packed": {"allocation": {"policy": "packed", "keepTogether": "required"}},
        },
    ),
    policy.TOPOLOGY_MESSAGE: Rule(
        at="spec.allocation.topology",
        refused={
            "packed": {"allocation": {"policy": "packed", "topology": "preferred"}},
            "default": {"allocation": {"topology": "preferred"}},
        },
        allowed={
            "together": {"allocation": {"keepTogether": "preferred", "topology": "preferred"}},
            "spread": {"allocation": {"policy": "spread", "topology": "preferred"}},
        },
    ),
    sharing.MPS_REPLICAS_MESSAGE: Rule(
        at="spec.sharing.resources",
        refused={"49": {"sharing": shared({**GPU, "replicas": 49}, strategy="mps")}},
        allowed={
            "48": {"sharing": shared({**GPU, "replicas": 48}, strategy="mps")},
            "time-slicing": {"sharing": shared({**GPU, "replicas": 49})},
        },
    ),
    sharing.REPLICAS_MESSAGE: Rule(
        at="spec.sharing.resources[0].replicas",
        refused={
            str(replicas): {"sharing": shared({**GPU, "replicas": replicas})}
            for replicas in (1, 0, -1, 2049, 10**9, 2**31, 2**62)
        },
        allowed={str(replicas): {"sharing": shared({**GPU, "replicas": replicas})} for replicas in (2, 2048)},
    ),
    sharing.RESOURCE_NAME_MESSAGE: Rule(
        at="spec.sharing.resources[0].name",
        refused={
            name: {"migStrategy": "mixed", "sharing": shared({"name": name, "replicas": 2})}
            for name in (
                "gpu",
                "nvidia.com/gpu.shared",
                "nvidia.com/gpus",
                "nvidia.com/gpu\n",
                "amd.com/gpu",
                "nvidiaxcom/gpu",
                "nvidia.com/mig-8g.80gb",
                "nvidia.com/mig-1g.0gb",
                "nvidia.com/mig-1g.10gb.you",
            )
        },
        allowed={
            name: {"migStrategy": "mixed", "sharing": shared({"name": f"nvidia.com/{name}", "replicas": 2})}
            for name in ("gpu", "mig-1g.5gb", "mig-7g.141gb", "mig-1g.10gb.me", "mig-1g.24gb.me.all", "mig-1g.12gb-me")
        },
    ),
}
REFUSED = [
    pytest.param(message, spec, id=f"{rule.at.rpartition('.')[2]}-{name}")
    for message, rule in RULES.items()
    for name, spec in rule.refused.items()
]
ALLOWED = [
    pytest.param(spec, id=f"{rule.at.rpartition('.')[2]}-{name}")
    for rule in RULES.values()
    for name, spec in rule.allowed.items()
]
# What the schema itself refuses, and (part of) the server's words for it.
MALFORMED = {
    "selector-missing": ({"nodeSelector": None}, "spec.nodeSelector: Required value"),
    "enum": ({"mode": "try"}, 'spec.mode: Unsupported value: "try": supported values: "enforce", "dry-run"'),
    "strategy-missing": ({"sharing": {"resources": [GPU]}}, "spec.sharing.strategy: Required value"),
    "replicas-missing": (
        {"sharing": shared({"name": "nvidia.com/gpu"})},
        "spec.sharing.resources[0].replicas: Required",
    ),
    "no-resources": ({"sharing": shared()}, "spec.sharing.resources: Invalid value: 0"),
    "too-many-resources": (
        {
            "migStrategy": "mixed",
            "sharing": shared(*({**MIG, "name": f"nvidia.com/mig-1g.{n}gb"} for n in range(1, 66))),
        },
        "spec.sharing.resources: Too many: 65: must have at most 64 items",
    ),
    "a-resource-twice": (
        {"sharing": shared(GPU, {**GPU, "replicas": 8})},
        'spec.sharing.resources[1]: Duplicate value: {"name":"nvidia.com/gpu"}',
    ),
    "a-list-strategy-twice": (
        {"plugin": {"deviceListStrategy": ["envvar", "envvar"]}},
        'spec.plugin.deviceListStrategy[1]: Duplicate value: "envvar"',
    ),
    "priority-too-high": ({"priority": 2**31}, "spec.priority: Invalid value"),
    "key-of-a-term": (
        {"nodeSelector": terms({"key": "two words", "operator": "Exists"})},
        'spec.nodeSelector.matchExpressions[0].key: Invalid value: "two words"',
    ),
    "key-of-a-term-too-long": (
        {"nodeSelector": terms({"key": f"{'a' * 254}/{'b' * 63}", "operator": "Exists"})},
        "spec.nodeSelector.matchExpressions[0].key: Too long",
    ),
    "value-of-a-label": (
        {"nodeSelector": {"matchLabels": {"team": "a b"}}},
        "spec.nodeSelector.matchLabels.team: Invalid",
    ),
    "value-of-a-term": (
        {"nodeSelector": terms({"key": "team", "operator": "In", "values": ["a" * 64]})},
        "spec.nodeSelector.matchExpressions[0].values[0]: Too long",
    ),
    "operator": (
        {"nodeSelector": terms({"key": "team", "operator": "Gt", "values": ["1"]})},
        'spec.nodeSelector.matchExpressions[0].operator: Unsupported value: "Gt"',
    ),
    "too-many-labels": (
        {"nodeSelector": labels(*(f"example.com/{number}" for number in range(33)))},
        "spec.nodeSelector.matchLabels: Too many: 33: must have at most 32 items",
    ),
    "text-for-a-number": ({"priority": "10"}, 'spec.priority: Invalid value: "string"'),
    "fraction-for-a-number": (
        {"sharing": shared({**GPU, "replicas": 2.5})},
        "spec.sharing.resources[0].replicas: Invalid",
    ),
    "text-for-a-boolean": ({"adoptManual": "true"}, 'spec.adoptManual: Invalid value: "string"'),
    "number-for-a-text": ({"mode": 1}, 'spec.mode: Invalid value: "integer"'),
    "list-for-an-object": ({"sharing": [GPU]}, 'spec.sharing: Invalid value: "array"'),
    "list-for-the-selector": ({"nodeSelector": []}, 'spec.nodeSelector: Invalid value: "array"'),
    "object-for-a-list": ({"sharing": {"strategy": "mps", "resources": GPU}}, "spec.sharing.resources: Invalid value"),
}
malformed = pytest.mark.parametrize(("spec", "words"), MALFORMED.values(), ids=list(MALFORMED))


def body(spec: Object, name: str = "tried") -> Object:
    """A policy; None takes a field away."""
    said = {key: value for key, value in {"nodeSelector": {}, **spec}.items() if value is not None}
    return {"apiVersion": names.API_VERSION, "kind": names.POLICY_KIND, "metadata": {"name": name}, "spec": said}


# --- rules


def test_every_rule_of_the_crds_has_cases_here() -> None:
    schemas = [
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for definition in SPECS
        if definition["spec"]["names"]["kind"] != names.PLACEMENT_KIND
    ]
    assert {rule["message"] for schema in schemas for rule in _rules(schema)} == set(RULES)
    assert all(rule.refused and rule.allowed for rule in RULES.values())


@pytest.mark.parametrize(("message", "spec"), REFUSED)
def test_what_a_rule_refuses_is_refused_with_its_sentence_by_the_server_and_by_us(
    fleet: Fleet, message: str, spec: Object
) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        fleet.api.create(POLICIES, body(spec))
    causes = {cause["field"]: cause["message"] for cause in _causes(refusal.value)}
    assert refusal.value.status == 422
    assert message in causes[RULES[message].at]
    assert any(message in problem for problem in _problems(spec))


@pytest.mark.parametrize("spec", ALLOWED)
def test_what_no_rule_refuses_is_accepted_by_the_server_and_by_us(fleet: Fleet, spec: Object) -> None:
    fleet.api.create(POLICIES, body(spec), fieldValidation="Strict")
    assert _problems(spec) == []


def test_several_broken_rules_are_reported_at_once_with_the_field_of_each(fleet: Fleet) -> None:
    spec = {"migStrategy": "mixed", "sharing": shared({**GPU, "replicas": 49}, strategy="mps")}
    with pytest.raises(ApiStatusError) as refusal:
        fleet.api.create(POLICIES, body(spec))
    assert {cause["field"] for cause in _causes(refusal.value)} == {"spec.migStrategy", "spec.sharing.resources"}


def test_a_refused_key_or_name_is_quoted_in_the_refusal(fleet: Fleet) -> None:
    spec = {"nodeSelector": labels("two words"), "sharing": shared({"name": "gpu", "replicas": 2})}
    with pytest.raises(ApiStatusError) as refusal:
        fleet.api.create(POLICIES, body(spec))
    messages = "\n".join(cause["message"] for cause in _causes(refusal.value))
    assert f'"two words" is {meta.LABEL_KEY_MESSAGE}: {meta.LABEL_KEY_HINT}' in messages
    assert '"gpu" is not a resource name the device plugin advertises: write nvidia.com/gpu, or ' in messages


# --- schema


@malformed
def test_what_the_schema_refuses_is_refused_by_the_server_and_by_us(fleet: Fleet, spec: Object, words: str) -> None:
    with pytest.raises(ApiStatusError, match=re.escape(words)) as refusal:
        fleet.api.create(POLICIES, body(spec))
    assert refusal.value.status == 422
    place = re.split(r": |\[\d+\]: ", words)[0]
    assert any(problem.startswith(place) for problem in _problems(spec)), _problems(spec)


@pytest.mark.parametrize("how", [[], ["--server-side"], ["--server-side", "--validate=false"]], ids=" ".join)
def test_an_unknown_field_is_refused_by_kubectl_apply(fleet: Fleet, how: list[str]) -> None:
    text = json.dumps(body({"sharing": shared({**GPU, "replica": 8})}))
    got = fleet.cluster.kubectl("apply", "-f", "-", *how, stdin=text, check=False)
    assert got.returncode != 0
    assert re.search(r"spec\.sharing\.resources\S*\.replica\b", got.stderr)
    assert any("did you mean replicas?" in problem for problem in _problems(json.loads(text)["spec"]))
    assert fleet.api.list(POLICIES) == []


def test_defaults_are_filled_in_at_every_level_and_only_those_of_the_design(fleet: Fleet) -> None:
    spec = fleet.api.create(POLICIES, body({"sharing": shared(GPU), "plugin": {}}))["spec"]
    assert spec == {
        "nodeSelector": {},
        "priority": 0,
        "mode": "enforce",
        "migStrategy": "none",
        "allocation": {"policy": "distributed", "keepTogether": "none", "topology": "none"},
        "sharing": {"strategy": "time-slicing", "renameByDefault": False, "resources": [GPU]},
        "adoptManual": False,
        "allowPlacements": False,
        "plugin": {},
    }


def test_a_half_said_allocation_gets_the_defaults_of_the_rest(fleet: Fleet) -> None:
    created = fleet.api.create(POLICIES, body({"allocation": {"policy": "packed"}}))
    assert created["spec"]["allocation"] == {"policy": "packed", "keepTogether": "none", "topology": "none"}


def test_a_new_policy_has_been_looked_at_by_nobody_and_its_status_has_no_other_default(fleet: Fleet) -> None:
    assert fleet.policy("tried")["status"] == {"observedGeneration": 0}
    fleet.api.patch(POLICIES, "tried", {"status": {"observedGeneration": 1, "nodes": {}}}, subresource="status")
    assert fleet.status("tried") == {"observedGeneration": 1, "nodes": {}}


@KINDS
def test_every_field_has_a_description_and_every_list_text_and_map_a_limit(definition: Object) -> None:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    bare, open_ended = [], []
    for path, node in _fields(schema):
        if path == "metadata":
            continue
        if not path.endswith("[]") and not node.get("description"):
            bare.append(path)
        if not _is_limited(path, node):
            open_ended.append(path)
    assert bare == []
    assert open_ended == []


# --- both kinds on the server


@KINDS
def test_the_crds_are_accepted_and_served(fleet: Fleet, definition: Object) -> None:
    def is_served() -> None:
        stored = fleet.api.get(CRDS, definition["metadata"]["name"])
        conditions = {condition["type"]: condition["status"] for condition in stored["status"]["conditions"]}
        assert conditions["Established"] == conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions

    eventually(is_served, what="the CRD is served")


def test_the_server_does_not_change_what_we_generate(fleet: Fleet) -> None:
    for definition in SPECS:
        stored = fleet.api.get(CRDS, definition["metadata"]["name"])["spec"]["versions"][0]
        assert stored == definition["spec"]["versions"][0]


def test_short_names_and_the_category_name_our_kinds(fleet: Fleet) -> None:
    fleet.policy("tried")
    _report(fleet)
    for word, want in {
        "gsp": {"gpusharingpolicy.gpusharing.io/tried"},
        "gn": {"gpunode.gpusharing.io/gpu-a"},
        "gpusharingpolicies": {"gpusharingpolicy.gpusharing.io/tried"},
        "gpunode": {"gpunode.gpusharing.io/gpu-a"},
        "gpu": {"gpusharingpolicy.gpusharing.io/tried", "gpunode.gpusharing.io/gpu-a"},
    }.items():
        assert set(fleet.cluster.kubectl("get", word, "-o", "name").stdout.split()) == want


def test_kubectl_explain_tells_what_a_field_is_for(fleet: Fleet) -> None:
    allocation = _explain(fleet, "gsp.spec.allocation")
    assert "How the devices of a request are chosen" in allocation
    assert "enum: packed, distributed, spread" in allocation
    assert "fills the fullest GPU first" in allocation
    assert "How the GPUs of the nodes" in _explain(fleet, "gsp")
    assert "enum: time-slicing, mps" in _explain(fleet, "gsp.spec.sharing")
    assert "Devices that the kubelet confirms" in _explain(fleet, "gn.status.resources")


# --- printer columns


def test_kubectl_get_shows_a_new_policy(fleet: Fleet) -> None:
    fleet.policy("tried", migStrategy="mixed")
    head, row = _table(fleet, "gsp")
    assert head == ["NAME", "ALLOCATION", "SHARING", "MIG", "NODES", "APPLIED", "READY", "STATUS", "AGE"]
    assert row[:2] == ["tried", "mixed"]  # the rest is empty but for the age


def test_kubectl_get_shows_what_became_of_a_policy(fleet: Fleet) -> None:
    fleet.policy("tried", priority=7)
    status = {
        "allocationPolicy": "packed",
        "sharing": "4x time-slicing",
        "configName": "packed-4x-3f9c2a71",
        "nodes": {"matched": 12, "applied": 10},
        "conditions": [_condition("Applied", "Unknown", "AwaitingReport"), _condition("Ready", "True", "Applied")],
    }
    fleet.api.patch(POLICIES, "tried", {"status": status}, subresource="status")
    _, row = _table(fleet, "gsp")
    assert row[:-1] == ["tried", "packed", "4x time-slicing", "none", "12", "10", "True", "Applied"]
    head, wide = _table(fleet, "gsp", "-o", "wide")
    assert head[-3:] == ["PRIORITY", "CONFIG", "AGE"]
    assert wide[-3:-1] == ["7", "packed-4x-3f9c2a71"]


def test_kubectl_get_shows_a_node_s_report(fleet: Fleet) -> None:
    _report(fleet)
    head, row = _table(fleet, "gn")
    assert head == ["NAME", "MODEL", "GPUS", "DESIRED", "SERVED", "INUSE", "READY", "AGE"]
    assert row[:-1] == ["gpu-a", "NVIDIA A100-SXM4-80GB", "1", "packed-1", "packed-0", "3", "False"]


# --- status


def test_a_status_written_through_the_main_resource_is_ignored(fleet: Fleet) -> None:
    created = fleet.api.create(POLICIES, {**body({}), "status": {"configName": "mine"}})
    fleet.api.patch(POLICIES, "tried", {"status": {"configName": "mine"}})
    assert created["status"] == fleet.status("tried") == {"observedGeneration": 0}


def test_a_spec_written_through_the_status_is_ignored_and_keeps_the_generation(fleet: Fleet) -> None:
    before = fleet.policy("tried", priority=1)
    change = {"spec": {"priority": 9}, "status": {"configName": "packed-1"}}
    after = fleet.api.patch(POLICIES, "tried", change, subresource="status")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["status"] == {"observedGeneration": 0, "configName": "packed-1"}


def test_conditions_are_a_list_by_type_so_that_managers_do_not_overwrite_one_another(fleet: Fleet) -> None:
    fleet.policy("tried")
    for manager, kind in (("one", "Ready"), ("two", "Other")):
        status = {"conditions": [_condition(kind, "True", "Because")]}
        applied = {**body({}), "status": status}
        del applied["spec"]
        fleet.api.apply(POLICIES, applied, field_manager=manager, subresource="status")
    assert set(fleet.conditions("tried")) == {"Ready", "Other"}


def test_a_gpunode_says_nothing_of_reservations_until_somebody_does(fleet: Fleet) -> None:
    """Absent = unknown, [] = release everything: the server must not make one of the other."""
    _report(fleet)
    assert "spec" not in fleet.api.get(GPU_NODES, "gpu-a")
    for said in ({}, {"reservations": []}):
        assert fleet.api.patch(GPU_NODES, "gpu-a", {"spec": said})["spec"] == said


# --- editing what an older schema let in


def test_an_invalid_resource_from_before_does_not_block_other_edits(fleet: Fleet) -> None:
    definition = fleet.api.get(CRDS, names.POLICIES_CRD)
    lenient = json.loads(json.dumps(definition["spec"]["versions"]))
    resources = lenient[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["sharing"]["properties"]
    del resources["resources"]["items"]["properties"]["replicas"]["x-kubernetes-validations"]
    fleet.api.patch(CRDS, names.POLICIES_CRD, {"spec": {"versions": lenient}})
    try:
        one = {**GPU, "replicas": 1}
        eventually(lambda: _accepted(fleet, body({"sharing": shared(one)})), what="the lenient CRD is in force")
    finally:
        fleet.api.patch(CRDS, names.POLICIES_CRD, {"spec": {"versions": definition["spec"]["versions"]}})
    eventually(lambda: _refused(fleet, body({"sharing": shared(one)}, "other")), what="the CRD is in force again")

    assert fleet.edit("tried", priority=5)["spec"]["priority"] == 5
    with pytest.raises(ApiStatusError, match="replicas must be from 2 to 2048"):
        fleet.edit("tried", sharing=shared({**GPU, "replicas": 0}))


# --- helpers


def _rules(schema: Object) -> Iterator[Object]:
    for _, node in _fields(schema):
        yield from node.get("x-kubernetes-validations", [])


def _fields(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Every node of a schema, with its path; `[]` = an item of a list or map."""
    yield path, schema
    for key, child in schema.get("properties", {}).items():
        yield from _fields(child, f"{path}.{key}" if path else key)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from _fields(schema[inner], f"{path}[]")


def _is_limited(path: str, node: Object) -> bool:
    match node.get("type", "int-or-string"):
        case "int-or-string":
            return node["x-kubernetes-int-or-string"] and "pattern" in node
        case "string" if path not in {"apiVersion", "kind"}:
            return "maxLength" in node or "enum" in node or "format" in node
        case "array":
            return "maxItems" in node
        case "object":
            return "maxProperties" in node or "additionalProperties" not in node
        case _:
            return "x-kubernetes-preserve-unknown-fields" not in node


def _causes(error: ApiStatusError) -> list[Object]:
    assert isinstance(error.body, dict), error
    return list(error.body["details"]["causes"])


def _problems(spec: Object) -> list[str]:
    """What our own models and checks say about it."""
    parsed, problems = parse(PolicyObject, body(spec))
    if parsed is not None:
        problems = check_spec(parsed.spec)
    return [str(problem) for problem in problems if problem.severity == "error"]


def _explain(fleet: Fleet, what: str) -> str:
    return " ".join(fleet.cluster.kubectl("explain", what).stdout.split())


def _table(fleet: Fleet, *what: str) -> tuple[list[str], list[str]]:
    """Header and the one row of `kubectl get`, empty cells left out."""
    head, row = fleet.cluster.kubectl("get", *what).stdout.splitlines()
    return head.split(), re.split(r"\s{2,}", row.strip())


def _condition(kind: str, status: str, reason: str) -> Object:
    moment = "2026-11-30T12:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": moment}


def _report(fleet: Fleet) -> None:
    fleet.api.create(
        GPU_NODES, {"apiVersion": names.API_VERSION, "kind": names.NODE_KIND, "metadata": {"name": "gpu-a"}}
    )
    status = {
        "gpus": [{"index": 0, "uuid": "GPU-1", "model": "NVIDIA A100-SXM4-80GB"}],
        "gpuCount": 1,
        "inUse": 3,
        "config": {"desired": "packed-1", "served": "packed-0"},
        "conditions": [_condition("GpuSharingReady", "False", "InvalidConfig")],
    }
    fleet.api.patch(GPU_NODES, "gpu-a", {"status": status}, subresource="status")


def _accepted(fleet: Fleet, policy_: Object) -> None:
    try:
        fleet.api.create(POLICIES, policy_)
    except ApiStatusError as error:
        raise AssertionError(error) from error


def _refused(fleet: Fleet, policy_: Object) -> None:
    try:
        fleet.api.create(POLICIES, policy_, dryRun="All")
    except ApiStatusError:
        return
    raise AssertionError("still accepted")
