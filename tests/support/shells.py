"""The shells under which what we write for Slurm must run: those of batch scripts and of small containers."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cluster.binaries import find_shell

SHELLS = ("bash", "dash", "busybox")


@dataclass(frozen=True)
class Ran:
    """What a script printed, and how it ended."""

    code: int
    out: str
    err: str


def run_script(shell: str, script: str, env: Mapping[str, str], folder: Path) -> Ran:
    """Run a script in the folder with these variables only (and PATH); skips where the machine lacks the shell."""
    program = find_shell(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine: make cluster brings it where there is apt-get")
    command = [str(program), *(["sh"] if shell == "busybox" else []), "-c", script]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
