"""Provider `local`, node level: a real kubelet and container runtime, on which pods really run. Needs root on Linux.

The node has a control plane of its own, with controller-manager and scheduler: these act on every Node and Pod, and
would undo what tests arrange with plain Node objects.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from tests.support.cluster.api import NODES, Api, ApiStatusError, Object
from tests.support.cluster.binaries import NodeBinaries, bring_node_binaries
from tests.support.cluster.enclosure import Enclosure, missing
from tests.support.cluster.kubelet import POD_RESOURCES, Kubelet
from tests.support.cluster.local import LocalCluster
from tests.support.cluster.runtime import Runtime
from tests.support.eventually import eventually
from tests.support.images import BUSYBOX, write_busybox
from tests.support.podresources import PodResources
from tests.support.pods import PODS, Pod, pod_object

GPU = "nvidia.com/gpu"
__all__ = ["GPU", "RealNode", "missing"]


class RealNode:
    """A node whose kubelet, runtime and pods are real; `start` makes one, `stop` leaves nothing of it."""

    def __init__(self, cluster: LocalCluster, binaries: NodeBinaries, name: str, cleanup: ExitStack) -> None:
        self.cluster = cluster
        self.name = name
        self._cleanup = cleanup
        self.api = cleanup.enter_context(Api(cluster.kubeconfig))
        root = cluster.folder / name
        root.mkdir()
        self.enclosure = Enclosure(root, cluster.keeper)
        self.runtime = Runtime(self.enclosure, binaries.packages, sandbox_image=BUSYBOX)
        self.runtime.load(write_busybox(root / "busybox.tar", binaries.packages / "bin/busybox"))
        kubeconfig = cluster.component(f"system:node:{name}", group="system:nodes")
        serving = cluster.authority.serving(f"kubelet-{name}")
        self.kubelet = Kubelet(binaries.kubelet, self.enclosure, name, kubeconfig, serving=serving, ca=cluster.ca)
        self._pod_resources = cleanup.enter_context(PodResources(self.enclosure.inside(POD_RESOURCES)))

    @classmethod
    def start(cls, name: str = "gpu-node", **labels: str) -> Self:
        """A cluster with one node, Ready."""
        binaries = bring_node_binaries()
        with ExitStack() as cleanup:
            cluster = LocalCluster.start(f"with-{name}")
            cleanup.callback(cluster.stop)
            cluster.start_controllers(binaries.kube_controller_manager, binaries.kube_scheduler)
            node = cls(cluster, binaries, name, cleanup)
            node.kubelet.start()
            node.becomes_ready()
            node.api.patch(NODES, name, {"metadata": {"labels": labels}})
            node._cleanup = cleanup.pop_all()
        return node

    def stop(self) -> None:
        """End the node and its cluster, with every pod, mount and cgroup."""
        self._cleanup.close()

    # --- pods

    def pod(self, name: str, gpus: int = 1, **how: object) -> Pod:
        """Create a pod with so many GPUs and wait until it runs."""
        return self.create(name, {GPU: gpus}, **how).runs()

    def create(self, name: str, limits: dict[str, int], **how: object) -> Pod:
        """Create a pod that asks for these resources; does not wait."""
        self.api.create(PODS, pod_object(name, limits, **how))  # type: ignore[arg-type]
        return Pod(self.api, self.enclosure.inside("/var/log/pods"), name)

    def hold(self, pods: Mapping[str, dict[str, int]]) -> None:
        """Create pods, by name, that start nothing and hold what they ask for; returns when the kubelet says so."""
        for name, limits in pods.items():
            self.create(name, limits, starts=False)

        def held() -> None:
            found = self._pod_resources.held()
            counts = {name: {key: len(ids) for key, ids in found.get(name, {}).items()} for name in pods}
            assert counts == pods

        self.eventually(held, f"pods {', '.join(pods)} hold what they ask for")

    def ids(self, pod: str, resource: str = GPU) -> list[str]:
        """The ids that a pod holds, as the kubelet says."""
        return self._pod_resources.held().get(pod, {}).get(resource, [])

    def holds(self, pod: str, ids: list[str], resource: str = GPU) -> None:
        """Wait until the kubelet says that a pod holds these; a kubelet that has just started knows no pods yet."""

        def check() -> None:
            assert self.ids(pod, resource) == ids

        self.eventually(check, f"{pod} holds {ids}")

    def delete_pods(self, *names: str) -> None:
        """Delete these pods, or all, as a user does, and wait until the kubelet has freed their devices."""
        self._delete(names)

    def drop_pods(self, *names: str) -> None:
        """Delete these pods, or all, by force, and wait until their devices are free; what ran ends a moment later."""
        self._delete(names, gracePeriodSeconds="0")

    def _delete(self, names: Sequence[str], **how: str) -> None:
        doomed = names or [pod["metadata"]["name"] for pod in self.api.list(PODS)]
        for name in doomed:
            self.api.raw("DELETE", f"{PODS}/{name}", **how)

        def gone() -> None:
            left = {pod["metadata"]["name"] for pod in self.api.list(PODS)} & set(doomed)
            held = self._pod_resources.held().keys() & set(doomed)
            assert not left, left
            assert not held, held

        eventually(gone, within=60, what=f"pods {doomed} are gone")

    # --- what the node offers

    def assert_alive(self) -> None:
        """Raise if a part of the node ended although nobody asked it to."""
        self.kubelet.assert_alive()

    def object(self) -> Object:
        """The Node."""
        return self.api.get(NODES, self.name)

    def becomes_ready(self, *, within: float = 60) -> None:
        """Wait until the Node is Ready and pods can be made on it."""

        def ready() -> None:
            self.assert_alive()
            try:
                conditions = {entry["type"]: entry for entry in self.object()["status"].get("conditions", [])}
                self.api.get("/api/v1/namespaces/default/serviceaccounts", "default")
            except ApiStatusError as error:
                raise AssertionError(error) from error
            assert conditions.get("Ready", {}).get("status") == "True", conditions.get("Ready")
            taints = self.object()["spec"].get("taints")
            assert not taints, taints

        eventually(ready, within=within, what=f"node {self.name} is Ready")

    def count(self, resource: str = GPU) -> int | None:
        """What the scheduler counts with (`allocatable`); None = a resource that this node never had."""
        quantity = self.object()["status"]["allocatable"].get(resource)
        return None if quantity is None else integer(quantity)

    def offers(self, count: int | None, resource: str = GPU) -> None:
        """Wait until the scheduler may count with so many."""

        def check() -> None:
            self.assert_alive()
            assert self.count(resource) == count, (resource, self.count(resource), count)

        eventually(check, within=60, what=f"{self.name} offers {count} {resource}")

    def healthy_ids(self, resource: str = GPU) -> list[str]:
        """The healthy ids of a resource, as the kubelet knows them now."""
        return self._pod_resources.allocatable().get(resource, [])

    def eventually(self, check: Callable[[], None], what: str) -> None:
        """Wait for something while the kubelet lives."""

        def alive() -> None:
            self.assert_alive()
            check()

        eventually(alive, within=60, what=what)


def integer(quantity: str) -> int:
    """A Kubernetes quantity that is a whole number: `2048`, `60k`."""
    factors = {"k": 10**3, "M": 10**6, "Ki": 2**10}
    for suffix, factor in factors.items():
        if quantity.endswith(suffix):
            return int(quantity.removesuffix(suffix)) * factor
    return int(quantity)
