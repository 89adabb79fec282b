"""`kubectl gpusharing` as people run it: through kubectl, from PATH, in a process of its own."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable
from pathlib import Path

from tests.support.cluster.binaries import bring_kubectl

TOOLS = Path(sys.executable).parent


def environment(kubeconfig: Path | None = None, **more: str) -> dict[str, str]:
    """What a user's shell would have, with kubectl and the plugin on PATH."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUSHARING_", "NO_COLOR"))}
    config = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
    return {**kept, "PATH": f"{bring_kubectl().parent}:{TOOLS}:{os.environ['PATH']}", **config, **more}


def kubectl(*arguments: str, kubeconfig: Path | None = None, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run kubectl, piped."""
    return subprocess.run(
        ["kubectl", *arguments],
        executable=bring_kubectl(),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=environment(kubeconfig),
    )


def on_a_terminal(arguments: Iterable[str], *, columns: int, **more: str) -> str:
    """Run the plugin on a terminal of that width. Returns everything that it shows there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    variables = environment(**{"TERM": "xterm-256color", **more})
    for unwanted in {"COLUMNS", "LINES"} & variables.keys():
        del variables[unwanted]
    command = [str(TOOLS / "kubectl-gpusharing"), *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # Linux says EIO when the other end is closed
            pass
        finally:
            os.close(ours)
            process.wait()
    return shown.decode().replace("\r\n", "\n")
