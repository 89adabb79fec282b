"""NVIDIA's MPS control daemons as processes: start, limits, clients, end, and the marker that the plugin waits for."""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusharing.core.errors import GpuSharingError
from gpusharing.core.mpsdaemon import PROBE, MpsDaemon, RunningDaemon, Step, next_steps
from gpusharing.observability.logs import logger

log = logger(__name__)

MARKER = "ready"


class MpsControlError(GpuSharingError):
    """A program of NVIDIA's failed, is missing, or does not answer."""

    retry = True


@dataclass(frozen=True, slots=True)
class MpsPrograms:
    """The programs, by path or name, and how long one may take."""

    control: str = "nvidia-cuda-mps-control"
    smi: str = "nvidia-smi"
    # seconds
    deadline: float = 10.0


class MpsControl:
    """The daemons of this node. `folder` is `mpsRoot` in this container: pods see the same paths below `/mps`."""

    def __init__(self, programs: MpsPrograms, folder: Path = Path("/mps")) -> None:
        self._programs = programs
        self._folder = folder
        self._running: dict[str, RunningDaemon] = {}

    def remove_markers(self) -> None:
        """Remove what a former process left: its daemons ended with its container."""
        for marker in self._folder.glob(f"*/*/{MARKER}"):
            marker.unlink(missing_ok=True)

    async def bring_to(self, wanted: Sequence[MpsDaemon]) -> None:
        """Do what can be done now to have these daemons and no others. A failure is logged; call again later."""
        targets = {daemon.resource: daemon for daemon in wanted}
        for resource in sorted(targets.keys() | self._running.keys()):
            await self._look(resource)
            try:
                for step in next_steps(self._running.get(resource), targets.get(resource)):
                    await self._take(step, resource, targets.get(resource))
            except (MpsControlError, OSError) as error:
                log.error("MPS daemon", resource=resource, error=str(error))
                self._unmark(resource)

    async def stop(self) -> None:
        """End all daemons, and their clients with them."""
        for resource in sorted(self._running):
            self._unmark(resource)
            try:
                await self._stop(resource)
            except (MpsControlError, OSError) as error:
                log.error("MPS daemon", resource=resource, error=str(error))

    async def _look(self, resource: str) -> None:
        """See whether a running daemon answers, and has clients."""
        running = self._running.get(resource)
        if running is None:
            return
        try:
            await self._command(resource, PROBE)
            servers = (await self._command(resource, "get_server_list")).split()
            clients = [await self._command(resource, f"get_client_list {server}") for server in servers]
            self._running[resource] = replace(running, alive=True, clients=any(text.split() for text in clients))
        except MpsControlError as error:
            log.warning("MPS daemon does not answer", resource=resource, error=error.message)
            self._running[resource] = replace(running, alive=False, clients=False)

    async def _take(self, step: Step, resource: str, wanted: MpsDaemon | None) -> None:
        log.info("MPS daemon", resource=resource, step=step)
        if step == "unmark":
            self._unmark(resource)
        elif step == "stop":
            await self._stop(resource)
        elif wanted is not None and step == "start":
            await self._start(wanted)
        elif wanted is not None and step == "limit":
            await self._limit(wanted)
            self._running[resource] = replace(self._running[resource], daemon=wanted, outdated=True)
        elif wanted is not None:
            self._mark(wanted)

    # --- the steps

    async def _start(self, daemon: MpsDaemon) -> None:
        for folder in (self._pipe(daemon.resource), self._log(daemon.resource)):
            folder.mkdir(parents=True, exist_ok=True)
        await self._compute_mode(daemon.gpus, "EXCLUSIVE_PROCESS")
        await self._run([self._programs.control, "-d"], self._environment(daemon))
        self._running[daemon.resource] = RunningDaemon(daemon, outdated=True)
        await self._limit(daemon)
        self._running[daemon.resource] = RunningDaemon(daemon)

    async def _stop(self, resource: str) -> None:
        running = self._running[resource]
        await self._command(resource, "quit")
        del self._running[resource]
        shutil.rmtree(self._log(resource), ignore_errors=True)
        await self._compute_mode(running.daemon.gpus, "DEFAULT")

    async def _limit(self, daemon: MpsDaemon) -> None:
        for command in daemon.limits:
            await self._command(daemon.resource, command)

    def _mark(self, daemon: MpsDaemon) -> None:
        marker = self._folder / daemon.resource / MARKER
        unfinished = marker.with_name(f".{MARKER}")
        unfinished.write_text(f"{daemon.digest}\n")
        unfinished.replace(marker)
        self._running[daemon.resource] = replace(self._running[daemon.resource], daemon=daemon)

    def _unmark(self, resource: str) -> None:
        (self._folder / resource / MARKER).unlink(missing_ok=True)

    async def _compute_mode(self, gpus: Sequence[str], mode: str) -> None:
        for gpu in gpus:
            await self._run([self._programs.smi, "-i", gpu, "-c", mode], {})

    # --- processes

    async def _command(self, resource: str, command: str) -> str:
        """Say a command to a daemon and return its answer."""
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(self._pipe(resource))}
        return await self._run([self._programs.control], environment, f"{command}\n")

    async def _run(self, arguments: Sequence[str], environment: Mapping[str, str], text: str = "") -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                env={**os.environ, **environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise MpsControlError(f"{arguments[0]}: {error.strerror}", hint="is the NVIDIA driver mounted?") from error
        try:
            async with asyncio.timeout(self._programs.deadline):
                output, _ = await process.communicate(text.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            raise MpsControlError(f"{' '.join(arguments)}: no end after {self._programs.deadline:g} s") from None
        answer = output.decode(errors="replace").strip()
        if process.returncode:
            raise MpsControlError(f"{' '.join((*arguments, text.strip()))}: {answer or process.returncode}")
        return answer

    def _environment(self, daemon: MpsDaemon) -> Mapping[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(daemon.gpus),
            "CUDA_MPS_PIPE_DIRECTORY": str(self._pipe(daemon.resource)),
            "CUDA_MPS_LOG_DIRECTORY": str(self._log(daemon.resource)),
        }

    def _pipe(self, resource: str) -> Path:
        return self._folder / resource / "pipe"

    def _log(self, resource: str) -> Path:
        return self._folder / resource / "log"
