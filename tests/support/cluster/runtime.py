"""containerd in an enclosure: the node's container runtime, with images that were written by hand."""

import os
import subprocess
import time
from pathlib import Path

from tests.support.cluster import ClusterError
from tests.support.cluster.enclosure import Enclosure

SOCKET = "/run/containerd/containerd.sock"
"""Where the runtime listens, as seen inside."""
_START_SECONDS = 30
_CONFIG = """
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# `opt` would make /opt/containerd on the machine; the snapshotters are not used
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  sandbox_image = "{sandbox_image}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{packages}/usr/lib/cni"
    conf_dir = "{cni}"
"""
# A node without any network config stays NotReady; the pods here use the host's network all the same.
_NETWORK = """{"cniVersion": "0.4.0", "name": "unused", "plugins": [{"type": "bridge", "bridge": "gpusharing-none",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.199.0.0/24"}]]}}]}"""


class Runtime:
    """A running containerd."""

    def __init__(self, enclosure: Enclosure, packages: Path, *, sandbox_image: str) -> None:
        self._enclosure = enclosure
        self._packages = packages
        network = enclosure.root / "cni"
        network.mkdir()
        (network / "10-unused.conflist").write_text(_NETWORK)
        config = enclosure.root / "containerd.toml"
        config.write_text(_CONFIG.format(socket=SOCKET, sandbox_image=sandbox_image, packages=packages, cni=network))
        self.log = enclosure.root / "containerd.log"
        command = self._with_path(str(packages / "usr/bin/containerd"), "--config", str(config))
        self.process = enclosure.start(command, self.log)
        self._wait()

    def load(self, image: Path) -> None:
        """Import a docker-archive."""
        self._ctr("images", "import", str(image))

    def _with_path(self, *command: str) -> list[str]:
        """The command with the packages' programs and libraries in reach: containerd's shim, runc, libseccomp."""
        path = f"PATH={self._packages}/usr/bin:{self._packages}/usr/sbin:{os.environ['PATH']}"
        libraries = ":".join(str(folder) for folder in self._packages.glob("usr/lib/*-linux-gnu"))
        return ["env", path, f"LD_LIBRARY_PATH={libraries}", *command]

    def _ctr(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        ctr = [str(self._packages / "usr/bin/ctr"), "--address", SOCKET, "--namespace", "k8s.io"]
        done = subprocess.run(self._enclosure.command(*ctr, *args), capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise ClusterError(f"ctr {' '.join(args)}: {done.stderr.strip()}")
        return done

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while self._ctr("--connect-timeout", "1s", "version", check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                raise ClusterError(f"containerd does not serve; its log ends: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)
