"""`make demo`: the main job, for real, on a control plane of its own.

What is printed is what the commands printed. On a terminal the cluster stays until Ctrl-C, so that one can look around.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.cluster import Cluster, start_cluster
from tests.support.cluster.api import Api
from tests.support.cluster.binaries import bring_kubectl
from tests.support.controller import Controller
from tests.support.fleet import Fleet
from tests.support.install import ROOT, install
from tests.support.plugin_double import PluginDouble

from gpusharing.api import names

SAMPLES = ("pack-inference", "even-notebooks", "dry-run")
FLEET = {"l40s": "l40s-mps-eight", "a10g": "a10g-driver-pre-installed", "h100": "h100-80-eight-operator"}
NODES_PER_MODEL = 4
# The recorded node was shared already; here it starts plain.
UNSHARED = {
    "l40s": {
        "nvidia.com/gpu.product": "NVIDIA-L40S",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mps.capable": "false",
    }
}


def main() -> int:
    """Run the demo."""
    _title("A Kubernetes control plane (etcd and kube-apiserver, on loopback, no root)")
    cluster = start_cluster()
    try:
        install(cluster)
        print(f"$ kubectl apply -k config/default        # done, on {cluster.name}", flush=True)
        account = cluster.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
        # Production's own durations, but for the pace of status writes: nobody wants to watch a demo wait.
        settings = {"status_pace": "0.5s", "lease_period": "1s"}
        with (
            Controller(account, **settings),
            PluginDouble(cluster.kubeconfig, every=0.3),
            Api(cluster.kubeconfig) as api,
        ):
            _show(cluster, Fleet(cluster, api))
            _show_fence(cluster, account)
            _stay(cluster)
    finally:
        cluster.stop()
    return 0


def _show(cluster: Cluster, fleet: Fleet) -> None:
    for model, kind in FLEET.items():
        for number in range(1, NODES_PER_MODEL + 1):
            fleet.node(f"{model}-{number}", kind, **UNSHARED.get(model, {}))
    _title(
        "Twelve GPU nodes of three models (plain Node objects with the labels of real ones), and the controller,\n"
        "running with the token of its own ServiceAccount. The in-node reports are simulated in this demo."
    )
    _run(cluster, "kubectl get nodes -L nvidia.com/gpu.product,nvidia.com/gpu.count")

    _title("Three policies: pack L40S four-fold, share A10G evenly, and only plan what would happen to H100")
    _run(cluster, "kubectl apply " + " ".join(f"-f config/samples/{sample}.yaml" for sample in SAMPLES))
    _run(cluster, "kubectl wait --for=condition=Ready gsp --all --timeout=60s")
    _run(cluster, "kubectl get gsp")
    _run(cluster, "kubectl gpusharing status")

    _title("What a node got: one ConfigMap, named by its content, and the label that names it")
    _run(cluster, f"kubectl get configmap -n {names.NAMESPACE} gpusharing-l40s-1 -o yaml --show-managed-fields=false")

    _title("An edit: four shares become eight. First the plan, then the edit; nobody restarts anything")
    with tempfile.TemporaryDirectory(prefix="gpusharing-demo-") as folder:
        edited = Path(folder) / "pack-inference.yaml"
        sample = (ROOT / "config" / "samples" / "pack-inference.yaml").read_text()
        edited.write_text(sample.replace("replicas: 4", "replicas: 8"))
        _run(cluster, f"kubectl gpusharing plan -f {edited}", expect=frozenset({2}))
        _run(cluster, f"kubectl apply -f {edited}")
    _run(cluster, "kubectl wait --for=condition=Ready gsp/pack-inference --timeout=60s")
    _run(cluster, "kubectl get gsp")
    _run(cluster, "kubectl get gpunodes")


def _show_fence(cluster: Cluster, account: Path) -> None:
    _title("What the controller's account may not do: anything on a node but move that one label")
    for change in (
        "metadata: {name: l40s-1, labels: {example.com/mine: x}}",
        "metadata: {name: l40s-1, annotations: {example.com/mine: x}}",
        "metadata: {name: l40s-1}, spec: {taints: [{key: example.com/mine, effect: NoSchedule}]}",
    ):
        node = f"{{apiVersion: v1, kind: Node, {change}}}"
        _run(
            cluster,
            f"echo '{node}' | kubectl apply --server-side --validate=false -f -",
            kubeconfig=account,
            expect=frozenset({1}),
        )
    _run(cluster, "kubectl delete node l40s-1", kubeconfig=account, expect=frozenset({1}))


def _stay(cluster: Cluster) -> None:
    _title("Look around")
    print(f"  export KUBECONFIG={cluster.kubeconfig}")
    print(f"  export PATH={bring_kubectl().parent}:{ROOT / '.venv' / 'bin'}:$PATH")
    print("  kubectl describe gsp pack-inference; kubectl gpusharing explain node/l40s-1")
    print("  kubectl label node l40s-1 gpusharing.io/skip=true; kubectl delete gsp even-notebooks")
    if not sys.stdin.isatty():
        print("\n(no terminal: the demo ends here and leaves nothing behind)", flush=True)
        return
    print("\nCtrl-C stops everything and leaves nothing behind.", flush=True)
    try:
        while True:
            sys.stdin.read()
    except KeyboardInterrupt:
        print("\nstopped")


def _title(text: str) -> None:
    print(f"\n{text}\n", flush=True)


def _run(
    cluster: Cluster, command: str, *, kubeconfig: Path | None = None, expect: frozenset[int] = frozenset({0})
) -> None:
    """Run a command as a user would, and show it with its output; `expect` are the exit codes that are fine."""
    print(f"$ {command}", flush=True)
    tools = f"{bring_kubectl().parent}:{ROOT / '.venv' / 'bin'}"
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig or cluster.kubeconfig),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "COLUMNS": os.environ.get("COLUMNS", "100"),
    }
    code = subprocess.run(command, shell=True, env=environment, cwd=ROOT, check=False).returncode
    print(flush=True)
    if code not in expect:
        raise SystemExit(f"demo: {command} ended with {code}")


if __name__ == "__main__":
    raise SystemExit(main())
