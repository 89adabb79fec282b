"""Installs the product as the README tells users to."""

from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.cluster.api import POLICIES, Api, ApiStatusError
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
_installed: set[str] = set()


def install(cluster: Cluster, *, again: bool = False) -> None:
    """`kubectl apply -k config/default`, once per cluster; `again` after a test took part of it away."""
    if again or cluster.name not in _installed:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "config" / "default"))
        eventually(lambda: _discovered(cluster), what="the CRDs are served, and kubectl knows it")
        with Api(cluster.kubeconfig) as api:
            eventually(lambda: _in_force(api, True), what="the policies' rules are in force")
        _installed.add(cluster.name)


def rules_are_out_of_force(api: Api) -> None:
    """Wait until the API server goes by a CRD without rules: it takes a changed CRD up a moment after the write."""
    eventually(lambda: _in_force(api, False), what="the policies' rules are out of force")


def _discovered(cluster: Cluster) -> None:
    """Also has kubectl forget what it remembers of the time before: it would not look again for a short name."""
    found = cluster.kubectl("api-resources", "--api-group=gpusharing.io", "--output=name").stdout.split()
    assert set(found) >= {f"{plural}.gpusharing.io" for plural in ("gpusharingpolicies", "gpunodes", "gpuplacements")}


def _in_force(api: Api, expected: bool) -> None:
    resources = [{"name": "nvidia.com/gpu", "replicas": 1}]
    body = {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuSharingPolicy",
        "metadata": {"name": "breaks-a-rule"},
        "spec": {"nodeSelector": {}, "sharing": {"strategy": "time-slicing", "resources": resources}},
    }
    try:
        api.raw("POST", POLICIES, body, dryRun="All")
        answer = 201
    except ApiStatusError as refusal:
        answer = refusal.status
    assert answer == (422 if expected else 201)
