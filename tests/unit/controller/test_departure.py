"""How cleanup ends the device plugins and has their nodes cleared. On real nodes: tests/e2e/test_kind.py."""

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.install import ROOT
from yaml import safe_load

from gpusharing.api import names
from gpusharing.api.node import READY_CONDITION
from gpusharing.controller import departure
from gpusharing.controller.departure import PATIENCE, Departure, leaving_pod
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths
from gpusharing.kube.client import Page

pytestmark = pytest.mark.looptime
Object = dict[str, Any]
PODS = paths.pods(names.NAMESPACE)
DAEMON_SETS = paths.daemon_sets(names.NAMESPACE)
DAEMON_SET: Object = safe_load((ROOT / "config/deviceplugin/daemonset.yaml").read_text())


class Cluster:
    """Nodes with a plugin each, which ends once its DaemonSet may be nowhere; the pods of cleanup succeed at once."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = {name: {READY_CONDITION, "Ready"} for name in nodes}
        self.plugins = set(nodes)
        self.stubborn: set[str] = set()
        self.daemon_sets = [copy.deepcopy(DAEMON_SET)]
        self.pods: dict[str, Object] = {}
        self.ran: list[str] = []
        self.said: list[str] = []
        self.end: Callable[[str], Object] = lambda node: {"phase": "Succeeded"}
        """How the pod of cleanup on a node ends."""

    async def cleanup(self) -> int:
        return await Departure(self, names.NAMESPACE, "", self.said.append).run()  # type: ignore[arg-type]

    # --- the verbs of `Client`

    async def pages(self, path: str, *, selector: str = "") -> AsyncIterator[Page]:
        found = {
            paths.NODES: [
                {"metadata": {"name": name, "uid": f"u-{name}"}, "status": {"conditions": [{"type": c} for c in has]}}
                for name, has in self.nodes.items()
            ],
            PODS: [{"spec": {"nodeName": name}} for name in sorted(self.plugins)],
            DAEMON_SETS: self.daemon_sets,
        }
        assert path == paths.NODES or selector == departure.PLUGINS
        yield Page(found[path], 1)

    async def merge(self, path: str, body: Object) -> Object:
        assert path == f"{DAEMON_SETS}/{names.PLUGIN}"
        affinity = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        assert affinity == {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
        self.plugins &= self.stubborn
        return body

    async def create(self, path: str, body: Object) -> Object:
        assert (path, body["spec"]["nodeName"] in self.plugins) == (PODS, False)
        self.pods[f"{PODS}/{body['metadata']['name']}"] = body
        return body

    async def get(self, path: str) -> Object:
        pod = self.pods[path]
        self.ran.append(pod["spec"]["nodeName"])
        return {**pod, "status": self.end(pod["spec"]["nodeName"])}

    async def delete(self, path: str) -> None:
        self.pods.pop(path, None)

    async def apply(self, path: str, body: Object, **options: Any) -> Object:
        name = body["metadata"]["name"]
        assert (path, options["manager"]) == (f"{paths.NODES}/{name}/status", names.PLUGIN)
        if name not in self.nodes:
            raise ApiError("not found", status=404)
        assert not body.keys() & {"status"}
        self.nodes[name] -= {READY_CONDITION}
        return body


async def test_every_node_is_cleared_once_its_plugin_has_ended_and_the_condition_goes_last() -> None:
    cluster = Cluster("a", "b")
    cluster.end = lambda node: {"phase": "Succeeded" if READY_CONDITION in cluster.nodes[node] else "Failed"}
    assert await cluster.cleanup() == 0
    assert cluster.ran == ["a", "b"]
    assert cluster.nodes == {"a": {"Ready"}, "b": {"Ready"}}
    assert cluster.pods == {}
    assert cluster.said == ["ended the device plugins; 2 nodes are as they were before"]


async def test_a_second_run_goes_on_with_what_the_first_could_not_do() -> None:
    cluster = Cluster("a", "b")
    said = {"terminated": {"message": "/host/var/lib/gpu-sharing/lock cannot be removed:\n Read-only file system"}}
    failed = {"phase": "Failed", "containerStatuses": [{"state": said}]}
    cluster.end = lambda node: failed if node == "b" else {"phase": "Succeeded"}
    assert await cluster.cleanup() == 1
    assert cluster.nodes == {"a": {"Ready"}, "b": {READY_CONDITION, "Ready"}}
    assert cluster.said[0] == (
        "b: what the device plugin keeps there stays: "
        "/host/var/lib/gpu-sharing/lock cannot be removed: Read-only file system"
    )
    cluster.end = lambda node: {"phase": "Succeeded"}
    assert await cluster.cleanup() == 0
    assert cluster.nodes["b"] == {"Ready"}


async def test_a_plugin_that_does_not_end_keeps_its_files() -> None:
    cluster = Cluster("a", "dead")
    cluster.stubborn = {"dead"}
    assert await cluster.cleanup() == 1
    assert cluster.ran == ["a"]
    assert cluster.nodes == {"a": {"Ready"}, "dead": {READY_CONDITION, "Ready"}}
    assert "dead: what the device plugin keeps there stays: it has not ended" in cluster.said


async def test_a_node_that_does_not_answer_holds_nothing_up_for_ever_and_keeps_no_pod() -> None:
    cluster = Cluster("a")
    cluster.end = lambda node: {"phase": "Pending"}
    assert await cluster.cleanup() == 1
    assert cluster.said[0].endswith(f"gpu-sharing-leave-a did not end within {PATIENCE:.0f} s")
    assert cluster.pods == {}


async def test_a_node_that_goes_meanwhile_is_cleared() -> None:
    cluster = Cluster("a")

    def end(node: str) -> Object:
        cluster.nodes.pop(node, None)
        return {"phase": "Succeeded"}

    cluster.end = end
    assert await cluster.cleanup() == 0


async def test_without_our_plugin_nothing_is_done_and_nothing_said() -> None:
    cluster = Cluster()
    cluster.nodes = {"a": {"Ready"}}
    cluster.daemon_sets = []
    assert await cluster.cleanup() == 0
    assert (cluster.ran, cluster.said) == ([], [])


async def test_without_the_daemon_set_it_is_said_that_files_stay() -> None:
    cluster = Cluster("a")
    cluster.daemon_sets, cluster.plugins = [], set()
    assert await cluster.cleanup() == 1
    assert cluster.said == [
        "the device plugins' DaemonSet is gone, and their files stay on 1 nodes: apply it again and repeat this"
    ]
    assert READY_CONDITION in cluster.nodes["a"]


async def test_without_the_right_the_plugins_stay_and_that_is_said() -> None:
    class Forbidden(Cluster):
        async def merge(self, path: str, body: Object) -> Object:
            raise ApiError("daemonsets may not be patched", status=403)

    cluster = Forbidden("a")
    assert await cluster.cleanup() == 1
    assert cluster.plugins == {"a"}
    assert cluster.said == [
        "the device plugins stay, with what they keep on their nodes: daemonsets may not be patched"
    ]


def test_the_pod_sees_the_folders_beside_the_plugins_and_gives_no_more_rights_than_it_has() -> None:
    pod = leaving_pod(DAEMON_SET, "gpu-a")["spec"]
    [container] = pod["containers"]
    plugin = DAEMON_SET["spec"]["template"]["spec"]
    assert container["args"] == [
        "leave-node",
        "--state-dir=/host/var/lib/gpu-sharing",
        "--cdi-dir=/host/var/run/cdi",
    ]
    assert {volume["hostPath"]["path"] for volume in pod["volumes"]} == {"/var/lib", "/var/run"}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/host/var/lib", "/host/var/run"}
    assert container["securityContext"] == plugin["containers"][0]["securityContext"]
    assert pod["securityContext"] == plugin["securityContext"]
    assert (pod["nodeName"], pod["automountServiceAccountToken"]) == ("gpu-a", False)


def test_two_folders_in_one_are_mounted_once() -> None:
    moved = copy.deepcopy(DAEMON_SET)
    volumes = {volume["name"]: volume for volume in moved["spec"]["template"]["spec"]["volumes"]}
    volumes["state"]["hostPath"]["path"] = "/data/state"
    volumes["cdi"]["hostPath"]["path"] = "/data/cdi"
    pod = leaving_pod(moved, "a")["spec"]
    assert [volume["hostPath"]["path"] for volume in pod["volumes"]] == ["/data"]
    assert pod["containers"][0]["args"] == ["leave-node", "--state-dir=/host/data/state", "--cdi-dir=/host/data/cdi"]
