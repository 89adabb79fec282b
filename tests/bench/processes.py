"""A process under measurement: what it says and when, its CPU time and its memory, from /proc."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cluster.binaries import cache_folder

ROOT = Path(__file__).resolve().parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Said:
    """One log line: when it arrived, and how much CPU time the process had used by then."""

    at: float
    cpu: float
    fields: dict[str, Any]


def environment() -> dict[str, str]:
    """Ours, but for settings of the product; bytecode is kept, as an image has it, in a folder of its own."""
    dropped = ("GPUSHARING_", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return {
        **kept,
        "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}",
        "PYTHONPYCACHEPREFIX": str(cache_folder() / "bytecode"),
    }


def compile_all() -> None:
    """Import everything once, so that the first process is no slower than the next."""
    for module in ("gpusharing.controller.app", "gpusharing.cli.app", "tests.bench.bareloop"):
        subprocess.run([sys.executable, "-c", f"import {module}"], env=environment(), cwd=ROOT, check=True)


def cpu_seconds(stat: str) -> float:
    """User and system time in a line of /proc/PID/stat; the program's name may hold anything."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(status: str, field: str) -> float:
    """A field of /proc/PID/status (`VmRSS`, `VmHWM`) in megabytes of a million bytes."""
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024 / 1e6


class Process:
    """`python -m MODULE …`, whose JSON log lines on standard error are kept."""

    def __init__(self, process: asyncio.subprocess.Process, started: float) -> None:
        self._process = process
        self.started = started
        self.said: defaultdict[str, list[Said]] = defaultdict(list)
        self.tail: deque[str] = deque(maxlen=20)
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, module: str, *arguments: str) -> "Process":
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            cwd=ROOT,
            env=environment(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process, started)

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            text = line.decode(errors="replace")
            self.tail.append(text)
            if text.startswith("{"):
                fields = json.loads(text)
                self.said[fields["event"]].append(Said(time.monotonic(), self._cpu_or_zero(), fields))
            async with self._news:
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def says(self, event: str, *, times: int = 1, within: float = 120) -> Said:
        """Wait until it has said this so often. Raises RuntimeError with the end of its log where it does not."""
        heard = self.said[event]
        try:
            async with asyncio.timeout(within), self._news:
                await self._news.wait_for(lambda: len(heard) >= times or self._reading.done())
        except TimeoutError:
            pass
        if len(heard) < times:
            raise RuntimeError(f"{event!r} was not said within {within:g} s; its log ends:\n{''.join(self.tail)}")
        return heard[times - 1]

    @property
    def cpu(self) -> float:
        """CPU seconds used so far."""
        return cpu_seconds(Path(f"/proc/{self._process.pid}/stat").read_text())

    @property
    def cpu_of_all(self) -> float:
        """CPU seconds of the process and its children so far."""
        return sum(cpu_seconds((Path("/proc") / pid / "stat").read_text()) for pid in self._family())

    @property
    def anonymous_mib(self) -> float:
        """Anonymous memory of the process and its children, in MiB: what no other process can share."""
        statuses = ((Path("/proc") / pid / "status").read_text() for pid in self._family())
        return sum(memory_mb(status, "RssAnon") for status in statuses) * 1e6 / (1 << 20)

    def _family(self) -> list[str]:
        own = str(self._process.pid)
        return [own, *Path(f"/proc/{own}/task/{own}/children").read_text().split()]

    def _cpu_or_zero(self) -> float:
        try:
            return self.cpu
        except OSError:  # its last words are read after its end
            return 0.0

    def memory(self, field: str = "VmRSS") -> float:
        """Resident memory now; `VmHWM` = the most so far."""
        return memory_mb(Path(f"/proc/{self._process.pid}/status").read_text(), field)

    async def stop(self) -> None:
        """SIGTERM, and wait for the end; SIGKILL after 20 s."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(20):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        await self._process.wait()
        await self._reading
