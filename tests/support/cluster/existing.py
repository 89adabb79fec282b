"""Provider `existing`: the current kubeconfig context, and only if GPUSHARING_CONTEXT names it."""

import json
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cluster import ClusterError
from tests.support.cluster.access import Access
from tests.support.cluster.binaries import bring_kubectl
from tests.support.cluster.keeper import Keeper


class ExistingCluster(Access):
    """Somebody's cluster: the tests change objects in it, the cluster itself stays as it is."""

    def __init__(self, keeper: Keeper, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._keeper = keeper

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> "ExistingCluster":
        """The current context, through a copy of the kubeconfig, so that switching contexts moves no test."""
        kubectl = bring_kubectl()
        config = _current_config(kubectl, environment)
        name = config["current-context"]
        cluster = config["clusters"][0]["cluster"]
        _require_consent(name, environment)
        _require_plain_login(name, cluster, config["users"][0]["user"])

        folder = Path(tempfile.mkdtemp(prefix="gpusharing-cluster-"))
        ca, kubeconfig = folder / "ca.crt", folder / "admin.kubeconfig"
        ca.write_bytes(b64decode(cluster["certificate-authority-data"]))
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(json.dumps(config))
        return cls(Keeper(folder), name, cluster["server"], ca, kubeconfig, folder=folder, kubectl=kubectl)

    def stop(self) -> None:
        """Remove the copy of the kubeconfig."""
        self._keeper.close()


def _current_config(kubectl: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    view = [str(kubectl), "config", "view", "--minify", "--flatten", "--raw", "--output=json"]
    done = subprocess.run(view, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"no current kubeconfig context: {done.stderr.strip()}. hint: set KUBECONFIG")
    config: dict[str, Any] = json.loads(done.stdout)
    return config


def _require_consent(name: str, environment: Mapping[str, str]) -> None:
    named = environment.get("GPUSHARING_CONTEXT", "")
    if named != name:
        raise ClusterError(
            f"the current context is {name!r}, GPUSHARING_CONTEXT is {named!r}: the tests create and delete "
            f"objects only where both agree. hint: GPUSHARING_CONTEXT={name}, if that is the cluster you mean"
        )


def _require_plain_login(name: str, cluster: dict[str, Any], user: dict[str, Any]) -> None:
    if "certificate-authority-data" not in cluster or not ({"token", "client-certificate-data"} & user.keys()):
        raise ClusterError(
            f"the context {name!r} has no certificate authority, or logs in by something else than a token or a "
            "client certificate. hint: make a kubeconfig for the tests with both"
        )
