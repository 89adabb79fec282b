"""The device plugin as a real process, beside a kubelet double: signals, its pages, its log, what it takes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from tests.support.eventually import eventually
from tests.support.forked import fork
from tests.support.kubeletdouble.kubelet import KubeletDouble

SOURCE = Path(__file__).parents[2] / "operator"
GPU = "nvidia.com/gpu"


def gpus(count: int, *faults: Mapping[str, Any]) -> str:
    """An inventory of so many equal GPUs, with faults."""
    entries = [{"index": n, "model": "NVIDIA A100-SXM4-80GB", "memoryMiB": 81920} for n in range(count)]
    return yaml.safe_dump({"name": "test", "gpus": entries, "faults": list(faults)})


class Bench:
    """A folder with everything that a plugin is given, and the kubelet that it finds there."""

    def __init__(self, folder: Path, *, forked: bool = False) -> None:
        self.folder = folder
        self._forked = forked
        self.state_dir = folder / "state"
        self.config_file = folder / "config.yaml"
        self.inventory_file = folder / "inventory.yaml"
        self.kubelet = KubeletDouble(folder / "dp")
        self.plugins: list[PluginProcess] = []

    def configure(self, text: str) -> None:
        """Replace the config file."""
        _replace(self.config_file, text)

    def have(self, inventory: str) -> None:
        """Replace the inventory."""
        _replace(self.inventory_file, inventory)

    def plugin(
        self, *more: str, environment: Mapping[str, str] | None = None, within: Path | None = None
    ) -> "PluginProcess":
        """A plugin; `more` are flags beside those that lead it into this folder, `within` is a cgroup.

        With an environment, or a cgroup, of its own it is never forked.
        """
        flags = [
            f"--config-file={self.config_file}",
            "--discovery=simulated",
            f"--inventory={self.inventory_file}",
            f"--kubelet-socket={self.kubelet.socket}",
            f"--pod-resources-socket={self.kubelet.pod_resources_socket}",
            f"--state-dir={self.state_dir}",
            "--no-report",
            "--config-poll=0.1s",
            "--change-spacing=0s",
        ]
        replaced = {flag.partition("=")[0] for flag in more}
        kept = [flag for flag in flags if flag.partition("=")[0] not in replaced]
        log = self.folder / f"log-{len(self.plugins)}"
        forked = self._forked and environment is None and within is None
        started = PluginProcess(log, [*kept, *more], environment, within, forked=forked)
        self.plugins.append(started)
        return started

    async def listed(self, capacity: int, allocatable: int, resource: str = GPU, *, guard: float = 60.0) -> None:
        """Wait until the kubelet has so many devices, and a stream is open."""
        await self.kubelet.until(
            lambda: self.kubelet.count().get(resource) == (capacity, allocatable) and self.kubelet.streams(resource),
            f"{resource}: {capacity} devices, {allocatable} healthy",
            guard=guard,
        )

    def sockets(self) -> list[str]:
        """The plugins' sockets that lie in the kubelet's folder."""
        return sorted(path.name for path in self.kubelet.folder.iterdir() if path.name.startswith("gpusharing-"))


@asynccontextmanager
async def bench(config: str, inventory: str, *, forked: bool = False) -> AsyncIterator[Bench]:
    """A folder with a running kubelet; at the end every plugin in it is gone.

    With `forked` plugins come from a process that has imported everything, not from a start of Python.
    """
    # the path of a socket has 107 bytes at most
    with tempfile.TemporaryDirectory(prefix="gs-", dir="/tmp") as folder:
        made = Bench(Path(folder), forked=forked)
        made.configure(config)
        made.have(inventory)
        async with made.kubelet:
            try:
                yield made
            finally:
                for plugin in made.plugins:
                    await plugin.kill()


class PluginProcess:
    """One process; `async with` starts it, and leaving kills it if it still runs."""

    def __init__(
        self,
        log: Path,
        flags: Iterable[str],
        environment: Mapping[str, str] | None,
        within: Path | None,
        *,
        forked: bool,
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._flags = [*flags, f"--http-address=127.0.0.1:{self.port}", "--log-format=json"]
        self._environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **(environment or {})}
        # the shell goes into the cgroup, and becomes the plugin
        self._entry = ("sh", "-c", f'echo $$ > {within}/cgroup.procs && exec "$@"', "sh") if within else ()
        self._log = log
        self._forked = forked
        self._process: subprocess.Popen[bytes] | BaseProcess | None = None

    async def __aenter__(self) -> Self:
        self._process = self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.log_text())
        await self.kill()

    # --- life and death

    def _start(self) -> subprocess.Popen[bytes] | BaseProcess:
        arguments = ["device-plugin", *self._flags]
        if self._forked:
            return fork(arguments, self._log, environment=self._environment)
        command = [*self._entry, sys.executable, "-m", "gpusharing", *arguments]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process is not None and self._code() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    async def ends(self) -> int:
        """Its exit code, once it has ended; a signal's is negative."""

        def ended() -> int:
            code = self._code()
            assert code is not None
            return code

        return await asyncio.to_thread(eventually, ended, what="the plugin ends")

    def _code(self) -> int | None:
        """Its exit code; None = it runs."""
        assert self._process is not None
        return self._process.poll() if isinstance(self._process, subprocess.Popen) else self._process.exitcode

    async def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        self.send(signal.SIGTERM)
        return await self.ends()

    async def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.running:
            self.send(signal.SIGKILL)
            await self.ends()

    # --- what it says

    async def http(self, path: str, *, timeout: float = 30.0) -> tuple[int, str]:
        """Status and text of one of its pages. Raises TimeoutError, OSError."""
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                answer = (await reader.read()).decode()
            finally:
                writer.close()
                await writer.wait_closed()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split()[1]), body

    async def page(self, path: str, holds: Callable[[int, str], bool], what: str) -> str:
        """Wait until a page says what it should; returns its text."""
        status, text = 0, "no answer"
        for _ in range(600):
            if not self.running:
                break
            try:
                status, text = await self.http(path)
            except OSError:
                status = 0
            if holds(status, text):
                return text
            await asyncio.sleep(0.1)
        raise AssertionError(f"{path} never was as it should be: {what}; it says {status} {text}\n{self.log_text()}")

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log's lines with this message."""
        lines = [json.loads(line) for line in self._lines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    async def says(self, event: str) -> dict[str, Any]:
        """Wait for a line of the log."""

        def last() -> dict[str, Any]:
            found = self.logged(event)
            assert found, self.log_text()
            return found[-1]

        return await asyncio.to_thread(eventually, last, what=f"the log says {event!r}", within=60)

    def log_text(self) -> str:
        """The end of the log."""
        return "\n".join(self._lines()[-40:])

    def _lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    # --- what it takes

    def rss_anon_mib(self) -> float:
        """Memory that only it has, its children's included."""
        return sum(_rss_anon_kib(pid) for pid in (self.pid, *self.children())) / 1024

    def children(self) -> list[int]:
        """Process ids of its children."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def descriptors(self) -> int:
        """How many files it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_seconds(self) -> float:
        """CPU time so far, its children's included."""
        return sum(_ticks(pid) for pid in (self.pid, *self.children())) / os.sysconf("SC_CLK_TCK")


def _rss_anon_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def _ticks(pid: int) -> int:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)
