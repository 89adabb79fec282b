"""A real Kubernetes API for the tests: what every provider offers, and how one is chosen.

``GPUSHARING_CLUSTER`` names the provider: ``local`` (default: etcd and kube-apiserver as plain processes, no root),
``kind`` (three nodes in Docker) or ``existing`` (the current kubeconfig context, if ``GPUSHARING_CONTEXT`` names it).
With ``local`` nothing but the API server runs at this level: no kubelet, no scheduler, no garbage collector, no
namespace controller; nodes are plain Node objects.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class ClusterError(Exception):
    """The cluster cannot be had; the message says why and what to do."""


class Cluster(Protocol):
    """A running Kubernetes API with an administrator's access to it."""

    name: str
    server: str
    """URL of the API server."""
    ca: Path
    """Certificate (PEM) that vouches for `server`."""
    kubeconfig: Path
    """The administrator's kubeconfig."""
    folder: Path
    """Temporary files that go with the cluster."""

    def kubectl(
        self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator or with `kubeconfig`; with `check` a failure raises and shows stderr."""
        ...

    def kubeconfig_for(
        self, account: str, namespace: str, *, server: str | None = None, ca: Path | None = None
    ) -> Path:
        """A kubeconfig with a fresh TokenRequest token of that ServiceAccount; `server` and `ca` lead it elsewhere."""
        ...

    def stop(self) -> None:
        """Stop and remove everything that the provider started; nothing else."""
        ...


class ControlPlane(Cluster, Protocol):
    """A cluster whose API server the tests may take away and bring back (provider `local`)."""

    def stop_api(self) -> None:
        """End the API server as a crash does; connections are refused until `start_api`."""
        ...

    def start_api(self) -> None:
        """Start the API server unless it runs, same port, same data; returns when it is ready."""
        ...

    def pause_api(self) -> None:
        """Freeze the API server (SIGSTOP): connections stay open and nothing answers."""
        ...

    def resume_api(self) -> None:
        """Let a frozen API server go on."""
        ...


def start_cluster(environment: Mapping[str, str] = os.environ) -> Cluster:
    """Start, or find, the cluster that `GPUSHARING_CLUSTER` asks for."""
    provider = environment.get("GPUSHARING_CLUSTER") or "local"
    if provider == "local":
        from tests.support.cluster.local import LocalCluster

        return LocalCluster.start()
    if provider == "existing":
        from tests.support.cluster.existing import ExistingCluster

        return ExistingCluster.find(environment)
    if provider == "kind":
        from tests.support.cluster.kind.provider import KindCluster

        return KindCluster.start(environment)
    raise ClusterError(
        f"GPUSHARING_CLUSTER is {provider!r}, expected `local`, `kind` or `existing`. hint: leave it unset for `local`"
    )
