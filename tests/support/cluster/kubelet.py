"""The kubelet of a node: its settings, and its life and death as the tests want them."""

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from tests.support.cluster.enclosure import Enclosure
from tests.support.cluster.keys import KeyPair
from tests.support.cluster.local import free_ports
from tests.support.cluster.runtime import SOCKET
from tests.support.eventually import eventually

DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
POD_RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"
_INACTIVE = (-1, -1)


class KubeletEnded(Exception):
    """It ended although nobody asked it to: no test may pass over that, nor wait it out."""


class Kubelet:
    """A kubelet in an enclosure; not running until `start`."""

    def __init__(
        self, program: Path, enclosure: Enclosure, name: str, kubeconfig: Path, *, serving: KeyPair, ca: Path
    ) -> None:
        self._enclosure = enclosure
        config = enclosure.root / "kubelet.json"
        config.write_text(json.dumps(_configuration(enclosure, serving, ca)))
        (enclosure.root / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        flags = {
            "config": config,
            "kubeconfig": kubeconfig,
            "hostname-override": name,
            "node-ip": _address(),
            "cert-dir": enclosure.root / "kubelet-certificates",
            "v": 2,
        }
        self._command = [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]
        self._process: subprocess.Popen[bytes] | None = None
        self.log = enclosure.root / "kubelet.log"
        self.folder = enclosure.inside(DEVICE_PLUGINS)
        """The device-plugins folder, as seen from outside."""
        self.checkpoint = self.folder / "kubelet_internal_checkpoint"

    def start(self) -> None:
        """Start it; returns when it takes registrations: a new `kubelet.sock`, for the last one stays behind."""
        assert self._process is None, "the kubelet runs already"
        before = self.socket()
        self._process = self._enclosure.start(self._command, self.log)

        def serves() -> None:
            self.assert_alive()
            assert self.socket() not in (before, _INACTIVE), self.tail()

        eventually(serves, what="the kubelet listens for device plugins")

    def kill(self) -> None:
        """End it by SIGKILL; containers go on."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it by SIGTERM; containers go on."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    @property
    def running(self) -> bool:
        """Whether it is meant to run."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process, "the kubelet does not run"
        return self._process.pid

    def assert_alive(self) -> None:
        """Raise KubeletEnded, with the end of its log, if it ended by itself; the next `start` is allowed then."""
        if self._process and self._process.poll() is not None:
            code, self._process = self._process.returncode, None
            raise KubeletEnded(f"the kubelet ended by itself, with {code}:\n{self.tail()}")

    def socket(self) -> tuple[int, int]:
        """Inode and change time of `kubelet.sock`."""
        try:
            found = (self.folder / "kubelet.sock").stat()
        except FileNotFoundError:
            return _INACTIVE
        return found.st_ino, found.st_ctime_ns

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:]) if self.log.exists() else ""

    def _end(self, how: signal.Signals) -> None:
        self.assert_alive()
        assert self._process, "the kubelet does not run"
        self._process.send_signal(how)
        self._process.wait(timeout=30)
        self._process = None


def _configuration(enclosure: Enclosure, serving: KeyPair, ca: Path) -> dict[str, Any]:
    port, health_port = free_ports(2)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health_port,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{enclosure.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,  # the default needs CAP_SYS_RESOURCE
        "maxOpenFiles": 20000,  # the default may be above the hard limit
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "1m",  # of what has not changed; without this every second, and all watch it
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "10Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "resolvConf": str(enclosure.root / "resolv.conf"),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # the default lies outside what is private
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "featureGates": {"ResourceHealthStatus": True},
    }


def _address() -> str:
    """An address of this machine other than loopback, which a kubelet refuses; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
