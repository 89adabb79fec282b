"""`make demo`: the main job, for real, on a control plane of its own.

What is printed is what the commands printed. On a terminal the cluster stays until Ctrl-C, so that one can look around.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.cluster import start_cluster
from tests.support.cluster.api import GPU_NODES, POLICIES, Api
from tests.support.cluster.api import NODES as NODE_OBJECTS
from tests.support.cluster.binaries import bring_kubectl
from tests.support.cluster.existing import ExistingCluster
from tests.support.cluster.local import LocalCluster
from tests.support.cluster.node import RealNode, missing
from tests.support.controller import Controller
from tests.support.demo import pictures
from tests.support.demo.nodes import NODES, DemoNode, KubeletNode, double_nodes, labels_of
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.install import ROOT, install

from gpusharing.api import names
from gpusharing.api.node import GpuNodeStatus

SAMPLES = ("pack-inference", "even-notebooks", "dry-run")
BUSY = "l40s-1"
"""The node that gets the pods: the one with a real kubelet, where there is one."""
PODS = {"chat": 1, "search": 2, "speech": 2}
ONE_MORE = {"vision": 4}
JUDGE = f"{names.PLACE_DOMAIN}judge.one-gpu-for-two.default"
TOLD = ("NVIDIA_VISIBLE_DEVICES", "GPU_PLACEMENT_COUNT", "GPU_PLACEMENT_INDEXES")
_POD = "{:8} {:<8} {}"


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--no-kubelet", action="store_true", help="no real kubelet, as without root")
    lacking = _lacking(no_kubelet=parser.parse_args().no_kubelet)
    try:
        with ExitStack() as stack:
            Demo(stack, lacking).show()
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
    return 0


def _lacking(*, no_kubelet: bool) -> str:
    """Why there is no real kubelet, in words; empty = there is one."""
    if no_kubelet:
        return "as you asked"
    if (os.environ.get("GPUSHARING_CLUSTER") or "local") != "local":
        return "the cluster is yours"
    return f"that takes {lacking}" if (lacking := missing()) else ""


class Demo:
    """A control plane with the product on it, and what is shown there."""

    def __init__(self, stack: ExitStack, lacking: str) -> None:
        self._stack = stack
        self._lacking = lacking
        self._nodes: dict[str, DemoNode] = {}
        self._held = 0
        self._desk = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gs-demo-")))
        """Where the commands run."""
        (self._desk / "config").symlink_to(ROOT / "config")
        _title("Starting everything on this machine; nothing is installed")
        real = self._start_cluster()
        self._api = stack.enter_context(Api(self._cluster.kubeconfig))
        self._install()
        with _step(f"{len(NODES)} GPU nodes, each with the device plugin as a process"):
            self._start_nodes(real)

    def show(self) -> None:
        """Show everything, then wait for Ctrl-C."""
        self._show_policies()
        self._show_shares()
        self._show_edit()
        self._show_placement()
        self._show_fence()
        self._stay()

    # --- start

    def _start_cluster(self) -> RealNode | None:
        if self._lacking:
            with _step("a control plane: etcd, kube-apiserver"):
                cluster = start_cluster()
                self._stack.callback(cluster.stop)
            assert isinstance(cluster, LocalCluster | ExistingCluster)
            self._cluster: LocalCluster | ExistingCluster = cluster
            return None
        with _step(f"a control plane and node {BUSY}: scheduler, kubelet, containerd"):
            real = RealNode.start(BUSY, **labels_of(BUSY))
            self._stack.callback(real.stop)
        self._cluster = real.cluster
        return real

    def _install(self) -> None:
        with _step("kubectl apply -k config/default"):
            install(self._cluster)
            if not self._lacking:  # here they run as processes
                self._cluster.kubectl("delete", "deployment,daemonset", "--all", "-n", names.NAMESPACE)
        with _step("the controller, with the token of its own ServiceAccount"):
            self._account = self._cluster.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
            # nobody wants to watch a demo wait
            controller = Controller(self._account, status_pace="0.5s", lease_period="1s")
            self._stack.enter_context(controller)

    def _start_nodes(self, real: RealNode | None) -> None:
        fleet = Fleet(self._cluster, self._api)
        doubled = [name for name in NODES if not real or name != real.name]
        for name in doubled:
            fleet.node(name, "", **labels_of(name))
        if real:
            self._nodes[real.name] = KubeletNode(real)
        else:  # a placement wants nodes that are Ready, which no kubelet says here
            ready = {"type": "Ready", "status": "True", "reason": "Demo", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            self._api.patch(NODE_OBJECTS, BUSY, {"status": {"conditions": [ready]}}, subresource="status")
        self._nodes |= self._stack.enter_context(double_nodes(self._cluster, *doubled))
        eventually(self._assert_served, within=90, what="every plugin reports its GPUs")

    # --- what is shown

    def _show_policies(self) -> None:
        kubelets = (
            f"there is no real kubelet ({self._lacking}), each has a double of one"
            if self._lacking
            else f"{BUSY} has a real kubelet, on which pods run, the others the double of one"
        )
        _title(
            f"GPU nodes of three models: {kubelets}. The GPUs are simulated; what is reported of a node comes from the "
            "plugin that serves it."
        )
        self._run("kubectl get gpunodes")
        _title("Three policies: pack L40S four-fold, share A10G evenly, only plan for H100")
        self._run("kubectl apply" + "".join(f" \\\n    -f config/samples/{sample}.yaml" for sample in SAMPLES))
        self._run("kubectl wait --for=condition=Ready gsp --all --timeout=60s")
        with _step("shares are handed out once no whole GPU can be held any more"):
            eventually(self._assert_shared, what="all shares are handed out")
        print()
        self._run("kubectl gpusharing status")
        _title("What a node got: one ConfigMap, named by its content, and a label that names it")
        self._run(
            f"kubectl get configmap -n {names.NAMESPACE} gpusharing-l40s-1 -o yaml \\\n    --show-managed-fields=false"
        )

    def _show_shares(self) -> None:
        how = (
            "admits pods, and shows what the plugin answers" if self._lacking else "runs pods; each prints what it sees"
        )
        _title(f"Pods. The kubelet of {BUSY} {how}")
        self._run_pods(PODS)
        self._picture()

    def _show_edit(self) -> None:
        _title("An edit: four shares become eight. First the plan, then the edit; no restart")
        self._run("sed 's/replicas: 4/replicas: 8/' config/samples/pack-inference.yaml >p.yaml")
        self._run("kubectl gpusharing plan -f p.yaml", expect=2)
        self._run("kubectl apply -f p.yaml")
        self._run("kubectl wait --for=condition=Ready gsp/pack-inference --timeout=60s")
        print("What each node should serve, what it serves, and what its kubelet confirms:\n")
        print(pictures.served(self._reports()), flush=True)
        _title("The pods kept what they had, and there is room for one more")
        self._run_pods(ONE_MORE)
        self._picture()

    def _show_placement(self) -> None:
        _title(
            "A placement: a GPU for a judge and its embedding model, and for nobody else, beside the shared ones. It "
            "leaves the shared resource first: that takes some 12 seconds"
        )
        self._run("sed -i 's/^spec:/&\\n  allowPlacements: true/' p.yaml && kubectl apply -f p.yaml")
        self._run(f"kubectl label node {BUSY} example.com/pool=packed")
        self._run("kubectl get nodes,gpunodes -o yaml >cluster.yaml")
        sample = "config/samples/placements/one-gpu-for-two.yaml"
        self._run(f"kubectl gpusharing place -f {sample} \\\n    --inventory cluster.yaml")
        self._run(f"kubectl apply -f {sample}")
        self._run("kubectl wait --for=condition=Ready gplace/one-gpu-for-two --timeout=60s")
        self._run("kubectl get gplace")
        print(f"What the plugin of {BUSY} says, and what a pod gets that asks for the judge's name:\n")
        print(pictures.reservations(self._reports()[BUSY]), flush=True)
        environment = self._nodes[BUSY].run_pod("judge", {JUDGE: 1})
        print("\n" + "\n".join(f"{key}={environment[key]}" for key in TOLD), flush=True)

    def _show_fence(self) -> None:
        _title("What the controller's account may not do: anything on a node but that one label")
        for change in (
            "metadata: {name: l40s-1, labels: {example.com/mine: x}}",
            "metadata: {name: l40s-1}, spec: {unschedulable: true}",
        ):
            node = f"{{apiVersion: v1, kind: Node,\n    {change}}}"
            apply = "kubectl apply --server-side --validate=false -f -"
            self._run(f"echo '{node}' |\n    {apply}", account=self._account, expect=1)
        self._run("kubectl delete node l40s-1", account=self._account, expect=1)

    def _stay(self) -> None:
        _title("Look around")
        print(f"  export KUBECONFIG={self._cluster.kubeconfig}")
        print(f"  export PATH={bring_kubectl().parent}:{ROOT / '.venv' / 'bin'}:$PATH")
        print("  kubectl describe gsp pack-inference; kubectl gpusharing explain node/l40s-1")
        print("  kubectl get gpunode l40s-1 -o yaml; kubectl delete gsp even-notebooks")
        if not sys.stdin.isatty():
            print("\n(no terminal: the demo ends here and leaves nothing behind)", flush=True)
            return
        print("\nCtrl-C stops everything and leaves nothing behind.", flush=True)
        while True:
            sys.stdin.read()

    # --- parts

    def _run_pods(self, pods: dict[str, int]) -> None:
        """Run pods on the busy node, and show which GPU each was told to use."""
        print(_POD.format("POD", "SHARES", "NVIDIA_VISIBLE_DEVICES"), flush=True)
        for name, shares in pods.items():
            environment = self._nodes[BUSY].run_pod(name, {names.GPU_RESOURCE: shares})
            print(_POD.format(name, shares, environment["NVIDIA_VISIBLE_DEVICES"]), flush=True)
            self._held += shares

    def _picture(self) -> None:
        def counted() -> GpuNodeStatus:
            status = self._reports()[BUSY]
            assert sum(row.in_use for row in status.occupancy) == self._held, status.occupancy
            return status

        status = eventually(counted, what=f"{BUSY} reports {self._held} shares in use")
        print(f"\nThe shares of {BUSY}:\n\n{pictures.shares(status)}", flush=True)

    def _reports(self) -> dict[str, GpuNodeStatus]:
        found = {item["metadata"]["name"]: item.get("status") or {} for item in self._api.list(GPU_NODES)}
        return {name: GpuNodeStatus.model_validate(found.get(name, {})) for name in NODES}

    def _assert_served(self) -> None:
        for name, status in self._reports().items():
            assert [row.advertised for row in status.resources] == [NODES[name][0]], (name, status)

    def _assert_shared(self) -> None:
        for status in self._reports().values():
            assert all(row.advertised == row.devices for row in status.resources), status.resources
        for policy in self._api.list(POLICIES):
            nodes = policy["status"]["nodes"]
            assert nodes["applied"] == nodes["owned"], policy["status"]

    def _run(self, command: str, *, account: Path | None = None, expect: int = 0) -> None:
        """Run a command as a user would, and show it with its output; `expect` is the exit code that is fine."""
        print(f"$ {command}", flush=True)
        environment = {
            **os.environ,
            "KUBECONFIG": str(account or self._cluster.kubeconfig),
            "PATH": f"{bring_kubectl().parent}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "COLUMNS": os.environ.get("COLUMNS", "100"),
        }
        code = subprocess.run(command, shell=True, env=environment, cwd=self._desk, check=False).returncode
        print(flush=True)
        if code != expect:
            raise SystemExit(f"demo: {command} ended with {code}")


def _title(text: str) -> None:
    print(f"\n{textwrap.fill(text, width=80)}\n", flush=True)


@contextmanager
def _step(text: str) -> Iterator[None]:
    """Say what is being started, and how long it took."""
    print(f"  {text} ... ", end="", flush=True)
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
