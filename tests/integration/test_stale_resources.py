"""config/components/stale-resources: an account that may take dead resource names from Nodes, and do nothing else."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster import Cluster
from tests.support.cluster.api import CRDS, GPU_NODES, NODES, POLICIES, Api, ApiStatusError, Object, config_maps
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.install import install
from tests.support.manifests import CONFIG, DEFAULT, only, overlay, render

from gpusharing.api import names
from gpusharing.controller.settings import Settings
from gpusharing.controller.staleresources import run
from gpusharing.core.errors import ApiError
from gpusharing.core.staleresources import of_a_gpu_plugin

pytestmark = pytest.mark.fault("F51")
COMPONENT = CONFIG / "components" / "stale-resources"
ACCOUNT = "gpu-sharing-stale-resources"
SHARED, MIG = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
PLACE = "place.gpusharing.io/policy.rl-eval.team-a"
DEAD = (SHARED, MIG, PLACE)
SHOWN = {"cpu": "8", "nvidia.com/gpu": "8", **dict.fromkeys(DEAD, "0"), "nvidia.com/rdma": "0", "pods": "110"}
ONLY_DEAD_ONES = "only resources of GPU plugins that have 0 devices may be removed"
NO_OTHERS = "no resource may be added or changed"
NOTHING_ELSE = "nothing of the status but its resources may change"
NO_METADATA = "labels, annotations, finalizers and owners may not change"


def ours(documents: list[Object]) -> list[Object]:
    """What the component adds."""
    return [document for document in documents if document["metadata"]["name"].endswith("stale-resources")]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    return render(overlay(tmp_path_factory.mktemp("stale"), components=[COMPONENT]))


@pytest.fixture(scope="module")
def account(cluster: Cluster, documents: list[Object]) -> Iterator[Path]:
    """A kubeconfig with exactly the component's rights, as long as it stands beside the installed product."""
    install(cluster)
    text = yaml.safe_dump_all(ours(documents))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    yield cluster.kubeconfig_for(ACCOUNT, names.NAMESPACE)
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text)


@pytest.fixture
def cleaner(fleet: Fleet, account: Path) -> Iterator[Api]:
    """The account's client; its fence is in force, and node `gpu-a` has dead names."""
    shows(fleet, "gpu-a", SHOWN)
    with Api(account) as client:
        eventually(partial(_is_fenced, client), what="the fence is in force")
        yield client


@pytest.fixture
def settings(cleaner: Api, account: Path) -> Settings:
    """Without the wait, under the account."""
    return Settings(kubeconfig=str(account), stale_after=0)


def shows(fleet: Fleet, node: str, shown: Mapping[str, str]) -> None:
    """Make a Node that shows these resources."""
    fleet.node(node)
    status = {"capacity": shown, "allocatable": shown}
    fleet.api.patch(NODES, node, {"status": status}, subresource="status")


def reports(fleet: Fleet, node: str, *stale: str, **served: int) -> None:
    """Report as the node's plugin does."""
    rows = [{"name": name, "devices": devices} for name, devices in served.items()]
    body = {"apiVersion": names.API_VERSION, "kind": names.NODE_KIND, "metadata": {"name": node}}
    fleet.api.apply(GPU_NODES, body, field_manager=names.PLUGIN)
    status = {**body, "status": {"staleResources": list(stale), "resources": rows}}
    fleet.api.apply(GPU_NODES, status, field_manager=names.PLUGIN, subresource="status")


def shown(fleet: Fleet, node: str) -> Object:
    """What a Node shows; the same in capacity and allocatable."""
    status = fleet.api.get(NODES, node)["status"]
    assert status["capacity"] == status["allocatable"]
    return dict(status["capacity"])


def try_it(api: Api, body: Any) -> Object:
    """Make a change of a Node's status, merge or JSON patch, but for the last step."""
    content = f"application/{'json' if isinstance(body, list) else 'merge'}-patch+json"
    return api.raw("PATCH", f"{NODES}/gpu-a/status", body, content_type=content, dryRun="All")


def _is_fenced(api: Api) -> None:
    words = ""
    try:
        try_it(api, {"status": {"phase": "Running"}})
    except ApiStatusError as refusal:
        words = str(refusal)
    assert NOTHING_ELSE in words


# --- the command, under the account


async def test_dead_names_are_taken_from_the_node_and_nothing_else_is_changed(
    fleet: Fleet, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    reports(fleet, "gpu-a", *DEAD, **{"nvidia.com/gpu": 8})
    before = fleet.api.get(NODES, "gpu-a")
    assert await run(settings) == 0
    after = fleet.api.get(NODES, "gpu-a")
    assert shown(fleet, "gpu-a") == {name: count for name, count in SHOWN.items() if name not in DEAD}
    for node in (before, after):
        del node["status"]["capacity"], node["status"]["allocatable"]
        del node["metadata"]["resourceVersion"], node["metadata"]["managedFields"]
    assert after == before
    assert capsys.readouterr().out.splitlines()[-3:] == [f"gpu-a: {name} removed" for name in DEAD]


async def test_a_plugin_that_has_left_leaves_names_and_one_that_nobody_reports_is_left_alone(
    fleet: Fleet, settings: Settings
) -> None:
    shows(fleet, "gpu-left", {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "0"})
    reports(fleet, "gpu-left", **{"nvidia.com/gpu": 8})
    assert await run(settings) == 0
    assert shown(fleet, "gpu-left") == {SHARED: "0"}
    assert shown(fleet, "gpu-a") == SHOWN


async def test_a_second_run_has_nothing_to_do(
    fleet: Fleet, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    reports(fleet, "gpu-a", SHARED)
    await run(settings)
    version = fleet.api.get(NODES, "gpu-a")["metadata"]["resourceVersion"]
    capsys.readouterr()
    assert await run(settings) == 0
    assert capsys.readouterr().out == "there is nothing to remove\n"
    assert fleet.api.get(NODES, "gpu-a")["metadata"]["resourceVersion"] == version


async def test_a_report_that_lies_removes_nothing_but_dead_names_of_gpu_plugins(
    fleet: Fleet, settings: Settings
) -> None:
    reports(fleet, "gpu-a", "cpu", "pods", "nvidia.com/rdma", "nvidia.com/gpu")
    assert await run(settings) == 0
    assert shown(fleet, "gpu-a") == SHOWN


@pytest.mark.parametrize("other", [names.COMPONENT, names.PLUGIN])
async def test_no_other_account_of_ours_may_and_the_hint_names_the_component(
    fleet: Fleet, cleaner: Api, other: str
) -> None:
    reports(fleet, "gpu-a", SHARED)
    theirs = fleet.cluster.kubeconfig_for(other, names.NAMESPACE)
    with pytest.raises(ApiError) as refusal:
        await run(Settings(kubeconfig=str(theirs), stale_after=0))
    assert refusal.value.status == 403
    assert "config/components/stale-resources" in refusal.value.hint
    assert shown(fleet, "gpu-a") == SHOWN


# --- the fence


def _removal(name: str, *parts: str) -> list[Object]:
    key = name.replace("/", "~1")
    return [{"op": "remove", "path": f"/status/{part}/{key}"} for part in parts or ("capacity", "allocatable")]


@pytest.mark.parametrize("name", DEAD)
@pytest.mark.parametrize("parts", [("capacity",), ("allocatable",), ()], ids=["capacity", "allocatable", "both"])
def test_a_dead_name_may_go(fleet: Fleet, cleaner: Api, name: str, parts: tuple[str, ...]) -> None:
    cleaner.patch(NODES, "gpu-a", _removal(name, *parts), kind="json", subresource="status")
    status = fleet.api.get(NODES, "gpu-a")["status"]
    assert {part for part in ("capacity", "allocatable") if name not in status[part]} == set(
        parts or ("capacity", "allocatable")
    )


# what else `patch` on nodes/status could do → the words of the refusal
FORBIDDEN: dict[str, tuple[Any, str]] = {
    **{f"remove {name}": (_removal(name), ONLY_DEAD_ONES) for name in SHOWN if name not in DEAD},
    "remove one that lives from allocatable": (_removal("nvidia.com/gpu", "allocatable"), ONLY_DEAD_ONES),
    "remove all": ({"status": {"capacity": None, "allocatable": None}}, ONLY_DEAD_ONES),
    "a dead one and one that lives": (_removal(SHARED) + _removal("nvidia.com/gpu"), ONLY_DEAD_ONES),
    "more devices": ({"status": {"capacity": {"nvidia.com/gpu": "64"}}}, NO_OTHERS),
    "fewer devices": ({"status": {"allocatable": {"nvidia.com/gpu": "0"}}}, NO_OTHERS),
    "revive a dead one": ({"status": {"capacity": {SHARED: "8"}}}, NO_OTHERS),
    "a new one": ({"status": {"allocatable": {"example.com/any": "0"}}}, NO_OTHERS),
    "a condition": ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, NOTHING_ELSE),
    "addresses": ({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}, NOTHING_ELSE),
    "images": ({"status": {"images": [{"names": ["a"], "sizeBytes": 1}]}}, NOTHING_ELSE),
    "node info": ({"status": {"nodeInfo": {"kubeletVersion": "v1.0.0"}}}, NOTHING_ELSE),
    "daemon endpoints": ({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}, NOTHING_ELSE),
    "volumes in use": ({"status": {"volumesInUse": ["a"]}}, NOTHING_ELSE),
    "volumes attached": ({"status": {"volumesAttached": [{"name": "a", "devicePath": "b"}]}}, NOTHING_ELSE),
    "runtime handlers": ({"status": {"runtimeHandlers": [{"name": "a"}]}}, NOTHING_ELSE),
    "features": ({"status": {"features": {"supplementalGroupsPolicy": True}}}, NOTHING_ELSE),
    "phase": ({"status": {"phase": "Running"}}, NOTHING_ELSE),
    "a label": ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, NO_METADATA),
    "an annotation": ({"metadata": {"annotations": {"a": "b"}}}, NO_METADATA),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/a"]}}, NO_METADATA),
}


@pytest.mark.fault("X01")
def test_everything_else_of_a_node_is_refused_and_stays_as_it_was(fleet: Fleet, cleaner: Api) -> None:
    before = fleet.api.get(NODES, "gpu-a")
    for change, (body, words) in FORBIDDEN.items():
        with pytest.raises(ApiStatusError, match=words) as refusal:
            cleaner.patch(
                NODES, "gpu-a", body, kind="json" if isinstance(body, list) else "merge", subresource="status"
            )
        assert refusal.value.status == 403, change
        assert fleet.api.get(NODES, "gpu-a") == before, change
        assert try_it(fleet.api, body) != before, change  # it changes something, and an administrator may


def test_others_are_not_held_up(fleet: Fleet, cleaner: Api) -> None:
    kubelet = {"status": {"capacity": {"nvidia.com/gpu": "4"}, "allocatable": {"nvidia.com/gpu": "4"}}}
    fleet.api.patch(NODES, "gpu-a", kubelet, subresource="status")
    assert shown(fleet, "gpu-a")["nvidia.com/gpu"] == "4"


@pytest.mark.fault("X02")
def test_the_account_has_no_other_right(cleaner: Api) -> None:
    attempts = (
        lambda: cleaner.get(NODES, "gpu-a"),
        lambda: cleaner.patch(NODES, "gpu-a", {"spec": {"unschedulable": True}}),
        lambda: cleaner.delete(NODES, "gpu-a"),
        lambda: cleaner.patch(GPU_NODES, "gpu-a", {"status": {}}, subresource="status"),
        lambda: cleaner.list(POLICIES),
        lambda: cleaner.list(CRDS),
        lambda: cleaner.list(config_maps(names.NAMESPACE)),
        lambda: cleaner.list(f"/api/v1/namespaces/{names.NAMESPACE}/secrets"),
        lambda: cleaner.list("/api/v1/pods"),
    )
    for attempt in attempts:
        with pytest.raises(ApiStatusError, match="cannot") as refusal:
            attempt()
        assert refusal.value.status == 403


# --- the manifests


def test_it_is_off_by_default() -> None:
    assert ours(render(DEFAULT)) == []


def test_the_role_is_as_small_as_it_looks_and_the_accounts_alone(documents: list[Object]) -> None:
    rules = [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in _one(documents, "ClusterRole")["rules"]]
    assert rules == [
        (["gpusharing.io"], ["gpunodes"], ["list"]),
        ([""], ["nodes"], ["list"]),
        ([""], ["nodes/status"], ["patch"]),
    ]
    binding = _one(documents, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == ACCOUNT
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": names.NAMESPACE}]
    others = [document for document in documents if document not in ours(documents)]
    assert ACCOUNT not in str(others)


def test_whoever_gets_the_right_is_the_one_that_is_fenced(documents: list[Object]) -> None:
    fence = _one(documents, "ValidatingAdmissionPolicyBinding")["spec"]
    account = {"name": ACCOUNT, "namespace": names.NAMESPACE}
    assert fence["paramRef"] == {**account, "parameterNotFoundAction": "Allow"}
    assert fence["policyName"] == _one(documents, "ValidatingAdmissionPolicy")["metadata"]["name"]


def test_the_fence_means_the_names_that_the_code_means(documents: list[Object]) -> None:
    variables = _one(documents, "ValidatingAdmissionPolicy")["spec"]["variables"]
    [removable] = [variable["expression"] for variable in variables if variable["name"] == "removable"]
    listed = [names.GPU_RESOURCE, f"{names.GPU_RESOURCE}{names.SHARED_SUFFIX}"]
    prefixes = [f"k.startsWith('{prefix}')" for prefix in (names.MIG_RESOURCE_PREFIX, names.PLACE_DOMAIN)]
    assert f"(k in {listed} || {' || '.join(prefixes)})" in removable
    assert all(map(of_a_gpu_plugin, [*listed, f"{names.MIG_RESOURCE_PREFIX}1g.5gb"]))


@pytest.mark.parametrize("renamed", ["below", "at the top"])
def test_it_follows_a_renamed_install_and_its_image(tmp_path: Path, renamed: str) -> None:
    below = overlay(tmp_path / "below", namespace="gpu-tools", namePrefix="my-")
    if renamed == "below":
        documents = render(overlay(tmp_path / "top", resources=[below], components=[COMPONENT]))
    else:
        documents = render(overlay(tmp_path / "top", components=[COMPONENT], namespace="gpu-tools", namePrefix="my-"))
    account = {"name": _one(documents, "ServiceAccount")["metadata"]["name"], "namespace": "gpu-tools"}
    assert _one(documents, "ServiceAccount")["metadata"]["namespace"] == "gpu-tools"
    assert _one(documents, "ClusterRoleBinding")["subjects"] == [{"kind": "ServiceAccount", **account}]
    fence = _one(documents, "ValidatingAdmissionPolicyBinding")["spec"]["paramRef"]
    assert fence == {**account, "parameterNotFoundAction": "Allow"}
    job = _one(documents, "CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert (job["metadata"]["namespace"], pod["serviceAccountName"]) == ("gpu-tools", account["name"])
    [container] = pod["containers"]
    [controller] = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == controller["image"]
    assert names.NAMESPACE not in str(documents)


def test_the_job_runs_the_command_as_restricted_as_the_controller(documents: list[Object]) -> None:
    pod = _one(documents, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["args"] == ["remove-stale-resources"]
    deployed = only(documents, "Deployment")["spec"]["template"]["spec"]
    for field in ("securityContext", "automountServiceAccountToken", "volumes"):
        assert pod[field] == deployed[field]
    assert container["securityContext"] == deployed["containers"][0]["securityContext"]


def _one(documents: list[Object], kind: str) -> Object:
    return only(ours(documents), kind)
