"""The controller's account may move one label, and nothing else: by RBAC, and by the admission fence."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster.api import CRDS, GPU_NODES, NODES, POLICIES, Api, ApiStatusError, config_maps
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.install import ROOT, install

from gpusharing.api import names

Object = dict[str, Any]
OURS = names.FIELD_MANAGER


@pytest.fixture
def ours(account: Path, fleet: Fleet) -> Iterator[Api]:
    """A client with the token of the controller's ServiceAccount; the fence is known to be in force."""
    fleet.node("probe", kind="", a="b")
    with Api(account) as api:

        def fenced() -> None:
            assert _refusal(api, {"metadata": {"labels": {"a": "c"}}}, "probe") == 403

        eventually(fenced, what="the fence is in force")
        yield api


def _refusal(api: Api, patch: Object, node: str = "gpu-a") -> int:
    try:
        api.patch(NODES, node, patch)
    except ApiStatusError as error:
        return error.status
    return 200


def _label(node: str, value: str | None, **more: str) -> Object:
    labels = {**({names.CONFIG_LABEL: value} if value else {}), **more}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}


@pytest.mark.parametrize("labels", [{}, {f"example.com/l{i}": "x" for i in range(1000)}], ids=["bare", "1,000 labels"])
def test_our_label_may_be_set_moved_and_released(fleet: Fleet, ours: Api, labels: dict[str, str]) -> None:
    fleet.node("gpu-a", kind="", **labels)
    for value in ("one", "two", None):
        ours.apply(NODES, _label("gpu-a", value), field_manager=OURS)
        assert fleet.label("gpu-a") == (value or "")


CHANGES: dict[str, Object] = {
    "a foreign label added": {"metadata": {"labels": {"example.com/new": "x"}}},
    "a foreign label changed": {"metadata": {"labels": {"nvidia.com/gpu.product": "x"}}},
    "a foreign label removed": {"metadata": {"labels": {"nvidia.com/gpu.product": None}}},
    "all labels dropped": {"metadata": {"labels": None}},
    "an annotation": {"metadata": {"annotations": {"example.com/a": "b"}}},
    "a taint": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    "a cordon": {"spec": {"unschedulable": True}},
    "a pod network": {"spec": {"podCIDR": "10.0.0.0/24"}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/a"]}},
    "an owner": {
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}]},
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_everything_else_on_a_node_is_refused_with_403(fleet: Fleet, ours: Api, change: str) -> None:
    before = fleet.node("gpu-a", "rtx-a6000")
    assert _refusal(ours, CHANGES[change]) == 403
    after = fleet.api.get(NODES, "gpu-a")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_foreign_label_is_refused_by_server_side_apply_and_json_patch_too(fleet: Fleet, ours: Api) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    with pytest.raises(ApiStatusError) as by_apply:
        ours.apply(NODES, _label("gpu-a", "one", **{"example.com/new": "x"}), field_manager=OURS, force=True)
    with pytest.raises(ApiStatusError) as by_json:
        ours.patch(NODES, "gpu-a", [{"op": "add", "path": "/spec/unschedulable", "value": True}], kind="json")
    assert (by_apply.value.status, by_json.value.status) == (403, 403)
    assert "only the label nvidia.com/device-plugin.config may change" in str(by_apply.value)


def test_other_users_are_not_affected_by_the_fence(fleet: Fleet, ours: Api) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    fleet.set_labels("gpu-a", **{"example.com/new": "x"})
    fleet.api.patch(NODES, "gpu-a", CHANGES["a taint"])


@pytest.mark.parametrize(
    ("verb", "collection", "name"),
    [
        ("get", NODES, "gpu-a"),
        ("delete", NODES, "gpu-a"),
        ("create", NODES, "gpu-new"),
        ("list", "/api/v1/secrets", ""),
        ("list", "/api/v1/pods", ""),
        ("list", config_maps("default"), ""),
        ("create", config_maps("default"), "gpusharing-x"),
        ("list", CRDS, ""),
        ("delete", POLICIES, "pack"),
        ("create", POLICIES, "other"),
        ("create", GPU_NODES, "gpu-a"),
    ],
)
def test_what_rbac_does_not_grant_is_refused(fleet: Fleet, ours: Api, verb: str, collection: str, name: str) -> None:
    fleet.node("gpu-a")
    fleet.policy("pack")
    call = {
        "get": lambda: ours.get(collection, name),
        "delete": lambda: ours.delete(collection, name),
        "create": lambda: ours.create(collection, {"metadata": {"name": name}}),
        "list": lambda: ours.list(collection),
    }[verb]
    with pytest.raises(ApiStatusError) as refusal:
        call()
    assert refusal.value.status == 403


def test_the_status_of_a_node_is_out_of_reach(fleet: Fleet, ours: Api) -> None:
    fleet.node("gpu-a")
    with pytest.raises(ApiStatusError) as refusal:
        ours.patch(NODES, "gpu-a", {"status": {"capacity": {"nvidia.com/gpu": "99"}}}, subresource="status")
    assert refusal.value.status == 403


def test_only_records_may_be_written_in_our_own_namespace(fleet: Fleet, ours: Api) -> None:
    ours.create(config_maps(names.NAMESPACE), {"metadata": {"name": "gpusharing-x"}})

    def refused() -> None:
        assert _creation(ours, "something-else") == 403

    eventually(refused, what="the ConfigMap fence is in force")


def _creation(api: Api, name: str) -> int:
    try:
        api.create(config_maps(names.NAMESPACE), {"metadata": {"name": name}}, dryRun="All")
    except ApiStatusError as error:
        return error.status
    return 201


def _rendered(fleet: Fleet, overlay: Path) -> list[Object]:
    text = fleet.cluster.kubectl("kustomize", str(overlay), "--load-restrictor=LoadRestrictionsNone").stdout
    return [document for document in yaml.safe_load_all(text) if document]


def test_the_rights_are_exactly_these(fleet: Fleet) -> None:
    rules = {
        (document["kind"], document["metadata"]["name"]): document.get("rules", [])
        for document in _rendered(fleet, ROOT / "config" / "default")
        if document["kind"] in {"Role", "ClusterRole"}
    }
    granted = {
        (kind, group, resource, verb)
        for (kind, name), entries in rules.items()
        if name == "gpu-sharing-operator"
        for rule in entries
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        ("ClusterRole", "gpusharing.io", "gpusharingpolicies", "list"),
        ("ClusterRole", "gpusharing.io", "gpusharingpolicies", "watch"),
        ("ClusterRole", "gpusharing.io", "gpunodes", "list"),
        ("ClusterRole", "gpusharing.io", "gpunodes", "watch"),
        ("ClusterRole", "gpusharing.io", "gpusharingpolicies/status", "patch"),
        ("ClusterRole", "apiextensions.k8s.io", "customresourcedefinitions", "get"),
        ("ClusterRole", "", "nodes", "list"),
        ("ClusterRole", "", "nodes", "watch"),
        ("ClusterRole", "", "nodes", "patch"),
        ("ClusterRole", "", "events", "create"),
        ("ClusterRole", "", "events", "patch"),
        ("Role", "", "configmaps", "list"),
        ("Role", "", "configmaps", "create"),
        ("Role", "", "configmaps", "patch"),
        ("Role", "", "configmaps", "delete"),
        ("Role", "coordination.k8s.io", "leases", "create"),
        ("Role", "coordination.k8s.io", "leases", "get"),
        ("Role", "coordination.k8s.io", "leases", "update"),
    }
    words = {word for entries in rules.values() for rule in entries for word in rule["resources"] + rule["verbs"]}
    assert not words & {"*", "secrets", "escalate", "bind", "impersonate", "pods/exec"}


def test_the_controllers_pod_is_restricted_and_nothing_is_a_webhook(fleet: Fleet) -> None:
    documents = _rendered(fleet, ROOT / "config" / "default")
    assert not [document["kind"] for document in documents if "Webhook" in document["kind"]]
    [deployment] = [document for document in documents if document["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert pod["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]["type"]) == (
        True,
        "RuntimeDefault",
    )
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["args"] == ["controller"]


def test_a_renamed_install_takes_its_fence_along(fleet: Fleet, tmp_path: Path) -> None:
    default = os.path.relpath(ROOT / "config" / "default", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{default}]\nnamespace: gpu-tools\n")
    bindings = [
        document for document in _rendered(fleet, tmp_path) if document["kind"] == "ValidatingAdmissionPolicyBinding"
    ]
    assert {binding["spec"]["paramRef"]["namespace"] for binding in bindings} == {"gpu-tools"}


def test_installing_again_changes_nothing(fleet: Fleet) -> None:
    before = fleet.api.get(CRDS, names.POLICIES_CRD)["metadata"]["generation"]
    install(fleet.cluster, again=True)
    assert fleet.api.get(CRDS, names.POLICIES_CRD)["metadata"]["generation"] == before
