"""The fences around the in-node plugins: one account for all of them, and yet each writes about its own node only.

A token of a plugin is bound to its pod, and so names the node: a stolen one is worth no more than that node.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.support.cluster.api import CRDS, GPU_NODES, NODES, POLICIES, Api, ApiStatusError, Object, config_maps
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.manifests import installed, overlay
from tests.support.plugintokens import token_of_node, token_of_pod

from gpusharing.api import names
from gpusharing.core.nodeproblems import Observed
from gpusharing.deviceplugin.stalenames import StaleNames
from gpusharing.kube.client import connect

NAMESPACE = f"/api/v1/namespaces/{names.NAMESPACE}"
PODS = f"{NAMESPACE}/pods"
ACCOUNTS = f"{NAMESPACE}/serviceaccounts"
APPS = f"/apis/apps/v1/namespaces/{names.NAMESPACE}"
BATCH = f"/apis/batch/v1/namespaces/{names.NAMESPACE}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONDITION = {
    "type": "GpuSharingReady",
    "status": "True",
    "reason": "Serving",
    "message": "nvidia.com/gpu: 8 devices.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
OWN_NODE_ONLY = "may write only the GpuNode of its own node"
OWN_STATUS_ONLY = "may write the status of its own node only"
CONTAINER = {"name": "main", "image": "example"}


@dataclass(frozen=True)
class Nodes:
    """Two nodes, and the plugin of the first."""

    fleet: Fleet
    plugin: Api

    def node(self, name: str = "gpu-a") -> Object:
        return self.fleet.api.get(NODES, name)


@pytest.fixture
def nodes(fleet: Fleet) -> Iterator[Nodes]:
    """Nodes `gpu-a` and `gpu-b`, and a client with the token of a plugin's pod on `gpu-a`; the fences are in force."""
    fleet.nodes("gpu-a", "gpu-b")
    with Api(_token_of_a_pod(fleet, names.PLUGIN, "gpu-a")) as plugin:
        _is_fenced(plugin, "gpu-b")
        yield Nodes(fleet, plugin)
    _remove_pods(fleet)


# --- GpuNode


def test_a_plugin_writes_the_report_of_its_own_node(nodes: Nodes) -> None:
    _make(nodes.plugin, "gpu-a")
    _report(nodes.plugin, "gpu-a", "one")
    _report(nodes.plugin, "gpu-a", "two")
    assert nodes.fleet.report("gpu-a")["config"]["served"] == "two"


WRITES: dict[str, Callable[[Api], object]] = {
    "create": lambda api: api.create(GPU_NODES, _gpu_node("gpu-b")),
    "create-by-apply": lambda api: _make(api, "gpu-c"),
    "create-without-a-name": lambda api: api.create(
        GPU_NODES, {**_gpu_node(""), "metadata": {"generateName": "gpu-a"}}
    ),
    "apply": lambda api: _make(api, "gpu-b"),
    "merge": lambda api: api.patch(GPU_NODES, "gpu-b", {"metadata": {"labels": {"a": "b"}}}),
    "json": lambda api: api.patch(
        GPU_NODES, "gpu-b", [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], kind="json"
    ),
    "status-by-apply": lambda api: _report(api, "gpu-b", "theirs"),
    "status-by-merge": lambda api: api.patch(
        GPU_NODES, "gpu-b", {"status": {"config": {"served": "theirs"}}}, subresource="status"
    ),
}


@pytest.mark.fault("X01")
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_plugin_writes_no_report_of_another_node(nodes: Nodes, write: Callable[[Api], object]) -> None:
    if write is not WRITES["create"]:
        _make(nodes.fleet.api, "gpu-b")
    before = nodes.fleet.api.list(GPU_NODES)
    assert OWN_NODE_ONLY in _refusal(lambda: write(nodes.plugin))
    assert nodes.fleet.api.list(GPU_NODES) == before


@pytest.mark.fault("X01")
def test_a_token_that_is_bound_to_no_pod_writes_nothing_not_even_of_a_node_that_is_there(nodes: Nodes) -> None:
    with Api(nodes.fleet.cluster.kubeconfig_for(names.PLUGIN, names.NAMESPACE)) as unbound:
        assert OWN_NODE_ONLY in _refusal(lambda: _make(unbound, "gpu-a"))
        assert OWN_STATUS_ONLY in _refusal(lambda: _say(unbound, "gpu-a"))


def test_a_token_that_is_bound_to_the_node_itself_counts_as_one_of_a_pod_there(nodes: Nodes) -> None:
    with Api(token_of_node(nodes.fleet, "gpu-b")) as plugin:
        _make(plugin, "gpu-b")
        assert OWN_NODE_ONLY in _refusal(lambda: _make(plugin, "gpu-a"))


@pytest.mark.fault("X01")
def test_a_token_of_another_account_names_a_node_in_vain(nodes: Nodes) -> None:
    controller_on_the_node = _token_of_a_pod(nodes.fleet, names.COMPONENT, "gpu-a")
    with Api(controller_on_the_node) as controller:
        assert "cannot" in _refusal(lambda: _make(controller, "gpu-a"))


def test_administrators_write_reports_as_they_like(nodes: Nodes) -> None:
    _make(nodes.fleet.api, "gpu-b")
    _report(nodes.fleet.api, "gpu-b", "by-hand")
    nodes.fleet.api.delete(GPU_NODES, "gpu-b")


# --- the node's status


@pytest.mark.parametrize("way", ["apply", "merge", "strategic"])
def test_a_plugin_writes_its_condition_on_its_own_node_beside_those_of_others(nodes: Nodes, way: str) -> None:
    other = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
    nodes.fleet.api.patch(NODES, "gpu-a", {"status": {"conditions": [other]}}, subresource="status")
    _say(nodes.plugin, "gpu-a", way)
    said = {condition["type"]: condition["status"] for condition in nodes.node()["status"]["conditions"]}
    assert said == {"Ready": "True", "GpuSharingReady": "True"}


@pytest.mark.fault("X01")
@pytest.mark.parametrize("way", ["apply", "merge", "strategic"])
def test_a_plugin_writes_no_condition_on_another_node(nodes: Nodes, way: str) -> None:
    assert OWN_STATUS_ONLY in _refusal(lambda: _say(nodes.plugin, "gpu-b", way))
    assert "conditions" not in nodes.node("gpu-b")["status"]


# --- names of placements that the kubelet keeps

DEAD, ALIVE, HALF = (f"place.gpusharing.io/{it}.rl-eval.team-a" for it in ("judge", "policy", "embed"))
SHOWN = {"cpu": "8", "nvidia.com/gpu": "8", "nvidia.com/mig-1g.5gb": "0", DEAD: "0", ALIVE: "2", HALF: "0"}


def _shows_names(nodes: Nodes, node: str = "gpu-a") -> None:
    status = {"capacity": SHOWN, "allocatable": {**SHOWN, HALF: "1"}}
    nodes.fleet.api.patch(NODES, node, {"status": status}, subresource="status")


def _removal(name: str, *parts: str) -> list[Object]:
    key = name.replace("/", "~1")
    return [{"op": "remove", "path": f"/status/{part}/{key}"} for part in parts or ("capacity", "allocatable")]


@pytest.mark.fault("F51")
async def test_a_plugin_takes_dead_names_of_placements_from_its_own_node_and_changes_nothing_else(nodes: Nodes) -> None:
    _shows_names(nodes)
    before = nodes.node()
    client = await connect(str(_token_of_a_pod(nodes.fleet, names.PLUGIN, "gpu-a")), "", timeout=60.0)
    stale = StaleNames(client, "gpu-a", after=0.0)
    task = asyncio.create_task(stale.run())
    try:
        stale.see(Observed())
        stale.see_node(before)
        async with asyncio.timeout(60):
            while DEAD in (after := await asyncio.to_thread(nodes.node))["status"]["capacity"]:
                await asyncio.sleep(0.05)
    finally:
        task.cancel()
        await client.close()
    for part in ("capacity", "allocatable"):
        assert before["status"][part].pop(DEAD) == "0"
    for node in (before, after):
        del node["metadata"]["resourceVersion"], node["metadata"]["managedFields"]
    assert after == before


NO_RESOURCES = "only names of placements that have 0 devices may be removed, and no resource may change"
OTHER_RESOURCES: dict[str, list[Object]] = {
    **{f"remove {name}": _removal(name) for name in SHOWN if name != DEAD},
    "remove one that pods can have from the capacity": _removal(HALF, "capacity"),
    "a dead one and one that lives": _removal(DEAD) + _removal(ALIVE),
    "revive a dead one": [{"op": "replace", "path": _removal(DEAD)[0]["path"], "value": "2"}],
    "more devices": [{"op": "replace", "path": _removal(ALIVE)[1]["path"], "value": "4"}],
    "none any more": [{"op": "replace", "path": _removal(ALIVE)[1]["path"], "value": "0"}],
    "a new name": [{"op": "add", "path": f"{_removal(DEAD)[0]['path']}-2", "value": "0"}],
    "all": [{"op": "remove", "path": "/status/capacity"}, {"op": "remove", "path": "/status/allocatable"}],
}


@pytest.mark.fault("X01")
def test_no_other_resource_may_be_removed_nor_any_changed(nodes: Nodes) -> None:
    _shows_names(nodes)
    before = nodes.node()
    for change, steps in OTHER_RESOURCES.items():
        attempt = partial(nodes.plugin.patch, NODES, "gpu-a", steps, kind="json", subresource="status")
        assert NO_RESOURCES in _refusal(attempt), change
        steps_of_an_administrator = {"content_type": "application/json-patch+json", "dryRun": "All"}
        assert nodes.fleet.api.raw("PATCH", f"{NODES}/gpu-a/status", steps, **steps_of_an_administrator) != before
    assert nodes.node() == before


@pytest.mark.fault("X01")
def test_a_plugin_takes_no_dead_name_from_another_node(nodes: Nodes) -> None:
    _shows_names(nodes, "gpu-b")
    attempt = partial(nodes.plugin.patch, NODES, "gpu-b", _removal(DEAD), kind="json", subresource="status")
    assert OWN_STATUS_ONLY in _refusal(attempt)


# --- what else of a Node's status there is

ONLY_CONDITIONS = "nothing of the status but its conditions may change"
# What `patch` on nodes/status could do beside: how it changes the node, and the words of the refusal.
FORBIDDEN: dict[str, tuple[Object, str]] = {
    "capacity": ({"status": {"capacity": {"nvidia.com/gpu": "64"}}}, NO_RESOURCES),
    "allocatable": ({"status": {"allocatable": {"nvidia.com/gpu": "64"}}}, NO_RESOURCES),
    "addresses": ({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}, ONLY_CONDITIONS),
    "images": ({"status": {"images": [{"names": ["a"], "sizeBytes": 1}]}}, ONLY_CONDITIONS),
    "node-info": ({"status": {"nodeInfo": {"kubeletVersion": "v1.0.0"}}}, ONLY_CONDITIONS),
    "daemon-endpoints": ({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}, ONLY_CONDITIONS),
    "volumes-in-use": ({"status": {"volumesInUse": ["a"]}}, ONLY_CONDITIONS),
    "volumes-attached": ({"status": {"volumesAttached": [{"name": "a", "devicePath": "b"}]}}, ONLY_CONDITIONS),
    "runtime-handlers": ({"status": {"runtimeHandlers": [{"name": "a"}]}}, ONLY_CONDITIONS),
    "features": ({"status": {"features": {"supplementalGroupsPolicy": True}}}, ONLY_CONDITIONS),
    "phase": ({"status": {"phase": "Running"}}, ONLY_CONDITIONS),
    "label": ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, "labels, annotations"),
    "all-labels": ({"metadata": {"labels": None}}, "labels, annotations"),
    "annotation": ({"metadata": {"annotations": {"a": "b"}}}, "labels, annotations"),
    "finalizer": ({"metadata": {"finalizers": ["example.com/a"]}}, "labels, annotations"),
    "owner": (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}]}},
        "labels, annotations",
    ),
    "another-condition": ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "only the condition"),
    "ours-and-another": (
        {"status": {"conditions": [CONDITION, {"type": "Ready", "status": "False"}]}},
        "only the condition",
    ),
    "all-conditions": ({"status": {"conditions": None}}, "only the condition GpuSharingReady may change"),
    "the-whole-status": ({"status": None}, "may change"),
}


@pytest.mark.fault("X01")
@pytest.mark.parametrize("words", sorted({words for _, words in FORBIDDEN.values()}))
def test_everything_else_of_its_own_node_is_refused_and_stays_as_it_was(nodes: Nodes, words: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
    status = {"conditions": [ready], "capacity": {"cpu": "8", "nvidia.com/gpu": "8"}}
    nodes.fleet.api.patch(NODES, "gpu-a", {"status": status}, subresource="status")
    before = nodes.node()
    for change, body in ((change, body) for change, (body, why) in FORBIDDEN.items() if why == words):
        assert words in _refusal(partial(nodes.plugin.patch, NODES, "gpu-a", body, subresource="status")), change
        assert nodes.node() == before
        # it is a valid change, and it changes something: an administrator may make it
        merge = {"content_type": "application/merge-patch+json", "dryRun": "All"}
        assert nodes.fleet.api.raw("PATCH", f"{NODES}/gpu-a/status", body, **merge) != before, change


# --- rights: the whole matrix (X02)

SECRETS, ANY = f"{NAMESPACE}/secrets", {"metadata": {"name": "any"}}
VERBS: dict[str, Callable[[Api, str], object]] = {
    "get": lambda api, where: api.get(where, "gpu-a"),
    "list": lambda api, where: api.list(where),
    "watch": lambda api, where: next(api.watch(where, timeoutSeconds="1"), None),
    "create": lambda api, where: api.create(where, ANY),
    "update": lambda api, where: api.replace(where, {"metadata": {"name": "gpu-a"}}),
    "patch": lambda api, where: api.patch(where, "gpu-a", {"metadata": {"labels": {"a": "b"}}}),
    "delete": lambda api, where: api.delete(where, "gpu-a"),
    "deletecollection": lambda api, where: api.delete_collection(where),
}
# collection → verbs that are granted; the writes among them are fenced
MATRIX = {
    NODES: {"get", "list", "watch"},
    GPU_NODES: {"get", "list", "watch", "create", "patch"},
    POLICIES: set(),
    CRDS: set(),
    config_maps(names.NAMESPACE): {"get", "list", "watch"},
    config_maps("kube-system"): set(),
    SECRETS: set(),
    PODS: set(),
    "/api/v1/pods": set(),
    ACCOUNTS: set(),
    f"{APPS}/daemonsets": set(),
    f"{RBAC}/clusterroles": set(),
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies": set(),
    "/api/v1/namespaces/default/events": {"create", "patch"},
}
# a collection of all namespaces takes no names
WITHOUT_NAMES = {"/api/v1/pods"}


@pytest.mark.fault("X02")
@pytest.mark.parametrize("where", MATRIX)
def test_whatever_is_not_granted_is_refused_with_403(nodes: Nodes, where: str) -> None:
    tried = VERBS.keys() - MATRIX[where] - (VERBS.keys() - {"list", "watch"} if where in WITHOUT_NAMES else set())
    allowed = [verb for verb in sorted(tried) if "cannot" not in _refusal(partial(VERBS[verb], nodes.plugin, where))]
    assert allowed == []


@pytest.mark.fault("X02")
def test_a_plugin_gets_no_token_of_anybody_and_no_way_into_a_pod_or_a_node(nodes: Nodes) -> None:
    for attempt in (
        lambda: nodes.plugin.raw("POST", f"{ACCOUNTS}/{names.PLUGIN}/token", {}),
        lambda: nodes.plugin.raw("POST", f"{PODS}/plugin-on-gpu-a/exec"),
        lambda: nodes.plugin.raw("GET", f"{NODES}/gpu-a/proxy/metrics"),
        lambda: nodes.plugin.raw("GET", "/logs/"),
    ):
        assert _refusal(attempt)


def test_what_a_plugin_reads_is_allowed(nodes: Nodes) -> None:
    own = {"fieldSelector": "metadata.name=gpu-a"}
    assert [item["metadata"]["name"] for item in nodes.plugin.list(NODES, **own)] == ["gpu-a"]
    assert nodes.plugin.list(config_maps(names.NAMESPACE), fieldSelector="metadata.name=gpusharing-gpu-a") == []
    assert nodes.plugin.list(GPU_NODES, **own) == []


# --- a renamed install


@pytest.mark.fault("X01")
def test_a_renamed_install_is_fenced_by_the_account_as_it_is_rendered(fleet: Fleet, tmp_path: Path) -> None:
    fleet.nodes("gpu-a", "gpu-b")
    account = f"my-{names.PLUGIN}"
    with installed(fleet.cluster, overlay(tmp_path, namespace="gpu-fenced", namePrefix="my-")):
        with Api(token_of_node(fleet, "gpu-a", account=account, namespace="gpu-fenced")) as renamed:
            _is_fenced(renamed, "gpu-b")
            _make(renamed, "gpu-a")
            _say(renamed, "gpu-a")
            assert NO_RESOURCES in _refusal(
                lambda: renamed.patch(NODES, "gpu-a", FORBIDDEN["capacity"][0], subresource="status")
            )
        with _tenant(fleet, "gpu-fenced") as tenant:
            pods = "/api/v1/namespaces/gpu-fenced/pods"
            eventually(lambda: _must_be_refused(tenant, pods), what="no foreign pods in the renamed namespace")


# --- foreign pods


@pytest.fixture
def tenant(fleet: Fleet) -> Iterator[Api]:
    """Somebody who may do in our namespace whatever a Role can allow."""
    _with_account(fleet, names.NAMESPACE)  # `default`, for pods that name none
    with _tenant(fleet, names.NAMESPACE) as api:
        eventually(lambda: _must_be_refused(api, PODS), what="no foreign pods in our namespace")
        yield api


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER], "restartPolicy": "Always"}}
ONCE = {**TEMPLATE, "spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
WORKLOADS: dict[str, tuple[str, Object]] = {
    "pod": (PODS, {"spec": {"containers": [CONTAINER]}}),
    "pod-with-our-account": (PODS, {"spec": {"containers": [CONTAINER], "serviceAccountName": names.PLUGIN}}),
    "replication-controller": (f"{NAMESPACE}/replicationcontrollers", {"spec": {"template": TEMPLATE}}),
    "deployment": (f"{APPS}/deployments", {"spec": SELECTED}),
    "replica-set": (f"{APPS}/replicasets", {"spec": SELECTED}),
    "daemon-set": (f"{APPS}/daemonsets", {"spec": SELECTED}),
    "stateful-set": (f"{APPS}/statefulsets", {"spec": {**SELECTED, "serviceName": "a"}}),
    "job": (f"{BATCH}/jobs", {"spec": {"template": ONCE}}),
    "cron-job": (
        f"{BATCH}/cronjobs",
        {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ONCE}}}},
    ),
}
NO_FOREIGN_PODS = "only who may change admission policies may run pods beside the GPU device plugin"


@pytest.mark.fault("X09")
def test_a_tenant_runs_nothing_in_our_namespace_and_an_administrator_may(fleet: Fleet, tenant: Api) -> None:
    for kind, (where, body) in WORKLOADS.items():
        named = {**body, "metadata": {"name": "theirs"}}
        assert NO_FOREIGN_PODS in _refusal(partial(tenant.create, where, named)), kind
        fleet.api.create(where, named, dryRun="All")


@pytest.mark.fault("X09")
def test_a_tenant_does_not_change_what_our_pods_run_nor_gets_into_them(fleet: Fleet, tenant: Api) -> None:
    daemonset = {"spec": {"template": {"spec": {"containers": [{"name": "device-plugin", "image": "theirs"}]}}}}
    strategic = {"content_type": "application/strategic-merge-patch+json"}
    pod = fleet.api.create(PODS, {"metadata": {"name": "ours"}, "spec": {"containers": [CONTAINER]}})
    debugging = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "theirs"}]}}
    image = {"spec": {"containers": [{"name": "main", "image": "theirs"}]}}
    for attempt in (
        lambda: tenant.raw("PATCH", f"{APPS}/daemonsets/{names.PLUGIN}", daemonset, **strategic),
        lambda: tenant.raw("PATCH", f"{PODS}/ours", image, **strategic),
        lambda: tenant.raw("PATCH", f"{PODS}/ours/ephemeralcontainers", debugging, **strategic),
        lambda: tenant.raw("POST", f"{PODS}/ours/exec", command="sh", stdin="true"),
        lambda: tenant.raw("POST", f"{PODS}/ours/attach", stdin="true"),
        lambda: tenant.raw("GET", f"{PODS}/ours/proxy/"),
    ):
        assert NO_FOREIGN_PODS in _refusal(attempt)
    tenant.patch(PODS, "ours", {"metadata": {"labels": {"a": "b"}}})  # harmless: what it runs stays the same
    assert fleet.api.get(PODS, "ours")["spec"] == pod["spec"]
    _remove_pods(fleet)


OF_KUBERNETES = {
    "daemon-set-controller": PODS,
    "replicaset-controller": PODS,
    "job-controller": PODS,
    "deployment-controller": f"{APPS}/replicasets",
}


def test_kubernetes_own_controllers_turn_our_workloads_into_pods(fleet: Fleet, tenant: Api) -> None:
    del tenant  # the fence is in force
    for controller, where in OF_KUBERNETES.items():
        _with_account(fleet, "kube-system", controller)
        body = {"spec": {"containers": [CONTAINER]}} if where == PODS else {"spec": SELECTED}
        with Api(fleet.cluster.kubeconfig_for(controller, "kube-system")) as api:
            api.create(where, {"metadata": {"name": "made"}, **body}, dryRun="All")


@pytest.mark.fault("X09")
def test_accounts_that_only_sound_like_kubernetes_own_are_tenants(fleet: Fleet, tenant: Api) -> None:
    del tenant  # the fence is in force
    account = "daemon-set-controller"
    with _tenant(fleet, names.NAMESPACE, account) as theirs:
        assert NO_FOREIGN_PODS in _refusal(
            lambda: theirs.create(PODS, {"metadata": {"name": "a"}, **WORKLOADS["pod"][1]})
        )


def test_pods_elsewhere_are_nobodys_business(fleet: Fleet) -> None:
    _with_account(fleet, "default")
    with _tenant(fleet, "default") as tenant:
        body = {"metadata": {"name": "theirs"}, **WORKLOADS["pod"][1]}
        tenant.create("/api/v1/namespaces/default/pods", body, dryRun="All")


# --- cost


def test_a_node_with_fifty_images_and_a_hundred_labels_is_within_the_cost_that_the_api_server_allows(
    nodes: Nodes,
) -> None:
    images = [
        {"names": [f"registry.example/{n}@sha256:{n:064}", f"registry.example/{n}:v1"], "sizeBytes": n}
        for n in range(50)
    ]
    conditions = [{"type": f"Condition{n}", "status": "True", "reason": "A", "message": "x" * 200} for n in range(20)]
    labels = {f"example.com/{n}": "x" * 60 for n in range(100)}
    nodes.fleet.api.patch(NODES, "gpu-a", {"metadata": {"labels": labels, "annotations": {"a": "x" * 20_000}}})
    nodes.fleet.api.patch(
        NODES, "gpu-a", {"status": {"images": images, "conditions": conditions}}, subresource="status"
    )
    _say(nodes.plugin, "gpu-a")
    assert len(nodes.node()["status"]["conditions"]) == 21
    assert "only the condition" in _refusal(
        lambda: nodes.plugin.patch(NODES, "gpu-a", {"status": {"conditions": conditions[:19]}}, subresource="status")
    )


# --- helpers


def _gpu_node(name: str) -> Object:
    return {"apiVersion": names.API_VERSION, "kind": names.NODE_KIND, "metadata": {"name": name}}


def _make(api: Api, name: str) -> object:
    return api.apply(GPU_NODES, _gpu_node(name), field_manager=names.PLUGIN, force=True)


def _report(api: Api, name: str, served: str) -> object:
    body = {**_gpu_node(name), "status": {"config": {"served": served}}}
    return api.apply(GPU_NODES, body, field_manager=names.PLUGIN, force=True, subresource="status")


def _say(api: Api, node: str, way: str = "apply") -> object:
    """Write GpuSharingReady of a node."""
    if way == "apply":
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": {"conditions": [CONDITION]}}
        return api.apply(NODES, body, field_manager=names.PLUGIN, force=True, subresource="status")
    if way == "strategic":
        kind = "application/strategic-merge-patch+json"
        return api.raw("PATCH", f"{NODES}/{node}/status", {"status": {"conditions": [CONDITION]}}, content_type=kind)
    before = api.get(NODES, node)["status"].get("conditions", [])
    return api.patch(NODES, node, {"status": {"conditions": [*before, CONDITION]}}, subresource="status")


def _refusal(attempt: Callable[[], object]) -> str:
    """Why the API server answers 403; empty = it does not."""
    try:
        attempt()
    except ApiStatusError as error:
        if error.status == 403:
            return str(error)
        raise
    return ""


def _is_fenced(plugin: Api, other: str) -> None:
    """Wait until the API server has both policies: it reads policies anew once a second or so."""

    def is_refused() -> None:
        merge = {"content_type": "application/merge-patch+json", "dryRun": "All"}
        status = {"status": {"conditions": [CONDITION]}}
        assert OWN_STATUS_ONLY in _refusal(lambda: plugin.raw("PATCH", f"{NODES}/{other}/status", status, **merge))
        assert OWN_NODE_ONLY in _refusal(lambda: plugin.create(GPU_NODES, _gpu_node(other), dryRun="All"))

    eventually(is_refused, what="the fences of the plugins are in force")


def _must_be_refused(api: Api, pods: str) -> None:
    body = {"metadata": {"name": "probe"}, "spec": {"containers": [CONTAINER], "serviceAccountName": "tenant"}}
    assert NO_FOREIGN_PODS in _refusal(lambda: api.create(pods, body, dryRun="All"))


def _remove_pods(fleet: Fleet) -> None:
    for pod in fleet.api.list(PODS):
        fleet.api.raw("DELETE", f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds="0")


def _token_of_a_pod(fleet: Fleet, account: str, node: str) -> Path:
    """A kubeconfig with a token as a pod of that account on that node has it."""
    name = f"{account}-on-{node}"
    spec = {"serviceAccountName": account, "nodeName": node, "containers": [CONTAINER]}
    if name not in [item["metadata"]["name"] for item in fleet.api.list(PODS)]:
        fleet.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    return token_of_pod(fleet, fleet.api.get(PODS, name), account)


@contextmanager
def _tenant(fleet: Fleet, namespace: str, name: str = "tenant") -> Iterator[Api]:
    """A client of an account with every right in the namespace that a Role can give."""
    _with_account(fleet, namespace, name)
    roles, bindings = (f"{RBAC}/namespaces/{namespace}/{kind}" for kind in ("roles", "rolebindings"))
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": f"test-{name}"}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    fleet.api.create(roles, {"metadata": {"name": f"test-{name}"}, "rules": [everything]})
    fleet.api.create(bindings, {"metadata": {"name": f"test-{name}"}, "roleRef": role, "subjects": [subject]})
    try:
        with Api(fleet.cluster.kubeconfig_for(name, namespace)) as api:
            yield api
    finally:
        fleet.api.delete(bindings, f"test-{name}")
        fleet.api.delete(roles, f"test-{name}")


def _with_account(fleet: Fleet, namespace: str, name: str = "default") -> None:
    """Make the account, which no controller does here."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if name not in [item["metadata"]["name"] for item in fleet.api.list(accounts)]:
        fleet.api.create(accounts, {"metadata": {"name": name}})
