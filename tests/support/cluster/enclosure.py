"""A part of this machine that a node may treat as its own: private folders where a kubelet writes, and a cgroup.

What runs inside sees the machine's file system, but `/var/lib`, `/var/log` and `/run` are folders of ours, bound over
them in a mount namespace that ends with its last process. So nothing is mounted on the machine itself, two nodes do not
meet, and from outside every file and socket of the node lies below `root`.
"""

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.cluster import ClusterError
from tests.support.cluster.keeper import Keeper, hierarchies
from tests.support.forked import Place

_PRIVATE = ("/var/lib", "/var/log", "/run")
# What a kubelet sets at its start, and finds set already here: these are the whole machine's.
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_JOINED = ("cpu", "cpuacct", "memory", "cpu,cpuacct")  # a kubelet wants the same path in each of these (version 1)
_PREPARE = """
set -eu
root=$1
for path in {private}; do mount --bind "$root$path" "$path"; done
for path in {tunables}; do mount --bind "$root/sys/$path" "/proc/sys/$path"; done
echo ready
exec sleep infinity
"""


def missing() -> str:
    """What this machine or this user lacks for an enclosure, in words; empty = nothing."""
    if sys.platform != "linux":
        return "Linux"
    if os.geteuid() != 0:
        return "root"
    if absent := [tool for tool in ("unshare", "nsenter", "mount") if shutil.which(tool) is None]:
        return f"the programs {' and '.join(absent)}"
    found = hierarchies()
    if not found or not all(os.access(hierarchy, os.W_OK) for hierarchy in found):
        return "a writable /sys/fs/cgroup"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return "the right to make a mount namespace" if tried.returncode else ""


class Enclosure:
    """Private folders and a cgroup; everything in it ends with the keeper."""

    def __init__(self, folder: Path, keeper: Keeper) -> None:
        self.root = folder
        """The folder that holds what is private inside: `/run/a` inside is `root/run/a` outside."""
        self.cgroup = f"gpusharing-{secrets.token_hex(4)}"
        """A cgroup of this name in every hierarchy; pods go into it, what runs beside them into its child `system`."""
        self._keeper = keeper
        keeper.adopt(self.cgroup)
        for hierarchy in hierarchies():
            (hierarchy / self.cgroup / "system").mkdir(parents=True)
        self._make_folders()
        self._enter: list[str] = ["/bin/sh", "-c", f'{self._join()}exec "$0" "$@"']
        holder = self._hold()
        mounts = Path(f"/proc/{holder}/ns/mnt")
        self._enter += ["nsenter", f"--mount={mounts}", "--"]
        self.place = Place(self._joined(), mounts)
        """Where `command` leads, for processes that are forked."""

    def inside(self, path: str) -> Path:
        """Where a path inside is found from outside."""
        return self.root / path.lstrip("/")

    def command(self, *command: str) -> list[str]:
        """The command that runs `command` inside; the process becomes it, so its pid is the program's."""
        return [*self._enter, *command]

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program inside; its output goes to `log`."""
        return self._keeper.start(self.command(*command), log)

    def _make_folders(self) -> None:
        for path in _PRIVATE:
            self.inside(path).mkdir(parents=True)
        for name, value in _TUNABLES.items():
            tunable = self.root / "sys" / name
            tunable.parent.mkdir(parents=True, exist_ok=True)
            tunable.write_text(f"{value}\n")

    def _join(self) -> str:
        """Shell words that put the shell into the cgroup."""
        return "".join(f"echo $$ >{shlex.quote(str(file))}; " for file in self._joined())

    def _joined(self) -> list[Path]:
        """The files that take a process into the cgroup."""
        joined = [found for found in hierarchies() if found.name in _JOINED or found == Path("/sys/fs/cgroup")]
        return [found / self.cgroup / "system/cgroup.procs" for found in joined]

    def _hold(self) -> int:
        """Start the process that keeps the mount namespace; its pid."""
        tunables = [name for name in _TUNABLES if Path("/proc/sys", name).exists()]
        script = _PREPARE.format(private=" ".join(_PRIVATE), tunables=" ".join(tunables))
        log = self.root / "enclosure.log"
        prepare = ["unshare", "--mount", "/bin/sh", "-c", script, "enclosure", str(self.root)]
        holder = self._keeper.start([*self._enter, *prepare], log)
        while "ready" not in (said := log.read_text() if log.exists() else ""):
            if holder.poll() is not None:
                raise ClusterError(f"no private mount namespace: {said}")
            time.sleep(0.01)
        return holder.pid
