"""Provider `local`, control plane level: etcd and kube-apiserver as plain processes of any user, on loopback.

A cluster with a real node (`node.py`) also runs the controller-manager and the scheduler. Everything lives in one
temporary folder, which goes with the processes when the cluster stops or its owner ends.
"""

import contextlib
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.cluster import ClusterError
from tests.support.cluster.access import Access, write_kubeconfig
from tests.support.cluster.api import Api, ApiStatusError
from tests.support.cluster.binaries import Binaries, bring_binaries
from tests.support.cluster.keeper import Keeper
from tests.support.cluster.keys import Authority, token_keys
from tests.support.frozen import freeze

_START_SECONDS = 90


class LocalCluster(Access):
    """A control plane of our own; `start` makes one, `stop` leaves nothing of it."""

    def __init__(self, name: str, folder: Path, keeper: Keeper, binaries: Binaries) -> None:
        self._keys = keys = folder / "keys"
        keys.mkdir()
        self.authority = authority = Authority(keys)
        port, self._etcd_port, peer_port = free_ports(3)
        server = f"https://127.0.0.1:{port}"
        admin = authority.client("admin", group="system:masters")
        user = {"client-certificate": str(admin.certificate), "client-key": str(admin.key)}
        kubeconfig = write_kubeconfig(folder / "admin.kubeconfig", server, authority.pem, user)
        super().__init__(name, server, authority.pem, kubeconfig, folder=folder, kubectl=binaries.kubectl)
        self.keeper = keeper
        self._etcd_command = _etcd_command(binaries.etcd, folder / "etcd", self._etcd_port, peer_port)
        self._api_command = _api_command(binaries.kube_apiserver, authority, keys, port, self._etcd_port)
        self._api: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, name: str = "local") -> "LocalCluster":
        """A new control plane, ready; brings the programs first if the cache lacks them."""
        binaries = bring_binaries()
        folder = Path(tempfile.mkdtemp(prefix="gpusharing-cluster-"))
        keeper = Keeper(folder)
        try:
            cluster = cls(name, folder, keeper, binaries)
            cluster._start_etcd()
            cluster.start_api()
        except BaseException:
            keeper.close()
            raise
        return cluster

    def stop(self) -> None:
        """End everything at once and remove its folder; the data is of no further use."""
        self.keeper.close()

    def start_api(self) -> None:
        """Start the API server unless it runs, same port, same data; returns when it is ready."""
        if self._api:
            return
        log = self.folder / "kube-apiserver.log"
        self._api = self.keeper.start(self._api_command, log)
        with Api(self.kubeconfig, timeout=5) as api:
            _wait_until(lambda: _says_ok(api), self._api, log)

    def stop_api(self) -> None:
        """End the API server as a crash does (a graceful end waits for watches); nothing listens until `start_api`."""
        if self._api:
            self._api.kill()
            self._api.wait()
            self._api = None

    def pause_api(self) -> None:
        """Freeze the API server (SIGSTOP): connections stay open and nothing answers."""
        assert self._api, "the API server does not run"
        freeze(self._api.pid)

    def resume_api(self) -> None:
        """Let a frozen API server go on."""
        if self._api:
            self._api.send_signal(signal.SIGCONT)

    def start_controllers(self, controller_manager: Path, scheduler: Path) -> None:
        """Start what makes pods of Deployments and DaemonSets, and places them on nodes; does not wait."""
        ports = free_ports(2)
        common = {"bind-address": "127.0.0.1", "leader-elect": "false"}
        manager = {
            "kubeconfig": str(self.component("system:kube-controller-manager")),
            "secure-port": str(ports[0]),
            "use-service-account-credentials": "true",
            "root-ca-file": str(self.ca),
            "service-account-private-key-file": str(self._keys / "tokens.key"),
        }
        placing = {"kubeconfig": str(self.component("system:kube-scheduler")), "secure-port": str(ports[1])}
        for program, flags in ((controller_manager, manager), (scheduler, placing)):
            self.keeper.start([str(program), *_flags(common | flags)], self.folder / f"{program.name}.log")

    def component(self, user: str, group: str = "system:authenticated") -> Path:
        """A kubeconfig of one of Kubernetes' own components."""
        pair = self.authority.client(user, group=group)
        login = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return write_kubeconfig(self.folder / f"{pair.key.stem}.kubeconfig", self.server, self.ca, login)

    def _start_etcd(self) -> None:
        log = self.folder / "etcd.log"
        etcd = self.keeper.start(self._etcd_command, log)
        _wait_until(lambda: _accepts(self._etcd_port), etcd, log)


def _etcd_command(program: Path, data: Path, port: int, peer_port: int) -> list[str]:
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    flags = {
        "data-dir": str(data),
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": peer_url,
        "initial-advertise-peer-urls": peer_url,
        "initial-cluster": f"default={peer_url}",
    }
    known = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    fast = ["--unsafe-no-fsync"] if "--unsafe-no-fsync" in known.stdout + known.stderr else []  # from 3.4.10 on
    return [str(program), *_flags(flags), *fast]


def _api_command(program: Path, authority: Authority, keys: Path, port: int, etcd_port: int) -> list[str]:
    serving = authority.serving("apiserver", "kubernetes.default.svc", "10.96.0.1")
    kubelet_client = authority.client("kubelet-client", group="system:masters")
    tokens = token_keys(keys)
    flags = {
        "etcd-servers": f"http://127.0.0.1:{etcd_port}",
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "tls-cert-file": str(serving.certificate),
        "tls-private-key-file": str(serving.key),
        "client-ca-file": str(authority.pem),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(tokens.certificate),
        "service-account-signing-key-file": str(tokens.key),
        "kubelet-client-certificate": str(kubelet_client.certificate),
        "kubelet-client-key": str(kubelet_client.key),
        "feature-gates": "ResourceHealthStatus=true",  # the default from 1.36 on, there since 1.31
    }
    return [str(program), *_flags(flags)]


def _flags(flags: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that the kernel gives to outgoing connections.

    So nobody is given the API server's port while it is stopped, not even a client that tries to reach it.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = 20000 + secrets.randbelow(12000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _says_ok(api: Api) -> bool:
    try:
        return api.raw("GET", "/readyz") == {"text": "ok"}
    except (OSError, ApiStatusError):
        return False


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            how = "still not ready" if process.poll() is None else f"ended with {process.returncode}"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else ""
            raise ClusterError(f"{log.stem} {how}; the end of its log:\n{tail}")
        time.sleep(0.05)
