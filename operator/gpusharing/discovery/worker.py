"""NVML behind a deadline: the process that asks it, and what the plugin sees of it.

The process gets a fixed command line, Python's isolated mode and an empty environment (X11). One that is silent for too
long is killed; one that does not die of that hangs in the driver, is left behind, and counted. No threads, no waiting.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpusharing.core.devices import Inventory
from gpusharing.core.health import GpuEvent, Probe
from gpusharing.discovery.base import DiscoveryError, Kind
from gpusharing.discovery.facts import read_inventory

_MODULE = "gpusharing.discovery.nvmlprocess"
_READ = 65536


class NvmlWorker:
    """One process that asks NVML. Answers and events arrive by the running loop."""

    def __init__(self, arguments: Sequence[str], on_event: Callable[[GpuEvent], None]) -> None:
        """Start the process; `arguments` are those of `nvmlprocess.py`. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", _MODULE, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={},
            cwd="/",
            start_new_session=True,  # a Ctrl-C in our terminal is not meant for it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        self._loop.add_reader(self._answers, self._read)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._calls = 0
        self._unfinished = b""
        # when something came from it last
        self._heard = self._loop.time()
        self.usable = True

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is still there; asking also lets go of one that has ended."""
        return self._process.poll() is None

    async def call(self, name: str, deadline: float) -> dict[str, Any]:
        """Return the answer to a request. Raises TimeoutError after `deadline` seconds of silence, EOFError."""
        self._calls += 1
        number = self._calls
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._waiting[number] = answer
        self._heard = self._loop.time()
        try:
            os.write(self._requests, json.dumps({"id": number, "call": name}).encode() + b"\n")
            while not answer.done():
                left = self._heard + deadline - self._loop.time()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait([answer], timeout=left)
            return answer.result()
        except (BrokenPipeError, BlockingIOError) as error:
            raise EOFError from error
        finally:
            del self._waiting[number]

    def kill(self) -> None:
        """End the process without waiting for it; whoever waits for an answer gets a TimeoutError."""
        self._process.kill()
        self._end(TimeoutError())

    def _read(self) -> None:
        try:
            data = os.read(self._answers, _READ)
        except BlockingIOError:
            return
        if not data:
            self._end(EOFError())
            return
        self._heard = self._loop.time()
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in filter(None, lines):
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        for gpu, xid, gi, ci in message.get("events", ()):
            self._on_event(GpuEvent(gpu, xid, gi, ci))
        answer = self._waiting.get(message.get("id", 0))
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _end(self, error: Exception) -> None:
        """Stop to listen: the process has ended, or is about to."""
        if not self.usable:
            return
        self.usable = False
        self._loop.remove_reader(self._answers)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)


class NvmlDiscovery:
    """The node's GPUs as NVML shows them."""

    def __init__(
        self,
        driver_root: str,
        *,
        sysfs: str = "/sys",
        deadline: float = 5.0,
        reopen_after: float = 10.0,
        left_behind_max: int = 4,
        on_problem: Callable[[str], None] = lambda _: None,
        worker: Callable[[Sequence[str], Callable[[GpuEvent], None]], NvmlWorker] = NvmlWorker,
    ) -> None:
        """Below `driver_root` is the driver's library. `on_problem` is told of each oddity once.

        Seconds: `deadline` of silence before a worker is killed; `reopen_after` is how long a new NVML is put off that
        may find a lost GPU again.
        """
        self._arguments, self._deadline = (driver_root, sysfs, str(reopen_after)), deadline
        self._left_behind_max, self._on_problem, self._new_worker = left_behind_max, on_problem, worker
        self._worker: NvmlWorker | None = None
        # workers so far
        self.started = 0
        # killed, and not known to be dead
        self._left_behind: list[NvmlWorker] = []
        self._last = Inventory()
        self._told: set[str] = set()
        # XIDs that nobody has taken yet, equal ones once (F13)
        self._events: dict[GpuEvent, None] = {}
        self._news = asyncio.Event()
        self._closed = False

    @property
    def left_behind(self) -> int:
        """Return how many workers hang in the driver and do not die."""
        self._left_behind = [worker for worker in self._left_behind if worker.alive]
        return len(self._left_behind)

    async def inventory(self) -> Inventory:
        """Return the GPUs; lost ones as they were last seen. Raises DiscoveryError."""
        self._last = read_inventory(await self._call("inventory"), self._last, self._tell)
        return self._last

    async def probe(self) -> Mapping[str, Probe]:
        """Ask every GPU whether it is there. Raises DiscoveryError."""
        answers = await self._call("probe")
        return MappingProxyType({uuid: Probe(reason, gone) for uuid, (reason, gone) in answers.items() if uuid})

    async def computing(self) -> frozenset[str]:
        """Ask which GPUs processes compute on. Raises DiscoveryError."""
        return frozenset(await self._call("computing"))

    async def events(self) -> AsyncIterator[GpuEvent]:
        """Yield the XIDs; they come while a worker runs, which the first call starts."""
        while not self._closed:
            await self._news.wait()
            self._news.clear()
            events, self._events = self._events, {}
            for event in events:
                yield event

    async def close(self) -> None:
        """End the worker, and wait a moment for it to be gone."""
        self._closed = True
        self._news.set()
        if self._worker is not None:
            self._drop(self._worker)
        for _ in range(100):
            if not self.left_behind:
                return
            await asyncio.sleep(0.01)

    async def _call(self, name: str) -> Any:
        worker = self._running()
        try:
            answer = await worker.call(name, self._deadline)
        except TimeoutError as error:
            self._drop(worker)
            message = f"the NVIDIA driver has not answered for {self._deadline:g} s"
            raise DiscoveryError(message, kind="hung", hint="look for XIDs and hung tasks in the kernel log") from error
        except EOFError as error:
            self._drop(worker)
            message = "the process that asks NVML has ended"
            raise DiscoveryError(message, kind="failed", hint="its last words are in the log") from error
        if "error" in answer:
            kind: Kind = "absent" if answer["absent"] else "failed"
            hint = "is the driver loaded, and its root mounted at containerDriverRoot?" if answer["absent"] else ""
            raise DiscoveryError(f"NVML: {answer['error']}", kind=kind, hint=hint)
        return answer["result"]

    def _running(self) -> NvmlWorker:
        """Return the worker; a new one if there is none. Raises DiscoveryError."""
        if self._worker is not None and not self._worker.usable:
            self._drop(self._worker)
        if self._worker is None:
            if self.left_behind >= self._left_behind_max:
                message = f"{self.left_behind} processes hang in the NVIDIA driver and cannot be ended"
                raise DiscoveryError(message, kind="hung", hint="reboot the node")
            try:
                self._worker = self._new_worker(self._arguments, self._take)
                self.started += 1
            except OSError as error:
                raise DiscoveryError(f"NVML cannot be asked: {error}", kind="failed") from error
        return self._worker

    def _drop(self, worker: NvmlWorker) -> None:
        if worker is self._worker:
            self._worker = None
            self._left_behind.append(worker)
            worker.kill()

    def _take(self, event: GpuEvent) -> None:
        self._events[event] = None
        self._news.set()

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self._on_problem(problem)
