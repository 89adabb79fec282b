"""A real node with GPUs (simulated ones), the real controller and the real in-node plugin: the whole product.

What stands for a GPU in a container is a device node of the harness, so that a test can see which ones open.
"""

import json
import os
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.support.cluster.api import GPU_NODES, POLICIES, Object
from tests.support.cluster.local import free_ports
from tests.support.cluster.node import GPU, RealNode
from tests.support.controller import Controller
from tests.support.devicenodes import make_device_nodes
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, policy_object
from tests.support.forked import fork
from tests.support.frozen import freeze
from tests.support.install import install
from tests.support.pods import Pod

from gpusharing.api import names

POLICY = "shared"
GPUS = 4
MOST_GPUS, MOST_CAPABILITIES = 16, 128
"""So many device nodes are there, whichever GPUs the node has."""
MODEL = {"model": "NVIDIA A100-SXM4-40GB", "memoryMiB": 40960}
PASSING = {"passDeviceSpecs": True, "deviceListStrategy": ["envvar"]}
"""What a policy says so that containers get device nodes, and only theirs."""
TENTH = {
    "change-spacing": "0s",
    "first-request-within": "0.5s",
    "report-spacing": "0.2s",
    "occupancy-spacing": "1.5s",
    "request-timeout": "3s",
    "retry-max": "1s",
}
"""Durations of the plugin that the tests do not wait out."""


def gpu_uuid(index: int) -> str:
    """The UUID of a GPU of `inventory`."""
    return f"GPU-00000000-0000-0000-0000-{index:012}"


def inventory(
    count: int = GPUS,
    *,
    mig: Mapping[int, Sequence[tuple[str, int]]] | None = None,
    linked: Sequence[tuple[int, int]] = (),
    faults: Sequence[Object] = (),
) -> Object:
    """So many A100; `mig` = index → profile and start of each MIG device, `linked` = which pairs NVLink joins."""
    gpus: list[dict[str, Any]] = [
        {"index": index, **MODEL, "numaNode": 0, "uuid": gpu_uuid(index)} for index in range(count)
    ]
    for index, devices in (mig or {}).items():
        made = [{"profile": profile, "start": start} for profile, start in devices]
        gpus[index] |= {"migMode": True, "migDevices": made}
    return {
        "name": "e2e",
        "migCapable": True,
        "nvlinkVia": "direct" if linked else "none",
        "gpus": gpus,
        "links": [[12 if {(at, to), (to, at)} & {*linked} else 0 for to in range(count)] for at in range(count)],
        "pci": [["X" if at == to else "NODE" for to in range(count)] for at in range(count)],
        "faults": list(faults),
    }


class PluginEnded(Exception):
    """It ended although nobody asked it to."""


class Plugin:
    """`gpusharing device-plugin` as a process on a real node, with the right of that node's plugin."""

    def __init__(self, node: RealNode) -> None:
        self._node = node
        self.folder = node.enclosure.root / "plugin"
        self.folder.mkdir()
        self._inventory = self.folder / "inventory.yaml"
        self._process: BaseProcess | None = None
        self._account = Path()
        self.port = 0
        self.log = self.folder / "plugin.log"
        self.dev_root = self.folder / "gpus"
        self.major = make_device_nodes(self.dev_root, gpus=MOST_GPUS, capabilities=MOST_CAPABILITIES)
        self.has(inventory())

    def has(self, content: Object) -> None:
        """Say which GPUs there are; a change of `faults` reaches a running plugin, all else at its next start."""
        self.content = content
        part = self._inventory.with_suffix(".part")
        part.write_text(json.dumps(content))  # JSON is YAML
        part.replace(self._inventory)

    def start(self, *, same_pod: bool = False) -> None:
        """Start it; does not wait. In the same pod it goes on with the token that it had, without the API server."""
        assert not self.running
        [self.port] = free_ports(1)
        if not same_pod:
            account = "gpu-sharing-device-plugin"
            self._account = self._node.cluster.kubeconfig_for(account, names.NAMESPACE, node=self._node.name)
        flags = {
            "kubeconfig": self._account,
            "node-name": self._node.name,
            "discovery": "simulated",
            "inventory": self._inventory,
            "http-address": f"127.0.0.1:{self.port}",
            "nvidia-dev-root": self.dev_root,
            **TENTH,
        }
        arguments = ["device-plugin", *(f"--{k}={v}" for k, v in flags.items())]
        self._process = fork(arguments, self.log, place=self._node.enclosure.place)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it by SIGTERM. Returns the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.exitcode is None

    def assert_alive(self) -> None:
        """Raise PluginEnded, with the end of its log, if it ended by itself."""
        if self._process and self._process.exitcode is not None:
            code, self._process = self._process.exitcode, None
            raise PluginEnded(f"the plugin ended by itself, with {code}:\n{self.tail()}")

    def sockets(self) -> list[Path]:
        """Its sockets in the kubelet's folder."""
        return sorted(self._node.kubelet.folder.glob("gpusharing-*.sock"))

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def http(self, path: str) -> tuple[int, str]:
        """Status and body of one of its own pages; AssertionError while there are none, a moment after its start."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError as error:
            raise AssertionError(f"the plugin does not answer: {error.reason}") from error

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Freeze it for a while: connections stay open, and nothing is answered."""
        freeze(self._pid())
        try:
            yield
        finally:
            os.kill(self._pid(), signal.SIGCONT)

    def _end(self, how: signal.Signals) -> int:
        self.assert_alive()
        os.kill(self._pid(), how)
        assert self._process
        self._process.join(timeout=30)
        code = self._process.exitcode
        assert code is not None, f"the plugin does not end: {self.tail()}"
        self._process = None
        return code

    def _pid(self) -> int:
        assert self._process, "the plugin does not run"
        assert self._process.pid
        return self._process.pid


class GpuNode(RealNode):
    """A `RealNode` on which the product runs."""

    controller: Controller
    plugin: Plugin
    fleet: Fleet
    installed = False

    def install(self) -> None:
        """Install the product and start the controller and the plugin, once; returns when plain GPUs are offered."""
        if self.installed:
            return
        install(self.cluster)
        # here they run as processes; the tests of the image bring them back as pods
        self.cluster.kubectl("delete", "deployment,daemonset", "--all", "-n", names.NAMESPACE)
        self.fleet = Fleet(self.cluster, self.api)
        account = self.cluster.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
        self.controller = Controller(account, resync="5s").__enter__()
        self._cleanup.callback(self.controller.kill)
        self.plugin = Plugin(self)
        self.installed = True
        self.plugin.start()
        self.offers(GPUS)

    def policy(self, replicas: int = 4, **spec: Any) -> None:
        """Make the one policy of these tests say this (0 = no sharing), and wait until it is Applied.

        It stays until another test says otherwise: the same again costs nothing.
        """
        self.ask(replicas, **spec)
        self.in_force(POLICY)

    def in_force(self, policy: str) -> None:
        """Wait until a policy is Applied, and every id that it makes is handed out."""
        self.applied(policy)
        self.eventually(self._hands_out_all, "no id is withheld any more")

    def _hands_out_all(self) -> None:
        """An id that is withheld is not predicted either, so that Applied says nothing of it."""
        assert [row for row in self.report()["resources"] if row.get("withheld")] == []

    def ask(self, replicas: int = 4, **spec: Any) -> None:
        """Make the policy say this; does not wait."""
        shared = {"strategy": "time-slicing", "resources": [{"name": GPU, "replicas": replicas}]} if replicas else None
        body = policy_object(POLICY, **{"sharing": shared, "plugin": PASSING, **spec})
        if not replicas:
            del body["spec"]["sharing"]
        self.api.apply(POLICIES, body, field_manager="e2e", force=True)

    def run(self, *pods: str) -> list[Pod]:
        """Create pods of one GPU, or share, each, one after the other, and wait until all run."""
        return [pod.runs() for pod in [self.create(name, {GPU: 1}) for name in pods]]

    def has(self, content: Object) -> None:
        """Go on with these GPUs; if they are others, with a plugin that is started anew."""
        if self.plugin.content != content:
            self._restart_plugin(content)

    def _restart_plugin(self, content: Object) -> None:
        """Start the plugin with these GPUs; returns when the kubelet and the report have them."""
        if self.plugin.running:
            self.plugin.kill()
        self.eventually(lambda: self._lists(False), "the kubelet has seen the plugin end")
        self.plugin.has(content)
        self.plugin.start()
        self.eventually(lambda: self._lists(True), "the kubelet has the plugin's list")

        def reported() -> None:
            assert [gpu["uuid"] for gpu in self.report().get("gpus", [])] == [gpu["uuid"] for gpu in content["gpus"]]

        self.eventually(reported, "the node reports these GPUs")

    def _lists(self, expected: bool) -> None:
        healthy = self._pod_resources.allocatable()
        assert any(ids for name, ids in healthy.items() if name.startswith(names.RESOURCE_DOMAIN)) == expected, healthy

    def revive_controller(self) -> None:
        """Start the controller again if it ended, as it does without its Lease; in a cluster the kubelet would."""
        if not self.controller.running:
            self.controller.start()
            self.controller.wait_leading()

    @contextmanager
    def controller_paused(self) -> Iterator[None]:
        """Freeze the controller for a while."""
        self.controller.freeze()
        try:
            yield
        finally:
            self.controller.send(signal.SIGCONT)

    def applied(self, policy: str = POLICY) -> None:
        """Wait until the policy's present generation is in force on the node, as the policy and the node say."""

        def check() -> None:
            self.assert_alive()
            obj = self.api.get(POLICIES, policy)
            conditions = {entry["type"]: entry for entry in obj.get("status", {}).get("conditions", [])}
            found = conditions.get("Applied", {})
            assert found.get("observedGeneration") == obj["metadata"]["generation"], (obj.get("status"), self.report())
            assert found["status"] == "True", (found, self.report())

        eventually(check, within=60, what=f"policy {policy} is Applied")

    def assert_alive(self) -> None:
        """Raise if the kubelet or the plugin ended although nobody asked them to."""
        super().assert_alive()
        if self.installed:
            self.plugin.assert_alive()

    def report(self) -> Object:
        """What the plugin reports: `GpuNode.status`."""
        found = [item for item in self.api.list(GPU_NODES) if item["metadata"]["name"] == self.name]
        report: Object = found[0].get("status") or {} if found else {}
        return report

    def row(self, resource: str = GPU) -> Object:
        """One resource of the report."""
        rows: list[Object] = [row for row in self.report().get("resources", []) if row["name"] == resource]
        return rows[0] if rows else {}

    def says(self, reason: str, status: str = "True") -> Object:
        """Wait until GpuSharingReady has this status and reason. Returns it."""

        def check() -> Object:
            conditions = {entry["type"]: entry for entry in self.report().get("conditions", [])}
            found = conditions.get("GpuSharingReady", {})
            assert (found.get("status"), found.get("reason")) == (status, reason), found
            return found

        return eventually(check, within=60, what=f"GpuSharingReady is {status}, {reason}")

    def seen(self, pod: Pod) -> set[str]:
        """The GPUs that a running container says it was given, or was given a part of."""
        parents = self._parents()
        return {parents.get(uuid, uuid) for uuid in pod.env()["NVIDIA_VISIBLE_DEVICES"].split(",")}

    def taken(self, *pods: str, resource: str = GPU) -> Counter[str]:
        """GPU → how many of its ids these pods hold, as the kubelet says."""
        parents, held = self._parents(), self._pod_resources.held()
        uuids = [share.partition("::")[0] for pod in pods for share in held.get(pod, {}).get(resource, [])]
        return Counter(parents.get(uuid, uuid) for uuid in uuids)

    def _parents(self) -> dict[str, str]:
        """MIG device → its GPU."""
        return {mig["uuid"]: gpu["uuid"] for gpu in self.report()["gpus"] for mig in gpu.get("migDevices", [])}

    def holders(self, resource: str = GPU) -> dict[str, list[str]]:
        """Id → the pods that hold it, as the kubelet says."""
        found: dict[str, list[str]] = {}
        for pod, held in sorted(self._pod_resources.held().items()):
            for device_id in held.get(resource, []):
                found.setdefault(device_id, []).append(pod)
        return found

    def repair(self) -> None:
        """Bring back what a test took away, and take away its pods."""
        self.cluster.resume_api()
        self.cluster.start_api()
        if not self.kubelet.running:
            self.kubelet.start()
        if self.plugin.content["faults"] or not self.plugin.running:  # a GPU heals half a minute after its fault
            self._restart_plugin({**self.plugin.content, "faults": []})
        self.revive_controller()
        self.drop_pods()
