"""A machine within this machine, for a Docker of our own: what it does to network, mounts and processes stays inside.

It has a network, a process table and a mount table of its own, and all three end with its first process. So what
dockerd and the nodes leave behind (links, packet filter rules, forwarding, mounts, processes) is gone whenever that
process is, also after a kill; the keeper takes the rest, the folder and the cgroup. There is a default route, to
nowhere: what is meant to be refused is refused by a rule, and not because there is no way out.
"""

import contextlib
import ctypes
import os
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.cluster import ClusterError
from tests.support.cluster.keeper import Keeper, hierarchies

_START_SECONDS = 60
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
# Folders where dockerd and containerd write whatever their settings say; what is written stays in the machine.
_OVERLAID = ("/etc", "/opt")
_TOOLS = ("unshare", "nsenter", "mount", "ip", "bash")
_PREPARE = """
set -eu
root=$1; shift
read -r pid _ </proc/self/stat  # as the outer machine counts
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
for path in {overlaid}; do
  [ -d "$path" ] || continue
  mkdir -p "$root/over$path" "$root/work$path"
  mount -t overlay -o "lowerdir=$path,upperdir=$root/over$path,workdir=$root/work$path" overlay "$path"
done
ip link set lo up
ip link add outside type veth peer name nowhere
ip link set outside up; ip link set nowhere up
ip addr add 198.51.100.1/30 dev outside
ip route add default via 198.51.100.2
echo "machine $pid"
"$@" &
wait $!
"""


class Machine:
    """A machine within this one that runs a single service, and ends with it."""

    def __init__(self, folder: Path, keeper: Keeper) -> None:
        self.cgroup = f"gpusharing-kind-{secrets.token_hex(4)}"
        """A cgroup of this name in every hierarchy; the service is in its child `machine`."""
        keeper.adopt(self.cgroup)
        self._folder = folder
        self._keeper = keeper
        self._log = folder / "machine.log"
        self._outside: int | None = None

    def start(self, service: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it with its service; returns when it has its network."""
        settings = [f"{name}={value}" for name, value in environment.items()]
        script = self._join() + 'exec unshare --net --mount --pid --fork --kill-child -- "$@"'
        prepare = ["bash", "-c", _PREPARE.format(overlaid=" ".join(_OVERLAID)), "machine", str(self._folder)]
        command = ["env", *settings, "/bin/sh", "-c", script, "sh", *prepare, *service]
        self._process = self._keeper.start(command, self._log)
        self._first = self._said()

    @property
    def running(self) -> bool:
        """Whether its service runs."""
        return self._process.poll() is None

    def log(self) -> str:
        """The end of what the service said."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:]) if self._log.exists() else ""

    def command(self, *command: str) -> list[str]:
        """The command that runs `command` in it."""
        return ["nsenter", f"--net=/proc/{self._first}/ns/net", f"--mount=/proc/{self._first}/ns/mnt", "--", *command]

    def enter(self) -> None:
        """Move this thread, and what it starts from now on, into the machine's network; all else stays."""
        self._outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with open(f"/proc/{self._first}/ns/net") as network:
            _join_network(network.fileno())

    def leave(self) -> None:
        """Undo `enter`."""
        if self._outside is not None:
            _join_network(self._outside)
            os.close(self._outside)
            self._outside = None

    def end(self) -> None:
        """End it at once, with everything in it."""
        self.leave()
        self._process.kill()
        self._process.wait()

    def _join(self) -> str:
        """Shell words that put the shell into the cgroup: then the keeper ends it together with its containers."""
        words = []
        for hierarchy in hierarchies():
            with contextlib.suppress(OSError):  # a hierarchy that others keep to themselves
                (hierarchy / self.cgroup / "machine").mkdir(parents=True)
                if hierarchy.name in ("memory", "cgroup", "unified"):
                    words.append(f"echo $$ >{shlex.quote(str(hierarchy / self.cgroup / 'machine/cgroup.procs'))}; ")
        return "".join(words)

    def _said(self) -> int:
        """Wait until it has its network; the pid of its first process, as seen from outside."""
        end = time.monotonic() + _START_SECONDS
        may_come = True
        while may_come:
            may_come = self.running and time.monotonic() < end  # asked first: what ended has said all
            lines = self._log.read_text().splitlines() if self._log.exists() else []
            if found := [line.split()[1] for line in lines if line.startswith("machine ")]:
                return int(found[0])
            time.sleep(0.02)
        raise ClusterError(
            f"no network and mounts of our own for a Docker: {self.log()}. hint: run as root on Linux, or use a Docker "
            "that runs already"
        )


def _join_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def missing() -> str:
    """What a machine of our own needs that is not there, in words; empty = nothing."""
    if not Path("/proc/self/ns/net").exists():
        return "Linux"
    if os.geteuid() != 0:
        return "root"
    if absent := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"the programs {' and '.join(absent)}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return "the right to make network, mount and process namespaces" if tried.returncode else ""
