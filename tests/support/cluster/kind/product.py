"""The product in a kind cluster as its users have it: its own image, installed by kubectl, with simulated GPUs."""

import subprocess
import sys
from typing import Any

import yaml
from tests.support.cluster.api import NODES, ApiStatusError, Object, leases, pods
from tests.support.cluster.kind.images import busybox
from tests.support.cluster.kind.provider import WORKERS, KindCluster
from tests.support.cluster.node import integer
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, policy_object
from tests.support.images import write_busybox
from tests.support.install import ROOT
from tests.support.pods import PODS, Pod, pod_object

from gpusharing.api import names

KUSTOMIZATION = ROOT / "hack/kind/product"
PLUGIN, CONTROLLER = "gpu-sharing-device-plugin", "gpu-sharing-operator"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
OUR_PODS = pods(names.NAMESPACE)
_FOLDERS = ("/var/lib/kubelet/device-plugins", "/var/lib/gpu-sharing", "/var/run/cdi")
# a guard against hanging: a calm machine needs a tenth of it
PATIENCE = 300


class KindPod(Pod):
    """A pod whose lines come through the API server, for its node's files are elsewhere."""

    def lines(self, container: str = "main") -> list[str]:
        """What the newest run of a container has printed so far."""
        try:
            answer = self._api.raw("GET", f"{PODS}/{self.name}/log", container=container)
        except ApiStatusError:  # it has not started yet
            return []
        return str(answer.get("text", "")).splitlines()


class Product:
    """The installed product, the GPUs that its nodes offer, and pods on them."""

    def __init__(self, cluster: KindCluster) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.fleet = Fleet(cluster, self.api)
        self.image = _image()
        cluster.build_product(self.image)
        archive = write_busybox(cluster.folder / "busybox.tar", busybox())
        cluster.load(self.image)
        cluster.load_archive(archive)

        self.untouched = {node: self.traces(node) for node in WORKERS}
        """What `traces` said of each worker before the product came."""

    def install(self) -> None:
        """Install it as the README says, and wait until every replica is ready."""
        self.cluster.kubectl("apply", "-k", str(KUSTOMIZATION))
        for workload in (f"deployment/{CONTROLLER}", f"daemonset/{PLUGIN}"):
            self.rolled_out(workload)

    def uninstall(self) -> str:
        """Uninstall it as the README says; what `gpusharing cleanup` said."""
        command = [sys.executable, "-m", "gpusharing", "cleanup", f"--kubeconfig={self.cluster.kubeconfig}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.cluster.kubectl("delete", "-k", str(KUSTOMIZATION), f"--timeout={PATIENCE}s")
        return done.stdout + done.stderr

    def rolled_out(self, workload: str, namespace: str = names.NAMESPACE) -> None:
        """Wait until a workload is as it was last applied, and ready."""
        self.cluster.kubectl("rollout", "status", workload, f"--namespace={namespace}", f"--timeout={PATIENCE}s")

    def repair(self) -> None:
        """Install it again if another test took it away."""
        if not self.api.list(DAEMON_SETS):
            self.install()

    def traces(self, node: str) -> Object:
        """What an installation could leave of itself on a node, but for names of resources, which kubelets keep."""
        obj = self.api.get(NODES, node)
        files = self.cluster.run_on(node, "find", *_FOLDERS, "-name", "kubelet*", "-prune", "-o", "-print", check=False)
        return {
            "labels": obj["metadata"]["labels"],
            "annotations": sorted(obj["metadata"]["annotations"]),
            "taints": obj["spec"].get("taints", []),
            "conditions": sorted(entry["type"] for entry in obj["status"]["conditions"]),
            "files": sorted(files.split()),
        }

    def update_plugin(self) -> None:
        """Have the DaemonSet run the image under a new tag, and wait until every node does."""
        image = f"{self.image}-updated"
        for node in WORKERS:
            full = [f"docker.io/library/{name}" for name in (self.image, image)]
            self.cluster.run_on(node, "ctr", "--namespace=k8s.io", "images", "tag", "--force", *full)
        self.cluster.kubectl(
            "set", "image", f"daemonset/{PLUGIN}", f"device-plugin={image}", f"--namespace={names.NAMESPACE}"
        )
        self.rolled_out(f"daemonset/{PLUGIN}")

    # --- policies

    def ask(self, policy: str, replicas: int, **spec: Any) -> None:
        """Make a policy of this name share every GPU so often; does not wait."""
        shared = {"strategy": "time-slicing", "resources": [{"name": names.GPU_RESOURCE, "replicas": replicas}]}
        body = policy_object(policy, sharing=shared, **spec)
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))

    def applied(self, policy: str) -> None:
        """Wait until the policy's present generation is in force on all its nodes."""

        def check() -> None:
            obj = self.api.get("/apis/gpusharing.io/v1alpha1/gpusharingpolicies", policy)
            found = {entry["type"]: entry for entry in obj.get("status", {}).get("conditions", [])}.get("Applied", {})
            assert found.get("observedGeneration") == obj["metadata"]["generation"], obj.get("status")
            assert found["status"] == "True", (found, self.fleet.labels())

        eventually(check, within=PATIENCE, what=f"policy {policy} is Applied")

    # --- nodes

    def count(self, node: str) -> int | None:
        """How many GPUs, or shares, the scheduler counts with on a node; None = no such resource."""
        quantity = self.api.get(NODES, node)["status"]["allocatable"].get(names.GPU_RESOURCE)
        return None if quantity is None else integer(quantity)

    def offer(self, **counts: int) -> None:
        """Wait until these nodes offer so many."""

        def check() -> None:
            found = {node: self.count(node) for node in counts}
            assert found == counts, (found, counts)

        eventually(check, within=PATIENCE, what=f"the nodes offer {counts}")

    def ready(self, node: str, status: str) -> None:
        """Wait until a node's condition Ready has this status."""

        def check() -> None:
            conditions = {entry["type"]: entry["status"] for entry in self.api.get(NODES, node)["status"]["conditions"]}
            assert conditions["Ready"] == status, conditions

        eventually(check, within=PATIENCE, what=f"{node} is Ready={status}")

    # --- pods

    def create(self, name: str, node: str, gpus: int, *, resource: str = names.GPU_RESOURCE, **spec: Any) -> KindPod:
        """Create a pod on a node, on the pod network; does not wait."""
        body = pod_object(name, {resource: gpus} if gpus else {})
        body["spec"] |= {"hostNetwork": False, "nodeSelector": {"kubernetes.io/hostname": node}, **spec}
        self.api.create(PODS, body)
        return KindPod(self.api, self.cluster.folder, name)

    def pod(self, name: str, node: str, gpus: int = 1, **spec: Any) -> KindPod:
        """Create a pod on a node and wait until it runs."""
        pod = self.create(name, node, gpus, **spec)
        pod.runs(within=PATIENCE)
        return pod

    def deploy(self, name: str, node: str, gpus: int, replicas: int) -> None:
        """Create a Deployment whose pods run on a node; does not wait."""
        pod = pod_object(name, {names.GPU_RESOURCE: gpus})["spec"]
        pod |= {"hostNetwork": False, "nodeSelector": {"kubernetes.io/hostname": node}}
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.api.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})

    def deployed(self, name: str) -> dict[str, KindPod]:
        """The pods of a Deployment that run and have told what they see, by uid and count of restarts."""
        found = {}
        for obj in self.api.list(PODS, labelSelector=f"app={name}"):
            pod = KindPod(self.api, self.cluster.folder, obj["metadata"]["name"])
            statuses = obj["status"].get("containerStatuses", [])  # a refused pod has none
            if obj["status"]["phase"] == "Running" and statuses and "ready" in pod.lines():
                found[f"{obj['metadata']['uid']} {statuses[0]['restartCount']}"] = pod
        return found

    def delete_pods(self) -> None:
        """Delete the tests' pods, and wait until they are gone."""
        self.api.delete_collection(DEPLOYMENTS)
        self.api.delete_collection(PODS, gracePeriodSeconds="0")

        def gone() -> None:
            left = [pod["metadata"]["name"] for pod in self.api.list(PODS)]
            assert not left, left

        eventually(gone, within=PATIENCE, what="the pods are gone")

    def gpus(self, pod: Pod) -> list[str]:
        """The GPUs that a pod was given, or was given a part of, as its container tells."""
        return sorted(pod.env()["NVIDIA_VISIBLE_DEVICES"].split(","))

    def uuids(self, node: str) -> set[str]:
        """The GPUs of a node, as its plugin reports."""
        return {gpu["uuid"] for gpu in self.fleet.report(node)["gpus"]}

    # --- its own pods

    def pods(self, component: str) -> dict[str, Object]:
        """Our pods of a component, `controller` or `device-plugin`, by name."""
        found = self.api.list(OUR_PODS, labelSelector=f"app.kubernetes.io/component={component}")
        return {pod["metadata"]["name"]: pod for pod in found}

    def plugin_on(self, node: str) -> Object:
        """The plugin's pod on a node; AssertionError unless there is exactly one that is not going."""
        found = [
            pod
            for pod in self.pods("device-plugin").values()
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
        ]
        assert len(found) == 1, [pod["metadata"]["name"] for pod in found]
        return found[0]

    def leader(self) -> str:
        """The pod that leads; AssertionError while none does."""
        holder = self.api.get(leases(names.NAMESPACE), names.LEASE)["spec"].get("holderIdentity") or ""
        pod = str(holder).rpartition("_")[0]
        assert pod in self.pods("controller"), (holder, list(self.pods("controller")))
        return pod


def _image() -> str:
    """The name under which config/default asks for the product's image."""
    [image] = yaml.safe_load((ROOT / "config/default/kustomization.yaml").read_text())["images"]
    return f"{image['name']}:{image['newTag']}"
