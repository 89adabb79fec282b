"""Sees to it that nothing survives the process that started it, however that process ends.

The owner starts a `Keeper` with a folder. The servers it starts write their pids to the keeper's input before they
become what they are, so no moment is left in which one runs unknown. When that input ends (the owner closed it, or is
gone, SIGKILL included), the keeper kills what still runs and removes the folder. Of what starts processes by itself (a
container runtime) it is told the cgroup, and takes that away with everything in it.

A parent-death signal would not do: the kernel sends it when the *thread* that forked ends.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_CGROUP = "cgroup "


class Keeper:
    """Owns a folder and the processes that run in it."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._started: list[subprocess.Popen[bytes]] = []

    def adopt(self, cgroup: str) -> None:
        """Take over a cgroup of this name (a path below the root of every hierarchy), to be emptied and removed."""
        assert self._process.stdin
        self._process.stdin.write(f"{_CGROUP}{cgroup}\n".encode())
        self._process.stdin.flush()

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a server whose output goes to `log`; deaf to Ctrl-C at this terminal, for it is stopped in order."""
        # Go's garbage collector takes a sixth of an API server's time, and memory is there
        tell_and_become = 'echo $$ && GOGC=300 exec "$@" >>"$0" 2>&1'
        started = subprocess.Popen(
            ["/bin/sh", "-c", tell_and_become, str(log), *command],
            stdin=subprocess.DEVNULL,
            stdout=self._process.stdin,
            start_new_session=True,
        )
        self._started.append(started)
        return started

    def close(self) -> None:
        """Kill what still runs and remove the folder."""
        assert self._process.stdin
        self._process.stdin.close()
        for process in (self._process, *self._started):
            process.wait()


def hierarchies() -> list[Path]:
    """Where the cgroup hierarchies of this machine are mounted: one of version 2, or one for each controller."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def _keep(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    running = []
    cgroups = []
    for line in sys.stdin:
        if line.startswith(_CGROUP):
            cgroups.append(line.removeprefix(_CGROUP).strip())
            continue
        with contextlib.suppress(ProcessLookupError):  # it ended already
            running.append(os.pidfd_open(int(line)))
    for cgroup in cgroups:
        _remove(cgroup)
    for process in reversed(running):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], 10)  # readable once it has ended, so that nothing writes to the folder
    shutil.rmtree(folder, ignore_errors=True)


def _remove(cgroup: str) -> None:
    """Kill all processes below a cgroup, then remove it; gives up after 10 s (a process that no signal can end)."""
    end = time.monotonic() + 10
    trees = [hierarchy / cgroup for hierarchy in hierarchies()]
    while any(tree.exists() for tree in trees) and time.monotonic() < end:
        for folder in [folder for tree in trees for folder, _, _ in os.walk(tree, topdown=False)]:
            with contextlib.suppress(OSError):  # it has gone by itself, or is not empty yet
                for pid in Path(folder, "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                os.rmdir(folder)
        time.sleep(0.02)


if __name__ == "__main__":
    _keep(sys.argv[1])
