"""Wiring of the device plugin: state, hardware, config, kubelet, report, stop. The only place that makes the edges."""

import asyncio
import os
import signal
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusharing.api.reasons import Reason
from gpusharing.core.checkpoint import checkpoint_of, restore
from gpusharing.core.errors import GpuSharingError, first_of
from gpusharing.core.health import read_health_checks
from gpusharing.core.nodeproblems import Observed, problems
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.config_source import ConfigFileSource
from gpusharing.deviceplugin.decider import DecisionTimes
from gpusharing.deviceplugin.hardware import Hardware
from gpusharing.deviceplugin.host import LocalHost
from gpusharing.deviceplugin.imports import import_beside
from gpusharing.deviceplugin.kubelet import KubeletWatcher
from gpusharing.deviceplugin.ledger import LedgerKeeper
from gpusharing.deviceplugin.plugin import Plugin, PluginTimes
from gpusharing.deviceplugin.pod_resources import PodResources
from gpusharing.deviceplugin.processes import GpuProcesses
from gpusharing.deviceplugin.registration import ResourceServer
from gpusharing.deviceplugin.saving import State
from gpusharing.deviceplugin.settings import Settings, read_settings, refuse_platform
from gpusharing.deviceplugin.sockets import FolderGone, HostLock, PluginFolder
from gpusharing.deviceplugin.statefile import CHECKPOINT, LEDGER
from gpusharing.deviceplugin.usage import Usage
from gpusharing.deviceplugin.view import View
from gpusharing.deviceplugin.watchdog import STUCK_SECONDS, Watchdog
from gpusharing.discovery.base import DeviceDiscovery
from gpusharing.discovery.simulated import SimulatedDiscovery, simulated_mig_minors
from gpusharing.discovery.worker import NvmlDiscovery
from gpusharing.observability.logs import configure_logs, logger
from gpusharing.observability.pluginmetrics import PluginMetrics

# The libraries behind this and the pages take two thirds of the time that a start takes: the kubelet is served first.
if TYPE_CHECKING:
    from gpusharing.deviceplugin.cluster import Cluster

log = logger(__name__)

STOP_SECONDS = 4.0
COUNT_SECONDS = 1.0
EXIT_FOLDER_GONE = 4
# How long everything that can wait waits for the kubelet to be served from a checkpoint or a config file.
SERVE_FIRST_SECONDS = 3.0
# What takes the plugin off the list of ready pods; everything else is a matter of the node's report alone.
_UNREADY = {Reason.NVML_UNAVAILABLE, Reason.NOT_REGISTERED}


def main(arguments: Sequence[str]) -> int:
    """Run `gpusharing device-plugin`. Returns the exit code."""
    settings = read_settings(arguments)
    refuse_platform()
    configure_logs(settings.log_format, settings.log_level)
    return asyncio.run(run(settings))


async def run(settings: Settings) -> int:
    """Run until a signal (0), or until the kubelet's folder is gone (4: the pod has to be made anew)."""
    status = EXIT_FOLDER_GONE
    try:
        status = await App(settings).run()
    except* FolderGone as gone:
        log.critical("the kubelet's folder is gone", error=str(first_of(gone)))
    except* GpuSharingError as several:
        raise first_of(several) from None
    return status


class App:
    """Every part of the process, and how they hear of one another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._metrics = PluginMetrics()
        self._stop = asyncio.Event()
        self._watchdog = Watchdog()
        self._state_dir = Path(settings.state_dir)
        socket = Path(settings.kubelet_socket or Settings().kubelet_socket)
        self._folder = PluginFolder(socket.parent, socket.name)
        self._watcher = KubeletWatcher(self._folder)
        self._servers: dict[str, ResourceServer] = {}
        file = settings.config_file
        self._file = ConfigFileSource(Path(file), poll=settings.config_poll) if file else None
        self._cluster: Cluster | None = None
        self._counted = Observed()
        self._said = ""

    async def run(self) -> int:
        """Start everything, and stop it in order."""
        self._say_who_is_left(self._folder.remove_stale())
        self._reservations = self._make_reservations()
        restored, found = self._restore()
        self._make_plugin(restored)
        self._on_signals()
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each) for each in self._tasks(found and self._reservations.is_complete)]
                await self._stop.wait()
                await self._plugin.stop()
                for task in running:
                    task.cancel()
        finally:
            await self._discovery.close()
            await self._pod_resources.close()
            self._folder.close()
        log.info("stopped")
        return 0

    def _tasks(self, has_checkpoint: bool) -> list[Coroutine[Any, Any, None]]:
        tasks = [
            self._watchdog.run(),
            self._watcher.run(),
            self._hardware.run(),
            self._usage.run(),
            self._processes.run(),
            self._serve_alone(),
            self._count(),
            self._answer_probes_and_talk(has_checkpoint),
        ]
        return [*tasks, self._file.follow(self._plugin.desire)] if self._file else tasks

    async def _answer_probes_and_talk(self, has_checkpoint: bool) -> None:
        """Serve /livez, /readyz and /metrics, and talk to the API server, once the kubelet is served."""
        if has_checkpoint or self._file:
            await self._until_served()
        await import_beside("gpusharing.observability.http")
        from gpusharing.observability.http import serve_http

        http = await serve_http(
            self._settings.http_address,
            self._metrics.registry,
            live=self._live,
            ready=self._ready,
            flag="--http-address",
        )
        try:
            if not self._file or self._settings.reports:  # else no token is needed, and none may be there
                await self._talk(has_checkpoint)
            await self._stop.wait()
        finally:
            await http.cleanup()

    async def _until_served(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVE_FIRST_SECONDS):
                while not self._plugin.servers or not all(status.stream_open for status in self._plugin.servers):
                    await asyncio.sleep(0.02)

    async def _talk(self, has_checkpoint: bool) -> None:
        await import_beside("gpusharing.deviceplugin.cluster")
        from gpusharing.deviceplugin.cluster import Cluster

        self._cluster = await Cluster.join(self._settings, self._metrics, has_checkpoint=has_checkpoint)
        if not self._plugin.waiting:
            self._cluster.report(self._plugin.observed)
        await self._cluster.run(self._plugin)

    async def _serve_alone(self) -> None:
        """Serve once no other plugin does, or did not end for too long (F07)."""
        with suppress(OSError):
            self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = HostLock(self._state_dir / "lock")
        await lock.take()
        if not self._file:
            self._reservations.restore(LEDGER.load(self._state_dir)[0])  # another plugin may have served until now
        waiting = asyncio.create_task(lock.until_ours(self._say_alone))
        try:
            await self._plugin.run()
        finally:
            waiting.cancel()
            lock.release()

    def _say_alone(self, problem: str) -> None:
        """Report what keeps the host's lock from us; empty = we have it."""
        if problem:
            log.warning("not alone on this host", why=problem)
        self._plugin.not_alone = problem
        self._plugin.wake()

    # --- making the parts

    def _restore(self) -> tuple[State, bool]:
        """Return what a former process left, and whether there was anything."""
        found, problem = CHECKPOINT.load(self._state_dir)
        if problem:
            log.warning("no checkpoint", why=problem)
        if found is None:
            return State(), False
        now = asyncio.get_running_loop().time()
        accepted, listing, lost = restore(found, self._settings.given, now)
        for part in lost:
            log.warning("a part of the checkpoint is lost", what=part)
        return State(accepted, listing, found.runtime), True

    def _make_reservations(self) -> LedgerKeeper:
        """Return who keeps the ledger; with a config file alone nothing is ever reserved."""
        if self._file:
            return LedgerKeeper.idle()
        found, problem = LEDGER.load(self._state_dir)
        if problem:
            log.warning("no ledger of reservations", why=problem)
        return LedgerKeeper(lambda ledger: LEDGER.save(self._state_dir, ledger), found)

    def _make_plugin(self, restored: State) -> None:
        settings = self._settings
        checks, notes = read_health_checks(settings.disable_healthchecks, settings.enable_healthchecks)
        for note in notes:
            log.warning("health checks", note=note)
        self._discovery = self._make_discovery()
        simulated = settings.discovery == "simulated"
        host = LocalHost(
            simulated_mig_minors if simulated else None,
            cdi_feature_flags=settings.cdi_feature_flags,
            cdi_disable_hooks=settings.cdi_disable_hooks,
        )
        self._pod_resources = PodResources(Path(settings.pod_resources_socket))
        self._usage = Usage(self._pod_resources, self._wake)
        self._hardware = Hardware(self._discovery, checks, self._wake)
        self._processes = GpuProcesses(self._discovery.computing, self._wake)
        self._plugin = Plugin(
            settings.given,
            self._hardware,
            host,
            self._usage,
            self._processes,
            self._serve,
            report=self._report,
            save=self._save,
            reservations=self._reservations,
            restored=restored,
            runtime=settings.container_runtime,
            times=PluginTimes(decisions=DecisionTimes(spacing=settings.change_spacing)),
        )

    def _make_discovery(self) -> DeviceDiscovery:
        settings = self._settings
        if settings.discovery == "simulated":
            return SimulatedDiscovery(Path(settings.inventory), settings.node_name, on_problem=_say_oddity)
        given = settings.given.given.get("container_driver_root")
        root = str(given.value) if given else ServedConfig().container_driver_root
        return NvmlDiscovery(root, on_problem=_say_oddity)

    def _serve(self, view: View) -> ResourceServer:
        server = ResourceServer(view, self._watcher, register=bool(self._settings.kubelet_socket))
        self._servers[view.name] = server
        return server

    # --- what they tell one another

    def _wake(self) -> None:
        self._plugin.wake()

    def _report(self, observed: Observed) -> None:
        self._metrics.show(observed)
        self._count_configs(observed)
        if self._cluster is not None:
            self._cluster.report(observed)

    def _count_configs(self, observed: Observed) -> None:
        before, self._counted = self._counted, observed
        if observed.served is not None and observed.served != before.served:
            self._metrics.config_changes_total.labels("applied").inc()
        if observed.config_error and observed.config_error != before.config_error:
            self._metrics.config_changes_total.labels("refused").inc()

    async def _count(self) -> None:
        """Count what happens between kubelet and servers, and to the process that asks NVML; nobody tells of that."""
        workers = 1
        while True:
            for name, server in self._servers.items():
                self._metrics.count(name, server.counts)
            if isinstance(self._discovery, NvmlDiscovery) and self._discovery.started > workers:
                self._metrics.nvml_restarts_total.inc(self._discovery.started - workers)
                workers = self._discovery.started
            await asyncio.sleep(COUNT_SECONDS)

    def _save(self, state: State) -> bool:
        problem = CHECKPOINT.save(self._state_dir, checkpoint_of(state.accepted, state.listing, state.runtime))
        if problem and problem != self._said:
            log.warning("what is served may be lost with a restart", why=problem)
        self._said = problem
        return not problem

    def _live(self) -> str:
        """Return why the process should be restarted (P12); empty = it should not."""
        if self._watchdog.silent > STUCK_SECONDS:
            return f"the event loop has been stuck for {self._watchdog.silent:.0f} s"
        dead = [status.resource for status in self._plugin.servers if not status.live]
        return f"{', '.join(dead)}: neither served nor being registered" if dead else ""

    def _ready(self) -> str:
        """Return why the node's GPUs are not served; empty = they are."""
        if self._plugin.waiting:
            return self._plugin.waiting
        found = problems(self._plugin.observed)
        return next((each.sentence for each in found if each.reason in _UNREADY and not each.harmless), "")

    # --- signals

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self._asked_to_stop)
        reread = self._file.reread if self._file else self._wake
        loop.add_signal_handler(signal.SIGHUP, reread)

    def _asked_to_stop(self) -> None:
        log.info("asked to stop")
        self._stop.set()
        asyncio.get_running_loop().call_later(STOP_SECONDS, os._exit, 1)

    def _say_who_is_left(self, stale: Sequence[str]) -> None:
        if stale:
            log.info("removed sockets of a former plugin", names=list(stale))


def _say_oddity(problem: str) -> None:
    log.warning("hardware", problem=problem)
