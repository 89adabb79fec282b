"""Freeze a process as SIGSTOP does, and know that it has stopped."""

import os
import signal
from pathlib import Path

from tests.support.eventually import eventually


def freeze(pid: int) -> None:
    """Stop a process of ours, and wait until each of its threads has stopped.

    The signal alone only asks: a thread that runs on another CPU may still answer a request. SIGCONT lets it go on.
    """
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> None:
        running = [state for state in _thread_states(pid) if state != "T"]
        assert not running, f"threads of process {pid} in the states {' '.join(running)}"

    eventually(stopped, what=f"process {pid} has stopped")


def _thread_states(pid: int) -> list[str]:
    """The letter of each thread (proc(5), field 3 of `stat`, behind the name in parentheses)."""
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]
