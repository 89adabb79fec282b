"""The controller as the real process, with every duration at a tenth of its default."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]

TENTH = {
    "resync": "48s",
    "status-pace": "0.2s",
    "lease-duration": "5s",
    "lease-deadline": "4s",
    "lease-period": "0.5s",
    "request-timeout": "3s",
    "server-timeout": "5s",
    "inactivity-timeout": "6s",
    "watchdog": "8s",
    "shared-sync-delay": "2s",
    "shared-key-retention": "3s",
    "plugin-gone-after": "3s",
}


class Controller:
    """`gpusharing controller` as a process of its own; use as a context manager."""

    def __init__(self, kubeconfig: Path, **settings: str) -> None:
        self._kubeconfig = kubeconfig
        self._settings = {**TENTH, **{name.replace("_", "-"): value for name, value in settings.items()}}
        self._lines: deque[str] = deque(maxlen=5000)
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> "Controller":
        """Start the process; does not wait."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = {**self._settings, "kubeconfig": str(self._kubeconfig), "listen": f"127.0.0.1:{self.port}"}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUSHARING_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpusharing", "controller", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "PYTHONPATH": str(ROOT / "operator"), "PYTHONUNBUFFERED": "1"},
        )
        Thread(target=self._read, args=(self.process,), daemon=True).start()
        return self

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._lines.append(line)

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
        if self.running:
            self.stop()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait_leading(self) -> None:
        eventually(lambda: self._assert_leading(), what="the controller leads")

    def _assert_leading(self) -> None:
        assert self.running, f"the controller ended: {self.log_text()}"
        assert self.logged("caches filled"), self.log_text()

    def stop(self) -> int:
        """SIGTERM, and wait for the end. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=60)

    def logs(self) -> list[dict[str, Any]]:
        """Every log line that is JSON, parsed."""
        return [json.loads(line) for line in list(self._lines) if line.startswith("{")]

    def log_text(self) -> str:
        return "".join(list(self._lines)[-40:])

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
