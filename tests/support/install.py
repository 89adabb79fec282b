"""Installs the product as the README tells users to."""

from pathlib import Path

from tests.support.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
_installed: set[str] = set()


def install(cluster: Cluster, *, again: bool = False) -> None:
    """`kubectl apply -k config/default`, once per cluster; `again` after a test took part of it away."""
    if again or cluster.name not in _installed:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "config" / "default"))
        for crd in ("gpusharingpolicies", "gpunodes"):
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{crd}.gpusharing.io", "--timeout=30s")
        _installed.add(cluster.name)
