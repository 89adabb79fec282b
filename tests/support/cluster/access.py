"""What every provider does alike once it has an administrator's kubeconfig."""

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.cluster.api import NODES, Api


class Access:
    """An administrator's access to a running cluster; files that it makes go into `folder`."""

    def __init__(self, name: str, server: str, ca: Path, kubeconfig: Path, *, folder: Path, kubectl: Path) -> None:
        self.name = name
        self.server = server
        self.ca = ca
        self.kubeconfig = kubeconfig
        self.folder = folder
        self._kubectl = kubectl
        self._numbers = itertools.count(1)

    def kubectl(
        self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator or with `kubeconfig`; with `check` a failure raises and shows stderr."""
        command = [str(self._kubectl), f"--kubeconfig={kubeconfig or self.kubeconfig}", *args]
        done = subprocess.run(command, input=stdin or "", capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, f"kubectl {' '.join(args)}: {done.stderr}"
        return done

    def kubeconfig_for(
        self, account: str, namespace: str, *, node: str = "", server: str | None = None, ca: Path | None = None
    ) -> Path:
        """A kubeconfig with a fresh TokenRequest token of that ServiceAccount; `server` and `ca` lead it elsewhere.

        With `node` the token names that node, as those of pods there do, and ends with its Node object.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        spec: dict[str, Any] = {"expirationSeconds": 86400}
        with Api(self.kubeconfig) as api:
            if node:
                uid = api.get(NODES, node)["metadata"]["uid"]
                spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
            request = api.raw("POST", path, {"spec": spec})
        user = {"token": request["status"]["token"]}
        target = self.folder / f"{account}-{next(self._numbers)}.kubeconfig"
        return write_kubeconfig(target, server or self.server, ca or self.ca, user, namespace=namespace)


def write_kubeconfig(target: Path, server: str, ca: Path, user: dict[str, Any], *, namespace: str = "default") -> Path:
    """Write a kubeconfig with one context, `test`, readable by its owner only; returns `target`."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": user}],
    }
    target.touch(mode=0o600)
    target.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return target
