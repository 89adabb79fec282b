"""The demo's GPU nodes. GPUs are simulated; what serves and reports them is the product's own plugin process.

One node has a real kubelet, where the machine allows it. On the others the plugin serves the double of a kubelet.
"""

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.support.cluster.access import Access
from tests.support.cluster.keeper import Keeper
from tests.support.cluster.local import free_ports
from tests.support.cluster.node import RealNode
from tests.support.fleet import label_sets
from tests.support.gpunode import TENTH, Plugin

from gpusharing.api import names

# Each node: its GPUs, and whose labels it has.
NODES: dict[str, tuple[int, str, str]] = {
    "l40s-1": (4, "NVIDIA L40S", "l40s-mps-eight"),
    "l40s-2": (4, "NVIDIA L40S", "l40s-mps-eight"),
    "a10g-1": (1, "NVIDIA A10G", "a10g-driver-pre-installed"),
    "h100-1": (8, "NVIDIA H100 80GB HBM3", "h100-80-eight-operator"),
}
_MEMORY_MIB = {"NVIDIA L40S": 46068, "NVIDIA A10G": 23028, "NVIDIA H100 80GB HBM3": 81559}


def labels_of(name: str) -> dict[str, str]:
    """What NVIDIA's feature discovery says of the node; a recorded node that was shared already starts plain here."""
    count, model, recorded = NODES[name]
    return label_sets()[recorded] | {
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.product": model.replace(" ", "-"),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mps.capable": "false",
    }


class DemoNode(Protocol):
    """A node on which pods can be put."""

    def run_pod(self, name: str, limits: dict[str, int]) -> dict[str, str]:
        """Run a pod that asks for these resources. Returns the environment of its container."""
        ...


class KubeletNode:
    """A node with a real kubelet, on which pods really run."""

    def __init__(self, node: RealNode) -> None:
        self._node = node
        plugin = Plugin(node)
        plugin.has(_inventory(node.name))
        plugin.start()

    def run_pod(self, name: str, limits: dict[str, int]) -> dict[str, str]:
        """Run a pod; the environment is what its container printed."""
        return self._node.create(name, limits).runs().env()


class DoubleNode:
    """A plain Node object; the plugin serves the double of a kubelet, which can admit pods and runs none."""

    def __init__(self, name: str, cluster: Access, folder: Path, keeper: Keeper) -> None:
        self._numbers = itertools.count(1)
        self._folder = folder / name
        self._folder.mkdir()
        self._log = (self._folder / "kubelet.log").open("wb")
        # ends with its standard input, and so with the demo
        self._kubelet = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kubeletdouble", self._folder / "plugins"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        keeper.start(self._plugin(name, cluster), self._folder / "plugin.log")

    def run_pod(self, name: str, limits: dict[str, int]) -> dict[str, str]:
        """Admit a pod; the environment is what the plugin answered for its container."""
        answer = self._ask(admit=name, limits=limits)
        if "error" in answer:
            raise SystemExit(f"demo: pod {name} is refused: {answer['error']}")
        environment: dict[str, str] = answer["envs"]
        return environment

    def stop(self) -> None:
        """End the double."""
        self._kubelet.kill()
        for pipe in (self._kubelet.stdin, self._kubelet.stdout, self._log):
            assert pipe
            pipe.close()
        self._kubelet.wait()

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._kubelet.stdin
        assert self._kubelet.stdout
        number = next(self._numbers)
        self._kubelet.stdin.write(json.dumps({"id": number, **command}).encode() + b"\n")
        self._kubelet.stdin.flush()
        # between answers it tells of every change
        lines = (json.loads(line) for line in self._kubelet.stdout)
        return next(line for line in lines if line.get("id") == number)

    def _plugin(self, name: str, cluster: Access) -> list[str]:
        inventory = self._folder / "inventory.yaml"
        inventory.write_text(json.dumps(_inventory(name)))  # JSON is YAML
        [port] = free_ports(1)
        flags = {
            "kubeconfig": cluster.kubeconfig_for(names.PLUGIN, names.NAMESPACE, node=name),
            "node-name": name,
            "discovery": "simulated",
            "inventory": inventory,
            "kubelet-socket": self._folder / "plugins" / "kubelet.sock",
            "pod-resources-socket": self._folder / "pod-resources" / "kubelet.sock",
            "state-dir": self._folder / "state",
            "http-address": f"127.0.0.1:{port}",
            **TENTH,
        }
        return [sys.executable, "-m", "gpusharing", "device-plugin", *(f"--{k}={v}" for k, v in flags.items())]


@contextmanager
def double_nodes(cluster: Access, *nodes: str) -> Iterator[dict[str, DoubleNode]]:
    """These nodes, served; their processes end, and their files go, when the demo ends, however it ends."""
    # short, for the path of a socket has 107 bytes at most
    folder = Path(tempfile.mkdtemp(prefix="gs-demo-", dir="/tmp"))
    keeper = Keeper(folder)
    started: dict[str, DoubleNode] = {}
    try:
        for name in nodes:
            started[name] = DoubleNode(name, cluster, folder, keeper)
        yield started
    finally:
        for node in started.values():
            node.stop()
        keeper.close()


def _inventory(name: str) -> dict[str, Any]:
    count, model, _ = NODES[name]
    gpus = [{"index": index, "model": model, "memoryMiB": _MEMORY_MIB[model]} for index in range(count)]
    return {"name": name, "gpus": gpus}
