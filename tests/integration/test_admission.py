"""The admission fences: the controller's account moves one label and its own ConfigMaps, whatever RBAC would allow."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.cluster.api import NODES, Api, ApiStatusError, Object, config_maps
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.manifests import SHARED_LAYOUT, installed, overlay

from gpusharing.api import names

ACCOUNTS = "/api/v1/namespaces/{}/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
NAMESPACES = "/api/v1/namespaces"
OWN = config_maps(names.NAMESPACE)
ONE_LABEL = "only the label nvidia.com/device-plugin.config may change"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "gpu-a",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-L4", names.CONFIG_LABEL: "before"},
        "annotations": {"example.com/note": "theirs"},
    },
    "spec": {"providerID": "example://gpu-a"},
}

# What only we may not do: how it changes the node, and the words of the refusal.
FORBIDDEN: dict[str, tuple[Callable[[Object], object], str]] = {
    "a-label-added": (lambda node: node["metadata"]["labels"].update({"example.com/new": "x"}), ONE_LABEL),
    "a-label-changed": (lambda node: node["metadata"]["labels"].update({"nvidia.com/gpu.product": "x"}), ONE_LABEL),
    "a-label-removed": (lambda node: node["metadata"]["labels"].pop("nvidia.com/gpu.product"), ONE_LABEL),
    "all-labels-dropped": (lambda node: node["metadata"].pop("labels"), ONE_LABEL),
    "the-mig-config": (lambda node: node["metadata"]["labels"].update({"nvidia.com/mig.config": "x"}), ONE_LABEL),
    "ours-and-another": (
        lambda node: node["metadata"]["labels"].update({names.CONFIG_LABEL: "after", "example.com/new": "x"}),
        ONE_LABEL,
    ),
    "an-annotation-added": (lambda node: node["metadata"]["annotations"].update({"a": "b"}), "annotations may not"),
    "an-annotation-removed": (lambda node: node["metadata"].pop("annotations"), "annotations may not change"),
    "a-taint": (
        lambda node: node["spec"].update(taints=[{"key": "a", "effect": "NoExecute"}]),
        "the spec may not change",
    ),
    "a-cordon": (lambda node: node["spec"].update(unschedulable=True), "the spec may not change"),
    "a-pod-network": (
        lambda node: node["spec"].update(podCIDR="10.0.0.0/24", podCIDRs=["10.0.0.0/24"]),
        "the spec may not change",
    ),
    "a-finalizer": (lambda node: node["metadata"].update(finalizers=["example.com/a"]), "finalizers and owners may"),
    "an-owner": (
        lambda node: node["metadata"].update(
            ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}]
        ),
        "finalizers and owners may not change",
    ),
}
WAYS = ("apply", "merge", "strategic", "json")
# An apply takes away only what its own manager holds: there is no removal to try.
TRIED = [
    (change, way)
    for change in FORBIDDEN
    for way in WAYS
    if (change, way)
    not in {("a-label-removed", "apply"), ("all-labels-dropped", "apply"), ("an-annotation-removed", "apply")}
]


@pytest.fixture
def ours(fleet: Fleet, account: Path) -> Iterator[Api]:
    """A client with a token of the controller's account; the fences are in force."""
    with Api(account) as api:
        _is_fenced(fleet.api, api)
        eventually(lambda: _is_refused(api, OWN, "probe"), what="the fence of the ConfigMaps is in force")
        yield api


# --- nodes


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("labels", [None, 1000], ids=["bare", "1,000-labels"])
def test_our_label_may_be_added_changed_and_released(fleet: Fleet, ours: Api, labels: int | None, way: str) -> None:
    said = {f"example.com/{number}": "x" for number in range(labels or 0)} or None
    node = fleet.api.create(NODES, {"metadata": {"name": "gpu-a", "labels": said}})
    for value in ("one", "two", None):
        after = copy.deepcopy(node)
        after["metadata"]["labels"] = {**(said or {}), **({names.CONFIG_LABEL: value} if value else {})}
        node = _write(ours, way, node, after)
        assert node["metadata"].get("labels", {}) == after["metadata"]["labels"]


@pytest.mark.parametrize(("change", "way"), TRIED, ids=["-by-".join(tried) for tried in TRIED])
@pytest.mark.fault("X03")
def test_everything_else_on_a_node_is_refused_with_403_and_leaves_it_as_it_was(
    fleet: Fleet, ours: Api, change: str, way: str
) -> None:
    before = fleet.api.create(NODES, NODE)
    after = copy.deepcopy(before)
    alter, words = FORBIDDEN[change]
    alter(after)
    with pytest.raises(ApiStatusError, match=words) as refusal:
        _write(ours, way, before, after)
    assert refusal.value.status == 403
    assert fleet.api.get(NODES, "gpu-a") == before
    _write(fleet.api, way, before, after)  # the change itself is a valid one: an administrator may make it


def test_another_account_with_the_same_rights_is_not_fenced_even_if_it_has_the_same_name(fleet: Fleet) -> None:
    with _account(fleet, "default", "gpu-sharing-operator") as theirs:
        fleet.api.create(NODES, NODE)
        theirs.patch(NODES, "gpu-a", {"metadata": {"labels": {"example.com/new": "x"}}})
        theirs.patch(NODES, "gpu-a", {"spec": {"unschedulable": True}})


# --- a renamed install


def test_a_renamed_install_is_fenced_and_without_its_account_nobody_is(fleet: Fleet, tmp_path: Path) -> None:
    folder = overlay(tmp_path, namespace="gpu-tools", namePrefix="my-")
    with installed(fleet.cluster, folder):
        with Api(fleet.cluster.kubeconfig_for("my-gpu-sharing-operator", "gpu-tools")) as renamed:
            _is_fenced(fleet.api, renamed)
            renamed.patch(NODES, "probe", {"metadata": {"labels": {names.CONFIG_LABEL: "one"}}})
            renamed.create(config_maps("gpu-tools"), {"metadata": {"name": "gpusharing-a"}})
            _is_refused(renamed, config_maps("gpu-tools"), "somebodys")
            _is_refused(renamed, OWN, "gpusharing-a")

        fleet.api.delete(ACCOUNTS.format("gpu-tools"), "my-gpu-sharing-operator")
        with _account(fleet, "default", "bystander") as bystander:
            for value in ("1", "2", "3"):
                bystander.patch(NODES, "probe", {"metadata": {"labels": {"a": value}}})


# --- ConfigMaps


def test_records_may_be_created_changed_and_deleted(ours: Api) -> None:
    record = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpusharing-gpu-a"}, "data": {"a": "1"}}
    ours.apply(OWN, record, field_manager=names.FIELD_MANAGER)
    ours.apply(OWN, {**record, "data": {"b": "2"}}, field_manager=names.FIELD_MANAGER)
    [stored] = [item for item in ours.list(OWN) if item["metadata"]["name"] == "gpusharing-gpu-a"]
    assert stored["data"] == {"b": "2"}
    ours.delete(OWN, "gpusharing-gpu-a")


@pytest.mark.parametrize("name", ["somebodys", "gpusharing", "my-gpusharing-gpu-a"])
def test_other_configmaps_of_our_namespace_are_out_of_reach(fleet: Fleet, ours: Api, name: str) -> None:
    _is_refused(ours, OWN, name)
    before = fleet.api.create(OWN, {"metadata": {"name": name}, "data": {"a": "1"}})
    for attempt in (
        lambda: ours.patch(OWN, name, {"data": {"a": "2"}}),
        lambda: ours.apply(
            OWN,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"b": "2"}},
            field_manager=names.FIELD_MANAGER,
        ),
        lambda: ours.delete(OWN, name),
    ):
        with pytest.raises(ApiStatusError, match="only ConfigMaps named gpusharing-<node>") as refusal:
            attempt()
        assert refusal.value.status == 403
    assert fleet.api.get(OWN, name) == before


def test_layout_shared_adds_one_configmap_in_the_namespace_of_nvidias_plugin(fleet: Fleet, tmp_path: Path) -> None:
    if "gpu-operator" not in [item["metadata"]["name"] for item in fleet.api.list(NAMESPACES)]:
        fleet.api.create(NAMESPACES, {"metadata": {"name": "gpu-operator"}})
    target = config_maps("gpu-operator")
    shared = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.SHARED_CONFIGMAP}, "data": {"a": "1"}}
    base = overlay(tmp_path / "renamed", namespace="gpu-shared-tools", namePrefix="our-")
    folder = overlay(tmp_path / "with-component", resources=[base], components=[SHARED_LAYOUT])
    with (
        installed(fleet.cluster, folder),
        Api(fleet.cluster.kubeconfig_for("our-gpu-sharing-operator", "gpu-shared-tools")) as ours,
    ):
        eventually(lambda: _is_refused(ours, target, "somebodys"), what="the fence is in force there")
        _is_refused(ours, target, "gpusharing-gpu-a")
        ours.apply(target, shared, field_manager=names.FIELD_MANAGER)
        ours.apply(target, {**shared, "data": {"b": "2"}}, field_manager=names.FIELD_MANAGER)
        assert ours.get(target, names.SHARED_CONFIGMAP)["data"] == {"b": "2"}
        fleet.api.create(target, {"metadata": {"name": "somebodys"}})
        with pytest.raises(ApiStatusError, match="cannot patch resource"):
            ours.patch(target, "somebodys", {"data": {"a": "2"}})
        ours.delete(target, names.SHARED_CONFIGMAP)
    fleet.api.delete(target, "somebodys")


# --- helpers


def _write(api: Api, way: str, before: Object, after: Object) -> Object:
    """Make `after` of `before` in one of the ways in which a patch can be sent."""
    name, change = before["metadata"]["name"], _difference(before, after)
    if way == "apply":
        said = {"apiVersion": "v1", "kind": "Node", **_without_null(change)}
        said["metadata"] = {**said.get("metadata", {}), "name": name, "uid": before["metadata"]["uid"]}
        return api.apply(NODES, said, field_manager=names.FIELD_MANAGER, force=True)
    if way == "strategic":
        kind = "application/strategic-merge-patch+json"
        return api.raw("PATCH", f"{NODES}/{name}", change, content_type=kind)
    if way == "json":
        parts = [{"op": "add", "path": f"/{part}", "value": after[part]} for part in change]
        return api.patch(NODES, name, parts, kind="json")
    return api.patch(NODES, name, change)


def _difference(before: Object, after: Object) -> Object:
    """The merge patch from one to the other."""
    change: Object = dict.fromkeys(key for key in before if key not in after)
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            change |= {key: inner} if (inner := _difference(before[key], value)) else {}
        elif value != before.get(key):
            change[key] = value
    return change


def _without_null(change: Object) -> Object:
    return {
        key: _without_null(value) if isinstance(value, dict) else value
        for key, value in change.items()
        if value is not None
    }


def _refusal(attempt: Callable[[], object]) -> str:
    """Why the API server answers 403; empty = it does not."""
    try:
        attempt()
    except ApiStatusError as error:
        if error.status == 403:
            return str(error)
        raise
    return ""


def _is_fenced(admin: Api, api: Api) -> None:
    """Wait until the API server has the policy: it reads policies anew once a second or so."""
    admin.create(NODES, {"metadata": {"name": "probe", "labels": {"a": "b"}}})
    foreign = {"metadata": {"labels": {"a": "c"}}}
    merge = {"content_type": "application/merge-patch+json", "dryRun": "All"}

    def is_refused() -> None:
        assert ONE_LABEL in _refusal(lambda: api.raw("PATCH", f"{NODES}/probe", foreign, **merge))

    eventually(is_refused, what="the fence of the nodes is in force")


def _is_refused(api: Api, collection: str, name: str) -> None:
    assert _refusal(lambda: api.create(collection, {"metadata": {"name": name}}, dryRun="All")), (
        f"{name} may be created"
    )


@contextmanager
def _account(fleet: Fleet, namespace: str, name: str) -> Iterator[Api]:
    """A client of a new account with the rights of the controller's on nodes."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpu-sharing-operator"}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    fleet.api.create(ACCOUNTS.format(namespace), {"metadata": {"name": name}})
    fleet.api.create(BINDINGS, {"metadata": {"name": f"test-{name}"}, "roleRef": role, "subjects": [subject]})
    try:
        with Api(fleet.cluster.kubeconfig_for(name, namespace)) as api:
            yield api
    finally:
        fleet.api.delete(BINDINGS, f"test-{name}")
        fleet.api.delete(ACCOUNTS.format(namespace), name)
