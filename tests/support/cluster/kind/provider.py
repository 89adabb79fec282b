"""Provider `kind`: one control plane and two GPU workers in Docker, with a network behind a wall.

Docker is one that runs already or, as root on Linux, one of our own in a machine within this machine; the node image is
the published one that GPUSHARING_KIND_IMAGE names, or a home-made one. What is made is taken away by `stop`; what a
killed run leaves in a Docker of its own ends with it.
"""

import signal
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.support.cluster import ClusterError
from tests.support.cluster.access import Access
from tests.support.cluster.api import NODES, Api
from tests.support.cluster.binaries import bring_kubectl, progress
from tests.support.cluster.keeper import Keeper
from tests.support.cluster.kind.docker import Docker, find_docker, running_docker
from tests.support.cluster.kind.footprint import Footprint
from tests.support.cluster.kind.images import PYTHON_IMAGE, bring_node_image, bring_python_image, node_image_name
from tests.support.cluster.kind.network import NETWORK, Network
from tests.support.cluster.kind.tools import bring_kind
from tests.support.eventually import eventually
from tests.support.install import ROOT

NAME = "gpusharing-e2e"
CONFIG = ROOT / "hack/kind/cluster.yaml"
CONTROL_PLANE = f"{NAME}-control-plane"
WORKERS = (f"{NAME}-worker", f"{NAME}-worker2")
_TO_WORKERS = (f"--name={NAME}", f"--nodes={WORKERS[0]},{WORKERS[1]}")
_READY_SECONDS = 300


class KindCluster(Access):
    """Three nodes in Docker; `start` makes them, `stop` leaves nothing of them."""

    def __init__(self, docker: Docker, kind: Path, folder: Path, cleanup: ExitStack) -> None:
        kubeconfig = folder / "admin.kubeconfig"
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        ca = folder / "ca.crt"
        ca.write_bytes(b64decode(cluster["certificate-authority-data"]))
        super().__init__("kind", cluster["server"], ca, kubeconfig, folder=folder, kubectl=bring_kubectl())
        self.docker = docker
        self._kind = kind
        self._cleanup = cleanup
        self.api = cleanup.enter_context(Api(kubeconfig))

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> "KindCluster":
        """A new cluster, all of whose nodes are Ready; brings first what the cache lacks."""
        with _ended_by_sigterm(), ExitStack() as cleanup:
            folder = Path(tempfile.mkdtemp(prefix="gpusharing-kind-"))
            before = Footprint.take(folder)
            cleanup.callback(before.assert_same, folder)
            cleanup.callback(before.restore)
            keeper = Keeper(folder)
            cleanup.callback(keeper.close)
            docker = find_docker(folder, keeper, environment)
            cleanup.callback(docker.end)
            kind = bring_kind(environment)
            _refuse_left_over(docker)
            image = _node_image(docker)
            network = Network(docker, image)
            network.make()
            if docker.machine:
                docker.machine.enter()  # kind publishes the API server on its loopback
            else:  # what is in a machine of its own ends with it
                cleanup.callback(network.remove)
                cleanup.callback(docker.run, str(kind), "delete", "cluster", f"--name={NAME}", check=False)
            with progress("three nodes"):
                _create(docker, kind, image, folder)
                cluster = cls(docker, kind, folder, cleanup)
                cluster.becomes_ready()
            cluster._cleanup = cleanup.pop_all()
        return cluster

    def stop(self) -> None:
        """Take everything away that `start` made."""
        self._cleanup.close()

    def becomes_ready(self) -> None:
        """Wait until all nodes are Ready, and Services and names work on each."""

        def ready() -> None:
            self.docker.assert_alive()
            nodes = {node["metadata"]["name"]: conditions(node) for node in self.api.list(NODES)}
            assert nodes.keys() == {CONTROL_PLANE, *WORKERS}, nodes.keys()
            assert all(found.get("Ready") == "True" for found in nodes.values()), nodes

        eventually(ready, within=_READY_SECONDS, what="all nodes are Ready")
        for workload in ("daemonset/kube-proxy", "deployment/coredns"):
            self.kubectl("rollout", "status", workload, "--namespace=kube-system", f"--timeout={_READY_SECONDS}s")

    def load(self, *images: str) -> None:
        """Bring images of this Docker onto both workers."""
        self.docker.run(str(self._kind), "load", "docker-image", *images, *_TO_WORKERS)

    def load_archive(self, archive: Path) -> None:
        """Bring the image of a docker-archive onto both workers."""
        self.docker.run(str(self._kind), "load", "image-archive", str(archive), *_TO_WORKERS)

    def build_product(self, tag: str) -> None:
        """Build the product's image with the committed Dockerfile; Docker keeps the steps that have not changed."""
        base = self.docker.environment.get("GPUSHARING_BASE_IMAGE", "")
        network = []
        if not base:
            base, network = PYTHON_IMAGE, ["--network=none"]  # what pip wants is in the image
            if not self.docker("images", "--quiet", base).strip():
                self.docker("load", "--input", str(bring_python_image()))
        with progress(f"{tag}, by the Dockerfile"):
            command = ("build", "--quiet", *network, f"--build-arg=BASE={base}", f"--tag={tag}", str(ROOT))
            self.docker(*command, DOCKER_BUILDKIT="0")

    def run_on(self, node: str, *command: str, check: bool = True) -> str:
        """Standard output of a command on a node."""
        return self.docker("exec", node, *command, check=check)


def prepare(environment: Mapping[str, str]) -> None:
    """Bring what a cluster needs, each with progress; refuse at once where none can be had."""
    with tempfile.TemporaryDirectory(prefix="gpusharing-kind-") as folder:
        if docker := running_docker(Path(folder), environment):
            _refuse_left_over(docker)
            Network(docker, "").subnet()
    bring_kind(environment)
    if not environment.get("GPUSHARING_KIND_IMAGE"):
        bring_node_image()
    if not environment.get("GPUSHARING_BASE_IMAGE"):
        bring_python_image()


def conditions(obj: dict[str, Any]) -> dict[str, str]:
    """Condition → status, of any object."""
    found = (obj.get("status") or {}).get("conditions") or []
    return {entry["type"]: entry["status"] for entry in found}


def _node_image(docker: Docker) -> str:
    """The published node image that is asked for, or the home-made one, loaded."""
    if published := docker.environment.get("GPUSHARING_KIND_IMAGE"):
        docker("pull", "--quiet", published)
        return published
    archive = bring_node_image()
    if not docker("images", "--quiet", node_image_name()).strip():
        with progress("the node image into Docker"):
            docker("load", "--quiet", "--input", str(archive))
    return node_image_name()


def _refuse_left_over(docker: Docker) -> None:
    nodes = docker("ps", "--all", "--quiet", f"--filter=label=io.x-k8s.kind.cluster={NAME}")
    network = docker("network", "ls", "--quiet", f"--filter=name=^{NETWORK}$")
    if nodes.strip() or network.strip():
        raise ClusterError(
            f"a cluster or network {NAME} is there already: a run goes on, or a killed one left it. hint: if none goes "
            f"on, `kind delete cluster --name {NAME}; docker network rm {NETWORK}`"
        )


def _create(docker: Docker, kind: Path, image: str, folder: Path) -> None:
    options = [f"--name={NAME}", f"--image={image}", f"--config={CONFIG}", f"--kubeconfig={folder}/admin.kubeconfig"]
    command = (str(kind), "create", "cluster", *options, "--retain", "--wait=300s")
    try:
        docker.run(*command, check=True, KIND_EXPERIMENTAL_DOCKER_NETWORK=NETWORK)
    except ClusterError as error:
        log = docker("exec", CONTROL_PLANE, "tail", "-5", "/var/log/kubelet.log", check=False)
        raise ClusterError(f"{error}; the end of the kubelet's log: {log or 'there is none'}") from error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have a SIGTERM in this block undo what was begun, as Ctrl-C does."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
