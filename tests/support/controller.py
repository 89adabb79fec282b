"""The controller as the real process, with every duration at a tenth of its default.

But for Lease and watchdog: a busy machine must not cost a test its controller. Tests of these set their own.
"""

import json
import os
import signal
import socket
import tempfile
import urllib.error
import urllib.request
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.eventually import eventually
from tests.support.forked import fork
from tests.support.frozen import freeze

ROOT = Path(__file__).resolve().parents[2]

TENTH = {
    "resync": "48s",
    "status-pace": "0.2s",
    "lease-duration": "20s",
    "lease-deadline": "15s",
    "lease-period": "1s",
    "request-timeout": "3s",
    "server-timeout": "5s",
    "inactivity-timeout": "6s",
    "watchdog": "20s",
    "shared-sync-delay": "2s",
    "shared-key-retention": "3s",
    "plugin-gone-after": "3s",
}


class Controller:
    """`gpusharing controller` as a process of its own; use as a context manager."""

    def __init__(self, kubeconfig: Path, **settings: str) -> None:
        self._kubeconfig = kubeconfig
        self._settings = {**TENTH, **{name.replace("_", "-"): value for name, value in settings.items()}}
        self._log = Path()
        self._process: BaseProcess | None = None
        self.port = 0

    def start(self) -> "Controller":
        """Start the process; does not wait."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        descriptor, log = tempfile.mkstemp(prefix="controller-", suffix=".log", dir=self._kubeconfig.parent)
        os.close(descriptor)
        self._log = Path(log)
        settings = {**self._settings, "kubeconfig": str(self._kubeconfig), "listen": f"127.0.0.1:{self.port}"}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        self._process = fork(["controller", *arguments], self._log)
        return self

    def __enter__(self) -> "Controller":
        """Start, and wait until it leads with filled caches."""
        self.start()
        try:
            self.wait_leading()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the controller's log ends:\n{self.log_text()}")
        if self.running:
            self.stop()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def wait_end(self) -> int:
        """Wait for the end of the process. Returns its exit code; a signal's number is negative."""
        assert self._process is not None
        self._process.join(timeout=60)
        assert self._process.exitcode is not None, f"still running: {self.log_text()}"
        return self._process.exitcode

    def send(self, number: int) -> None:
        """Send a signal."""
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def freeze(self) -> None:
        """Stop it as SIGSTOP does, until SIGCONT is sent."""
        assert self._process is not None
        assert self._process.pid is not None
        freeze(self._process.pid)

    def stop(self) -> int:
        """SIGTERM, and wait for the end. Returns the exit code."""
        self.send(signal.SIGTERM)
        return self.wait_end()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.running:
            self.send(signal.SIGKILL)
        self.wait_end()

    def wait_leading(self) -> None:
        eventually(lambda: self._assert_leading(), what="the controller leads")

    def _assert_leading(self) -> None:
        assert self.running, f"the controller ended: {self.log_text()}"
        assert self.logged("caches filled"), self.log_text()

    def logs(self) -> list[dict[str, Any]]:
        """Every log line that is JSON, parsed."""
        return [json.loads(line) for line in self._lines() if line.startswith("{")]

    def log_text(self) -> str:
        return "\n".join(self._lines()[-40:])

    def _lines(self) -> list[str]:
        """The finished lines of the log."""
        return self._log.read_text(errors="replace").split("\n")[:-1]

    def logged(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The log lines with this message and these fields."""
        return [
            line
            for line in self.logs()
            if line.get("event") == event and all(line.get(name) == value for name, value in fields.items())
        ]

    def http(self, path: str) -> tuple[int, str]:
        """Status and body of one of its own pages."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """The sum of a metric's samples with this prefix (name and labels)."""
        _, text = self.http("/metrics")
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))
