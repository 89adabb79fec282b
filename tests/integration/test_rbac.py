"""Rights: exactly these and no others, in the manifests and on the API server with a token of the account."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.cluster.api import (
    CRDS,
    GPU_NODES,
    NODES,
    POLICIES,
    Api,
    ApiStatusError,
    Object,
    config_maps,
    leases,
    placements,
)
from tests.support.fleet import Fleet
from tests.support.manifests import DEFAULT, SHARED_LAYOUT, overlay, render

from gpusharing.api import names

OWN = config_maps(names.NAMESPACE)
RULES_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
ROLES = {"Role", "ClusterRole"}

# (role, group, resource, names) → verbs
CONTROLLER = {
    ("gpusharing.io", "gpusharingpolicies", ""): "list watch",
    ("gpusharing.io", "gpunodes", ""): "list patch watch",
    ("gpusharing.io", "gpuplacements", ""): "list watch",
    ("gpusharing.io", "gpusharingpolicies/status", ""): "patch",
    ("gpusharing.io", "gpuplacements/status", ""): "patch",
    ("apiextensions.k8s.io", "customresourcedefinitions", "gpusharingpolicies.gpusharing.io"): "get",
    ("apiextensions.k8s.io", "customresourcedefinitions", "gpuplacements.gpusharing.io"): "get",
    ("", "nodes", ""): "list patch watch",
    ("", "resourcequotas", ""): "list watch",
    ("", "events", ""): "create patch",
}
CONTROLLER_IN_ITS_NAMESPACE = {
    ("", "configmaps", ""): "create delete list patch",
    ("coordination.k8s.io", "leases", ""): "create",
    ("coordination.k8s.io", "leases", names.LEASE): "get update",
}
PLUGIN = {
    ("", "nodes", ""): "get list watch",
    ("", "nodes/status", ""): "patch",
    ("gpusharing.io", "gpunodes", ""): "create get list patch watch",
    ("gpusharing.io", "gpunodes/status", ""): "patch",
    ("", "events", ""): "create patch",
}
PLUGIN_IN_ITS_NAMESPACE = {("", "configmaps", ""): "get list watch"}
GOLDEN = {
    "ClusterRole gpu-sharing-operator": CONTROLLER,
    "Role gpu-sharing-operator": CONTROLLER_IN_ITS_NAMESPACE,
    "ClusterRole gpu-sharing-device-plugin": PLUGIN,
    "Role gpu-sharing-device-plugin": PLUGIN_IN_ITS_NAMESPACE,
    "ClusterRole gpu-sharing-viewer": {
        ("gpusharing.io", "gpusharingpolicies", ""): "get list watch",
        ("gpusharing.io", "gpunodes", ""): "get list watch",
        ("gpusharing.io", "gpuplacements", ""): "get list watch",
    },
    "ClusterRole gpu-sharing-placement-editor": {
        ("gpusharing.io", "gpuplacements", ""): "create delete deletecollection get list patch update watch",
    },
    "ClusterRole gpu-sharing-editor": {
        ("gpusharing.io", "gpusharingpolicies", ""): "create delete deletecollection patch update",
    },
}
GOLDEN_OF_LAYOUT_SHARED = {
    "Role gpu-sharing-operator-shared-config": {
        ("", "configmaps", ""): "create",
        ("", "configmaps", names.SHARED_CONFIGMAP): "delete get patch",
    },
}


@pytest.fixture
def ours(account: Path) -> Iterator[Api]:
    """A client with a token of the controller's account."""
    with Api(account) as api:
        yield api


# --- in the manifests


def test_the_manifests_grant_exactly_these_rights() -> None:
    assert _granted(render(DEFAULT)) == GOLDEN


def test_layout_shared_adds_exactly_these_rights(tmp_path: Path) -> None:
    documents = render(overlay(tmp_path, components=[SHARED_LAYOUT]))
    assert _granted(documents) == {**GOLDEN, **GOLDEN_OF_LAYOUT_SHARED}


def test_nothing_grants_wildcards_secrets_or_more_rights(tmp_path: Path) -> None:
    rules = [
        rule
        for document in render(overlay(tmp_path, components=[SHARED_LAYOUT]))
        if document["kind"] in ROLES
        for rule in document["rules"]
    ]
    words = {word for rule in rules for part in ("apiGroups", "resources", "verbs") for word in rule[part]}
    assert not words & {"*", "secrets", "pods/exec", "escalate", "bind", "impersonate", "rbac.authorization.k8s.io"}
    assert not any("nonResourceURLs" in rule for rule in rules)


def test_every_role_is_bound_to_one_account_and_none_to_people(tmp_path: Path) -> None:
    documents = render(overlay(tmp_path, components=[SHARED_LAYOUT]))
    bound = {
        f"{document['roleRef']['kind']} {document['roleRef']['name']}": document["subjects"]
        for document in documents
        if document["kind"] in {"RoleBinding", "ClusterRoleBinding"}
    }
    accounts = {
        "ClusterRole gpu-sharing-operator": names.COMPONENT,
        "Role gpu-sharing-operator": names.COMPONENT,
        "Role gpu-sharing-operator-shared-config": names.COMPONENT,
        "ClusterRole gpu-sharing-device-plugin": names.PLUGIN,
        "Role gpu-sharing-device-plugin": names.PLUGIN,
    }
    assert bound == {
        role: [{"kind": "ServiceAccount", "name": name, "namespace": names.NAMESPACE}]
        for role, name in accounts.items()
    }


def test_whoever_may_write_node_status_is_fenced() -> None:
    documents = render(DEFAULT)
    writers = {
        document["metadata"]["name"]
        for document in documents
        if document["kind"] in ROLES
        for rule in document["rules"]
        if "nodes/status" in rule["resources"]
    }
    fenced = {
        document["spec"]["paramRef"]["name"]
        for document in documents
        if document["kind"] == "ValidatingAdmissionPolicyBinding"
        and document["metadata"]["name"] == "gpu-sharing-device-plugin-node-status"
    }
    assert writers == fenced == {names.PLUGIN}


def test_people_get_our_kinds_through_the_roles_of_kubernetes() -> None:
    labels = {document["metadata"]["name"]: document["metadata"]["labels"] for document in render(DEFAULT)}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert labels["gpu-sharing-viewer"][f"{prefix}view"] == "true"
    assert labels["gpu-sharing-editor"][f"{prefix}admin"] == "true"
    assert f"{prefix}edit" not in labels["gpu-sharing-editor"]  # a policy is a matter of the whole cluster
    # GPUs that a placement takes are missing to everybody, so nobody gets the role but who is given it
    assert not [label for label in labels["gpu-sharing-placement-editor"] if label.startswith(prefix)]


# --- on the API server


@pytest.mark.parametrize(
    ("namespace", "want"),
    [(names.NAMESPACE, CONTROLLER | CONTROLLER_IN_ITS_NAMESPACE), ("default", CONTROLLER), ("kube-system", CONTROLLER)],
    ids=["own", "default", "kube-system"],
)
def test_the_account_has_exactly_these_rights_on_the_server(
    fleet: Fleet, ours: Api, namespace: str, want: dict[tuple[str, str, str], str]
) -> None:
    assert _rights_beyond_everybodys(fleet, ours, namespace) == want


@pytest.mark.parametrize(
    ("namespace", "want"),
    [(names.NAMESPACE, PLUGIN | PLUGIN_IN_ITS_NAMESPACE), ("default", PLUGIN), ("kube-system", PLUGIN)],
    ids=["own", "default", "kube-system"],
)
def test_the_plugins_account_has_exactly_these_rights_on_the_server(
    fleet: Fleet, namespace: str, want: dict[tuple[str, str, str], str]
) -> None:
    with Api(fleet.cluster.kubeconfig_for(names.PLUGIN, names.NAMESPACE)) as plugin:
        assert _rights_beyond_everybodys(fleet, plugin, namespace) == want


REFUSED = {
    "get-nodes": lambda api: api.get(NODES, "gpu-a"),
    "create-nodes": lambda api: api.create(NODES, {"metadata": {"name": "gpu-b"}}),
    "create-nodes-by-apply": lambda api: api.apply(
        NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-b"}}, field_manager="any"
    ),
    "replace-nodes": lambda api: api.replace(NODES, {"metadata": {"name": "gpu-a"}}),
    "delete-nodes": lambda api: api.delete(NODES, "gpu-a"),
    "delete-all-nodes": lambda api: api.delete_collection(NODES),
    "patch-node-status": lambda api: api.patch(NODES, "gpu-a", {"status": {"phase": "x"}}, subresource="status"),
    "proxy-nodes": lambda api: api.raw("GET", f"{NODES}/gpu-a/proxy/metrics"),
    "get-policies": lambda api: api.get(POLICIES, "pack"),
    "patch-policies": lambda api: api.patch(POLICIES, "pack", {"spec": {"priority": 1}}),
    "create-policies": lambda api: api.create(POLICIES, {"metadata": {"name": "other"}}),
    "delete-policies": lambda api: api.delete(POLICIES, "pack"),
    "create-gpunodes": lambda api: api.create(GPU_NODES, {"metadata": {"name": "gpu-a"}}),
    "delete-gpunodes": lambda api: api.delete(GPU_NODES, "gpu-a"),
    "patch-gpunode-status": lambda api: api.patch(GPU_NODES, "gpu-a", {"status": {}}, subresource="status"),
    "patch-placements": lambda api: api.patch(placements("default"), "any", {"spec": {"lead": "a"}}),
    "create-placements": lambda api: api.create(placements("default"), {"metadata": {"name": "other"}}),
    "delete-placements": lambda api: api.delete(placements("default"), "any"),
    "patch-quotas": lambda api: api.patch("/api/v1/namespaces/default/resourcequotas", "any", {"spec": {}}),
    "list-crds": lambda api: api.list(CRDS),
    "get-another-crd": lambda api: api.get(CRDS, "gpunodes.gpusharing.io"),
    "patch-our-crd": lambda api: api.patch(CRDS, names.POLICIES_CRD, {"metadata": {"labels": {"a": "b"}}}),
    "list-secrets": lambda api: api.list("/api/v1/secrets"),
    "list-own-secrets": lambda api: api.list(f"/api/v1/namespaces/{names.NAMESPACE}/secrets"),
    "list-pods": lambda api: api.list("/api/v1/pods"),
    "create-own-pods": lambda api: api.create(f"/api/v1/namespaces/{names.NAMESPACE}/pods", {}),
    "create-own-tokens": lambda api: api.raw(
        "POST", f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/gpu-sharing-operator/token", {}
    ),
    "list-configmaps": lambda api: api.list("/api/v1/configmaps"),
    "create-others-configmaps": lambda api: api.create(config_maps("default"), {"metadata": {"name": "gpusharing-a"}}),
    "patch-others-configmaps": lambda api: api.patch(config_maps("default"), "kube-root-ca.crt", {"data": {}}),
    "delete-others-configmaps": lambda api: api.delete(config_maps("kube-system"), "any"),
    "get-another-lease": lambda api: api.get(leases(names.NAMESPACE), "another"),
    "list-leases": lambda api: api.list(leases(names.NAMESPACE)),
    "create-others-leases": lambda api: api.create(leases("default"), {"metadata": {"name": names.LEASE}}),
    "list-events": lambda api: api.list("/api/v1/events"),
    "create-roles": lambda api: api.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "a"}}
    ),
}


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=list(REFUSED))
def test_what_is_not_granted_is_refused_with_403(fleet: Fleet, ours: Api, attempt: object) -> None:
    fleet.node("gpu-a")
    fleet.policy("pack")
    assert callable(attempt)
    with pytest.raises(ApiStatusError, match=r"User \S+:gpu-sharing-operator\S* cannot ") as refusal:
        attempt(ours)
    assert refusal.value.status == 403


def test_what_the_controller_does_is_allowed(fleet: Fleet, ours: Api) -> None:
    fleet.node("gpu-a")
    fleet.policy("pack")
    assert [item["metadata"]["name"] for item in ours.list(NODES)] == ["gpu-a"]
    assert [item["metadata"]["name"] for item in ours.list(POLICIES)] == ["pack"]
    assert ours.list(GPU_NODES) == []
    assert ours.get(CRDS, names.POLICIES_CRD)["kind"] == "CustomResourceDefinition"
    ours.patch(POLICIES, "pack", {"status": {"configName": "a"}}, subresource="status")
    ours.create(leases(names.NAMESPACE), {"metadata": {"name": names.LEASE}, "spec": {"holderIdentity": "a"}})
    ours.replace(leases(names.NAMESPACE), ours.get(leases(names.NAMESPACE), names.LEASE))
    involved = {"kind": "Node", "name": "gpu-a"}
    event = {"metadata": {"name": "gpu-a.1"}, "involvedObject": involved, "reason": "Released", "type": "Normal"}
    ours.create("/api/v1/namespaces/default/events", event)
    ours.patch("/api/v1/namespaces/default/events", "gpu-a.1", {"count": 2})


# --- helpers


def _granted(documents: Sequence[Object]) -> dict[str, dict[tuple[str, str, str], str]]:
    return {
        f"{document['kind']} {document['metadata']['name']}": _by_right(document["rules"])
        for document in documents
        if document["kind"] in ROLES
    }


def _by_right(rules: Sequence[Object]) -> dict[tuple[str, str, str], str]:
    """What each (group, resource, name) may be used for; an empty name means all."""
    rights: dict[tuple[str, str, str], set[str]] = {}
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames") or [""]:
                    rights.setdefault((group, resource, name), set()).update(rule["verbs"])
    return {right: " ".join(sorted(verbs)) for right, verbs in rights.items()}


def _rights_beyond_everybodys(fleet: Fleet, api: Api, namespace: str) -> dict[tuple[str, str, str], str]:
    fleet.api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "nobody"}})
    with Api(fleet.cluster.kubeconfig_for("nobody", "default")) as nobody:
        everybodys = _rights(nobody, namespace)
    fleet.api.delete("/api/v1/namespaces/default/serviceaccounts", "nobody")
    return {right: verbs for right, verbs in _rights(api, namespace).items() if right not in everybodys}


def _rights(api: Api, namespace: str) -> dict[tuple[str, str, str], str]:
    """What the API server says that the client may do in a namespace."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    answer = api.raw("POST", RULES_REVIEW, {**review, "spec": {"namespace": namespace}})
    return _by_right(answer["status"]["resourceRules"])
