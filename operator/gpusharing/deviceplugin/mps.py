"""`gpusharing mps-daemon`: the MPS control daemons that the node's config asks for (decision 39).

A process of its own, in a privileged pod of its own: as children of the plugin the daemons would end with its
container, and running pods with them. It reads the same config as the plugin, from the same place.
"""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from gpusharing.core.acceptance import ConfigText, accept
from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.mpsdaemon import MpsDaemon, mps_daemons
from gpusharing.core.options import Options
from gpusharing.core.resources import resources_of
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.cluster_source import ClusterSource
from gpusharing.deviceplugin.config_source import ConfigFileSource, ConfigSource, Desired
from gpusharing.deviceplugin.mpscontrol import MpsControl, MpsPrograms
from gpusharing.deviceplugin.settings import Settings, read_settings, refuse_platform
from gpusharing.discovery.base import DeviceDiscovery, DiscoveryError
from gpusharing.discovery.simulated import SimulatedDiscovery
from gpusharing.discovery.worker import NvmlDiscovery
from gpusharing.kube.client import connect
from gpusharing.observability.logs import configure_logs, logger

log = logger(__name__)

LOOK_SECONDS = 5.0


def main(arguments: Sequence[str]) -> int:
    """Run `gpusharing mps-daemon`; its settings are those of the device plugin. Returns the exit code."""
    settings = read_settings(arguments)
    refuse_platform()
    configure_logs(settings.log_format, settings.log_level)
    asyncio.run(run(settings, MpsControl(MpsPrograms(control=settings.mps_control_binary))))
    return 0


async def run(settings: Settings, control: MpsControl) -> None:
    """Run until a signal; then end the daemons, which ends their clients."""
    control.remove_markers()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        discovery = _discovery(settings)
        stack.push_async_callback(discovery.close)
        source = await _source(settings, stack)
        supervisor = MpsSupervisor(settings.given, discovery, control)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(source.follow(supervisor.desire)), tasks.create_task(supervisor.run())]
            await stop.wait()
            for task in running:
                task.cancel()
        await control.stop()


class MpsSupervisor:
    """Brings the daemons to what config and GPUs ask for, again and again."""

    def __init__(
        self, options: Options, discovery: DeviceDiscovery, control: MpsControl, *, look: float = LOOK_SECONDS
    ) -> None:
        """Look every `look` seconds, and at once when the config changes."""
        self._options = options
        self._discovery = discovery
        self._control = control
        self._look = look
        self._wake = asyncio.Event()
        # the last config that could be read; None = there was none
        self._served: ServedConfig | None = None
        self._daemons: tuple[MpsDaemon, ...] = ()

    def desire(self, desired: Desired) -> None:
        """Take in which config the node should serve; of one that is refused or missing nothing changes."""
        if desired.missing:
            log.warning("config", missing=desired.missing)
            return
        try:
            source = ConfigText(desired.name, desired.text, desired.rendered)
            self._served = accept(source, self._options, desired.runtime_version).served
        except InvalidInput as error:
            log.error("config is refused", config=desired.name, error=str(error))
        self._wake.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._wake.clear()
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look):
                    await self._wake.wait()

    async def look(self) -> None:
        """Bring the daemons to what is asked for now; before a config was read, do nothing."""
        if self._served is None:
            return
        try:
            self._daemons = _asked_for(self._served, await self._discovery.inventory())
        except DiscoveryError as error:
            log.warning("the GPUs cannot be seen", error=str(error))
        except InvalidInput as error:
            log.error("config does not fit the GPUs", error=str(error))
        await self._control.bring_to(self._daemons)


def _asked_for(served: ServedConfig, inventory: Inventory) -> tuple[MpsDaemon, ...]:
    return mps_daemons(served, resources_of(served, inventory), inventory)


def _discovery(settings: Settings) -> DeviceDiscovery:
    if settings.discovery == "simulated":
        return SimulatedDiscovery(Path(settings.inventory), settings.node_name)
    given = settings.given.given.get("container_driver_root")
    return NvmlDiscovery(str(given.value) if given else ServedConfig().container_driver_root)


async def _source(settings: Settings, stack: AsyncExitStack) -> ConfigSource:
    if settings.config_file:
        return ConfigFileSource(Path(settings.config_file), poll=settings.config_poll)
    client = await connect(settings.kubeconfig, settings.context, timeout=settings.request_timeout)
    stack.push_async_callback(client.close)
    return ClusterSource(
        client,
        settings.node_name,
        label=settings.node_label,
        namespace=settings.namespace,
        config_map=settings.config_map,
        longest_pause=settings.retry_max,
    )
