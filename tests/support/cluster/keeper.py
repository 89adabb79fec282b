"""Sees to it that nothing survives the process that started it, however that process ends.

The owner starts a `Keeper` with a folder. The servers it starts write their pids to the keeper's input before they
become what they are, so no moment is left in which one runs unknown. When that input ends (the owner closed it, or is
gone, SIGKILL included), the keeper kills what still runs and removes the folder.

A parent-death signal would not do: the kernel sends it when the *thread* that forked ends.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class Keeper:
    """Owns a folder and the processes that run in it."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True
        )

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a server whose output goes to `log`; deaf to Ctrl-C at this terminal, for it is stopped in order."""
        tell_and_become = 'echo $$ && exec "$@" >>"$0" 2>&1'
        return subprocess.Popen(
            ["/bin/sh", "-c", tell_and_become, str(log), *command],
            stdin=subprocess.DEVNULL,
            stdout=self._process.stdin,
            start_new_session=True,
        )

    def close(self) -> None:
        """Kill what still runs and remove the folder."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _keep(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    running = []
    for line in sys.stdin:
        with contextlib.suppress(ProcessLookupError):  # it ended already
            running.append(os.pidfd_open(int(line)))
    for process in reversed(running):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], 10)  # readable once it has ended, so that nothing writes to the folder
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(sys.argv[1])
