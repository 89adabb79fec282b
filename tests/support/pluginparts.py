"""A node for the plugin's own logic: doubles at its four seams, and a `Node` that puts the plugin between them.

Everything runs on a fake clock. What the kubelet was shown is kept: `node.lists` has every list of every resource.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.support.hardware import make_hardware

from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts
from gpusharing.core.nodeproblems import Observed, Problem, problems
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.options import Options
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.deviceplugin.ledger import LedgerKeeper
from gpusharing.deviceplugin.plugin import Plugin, PluginTimes
from gpusharing.deviceplugin.processes import GpuProcesses
from gpusharing.deviceplugin.registration import RegistrationStatus
from gpusharing.deviceplugin.saving import State
from gpusharing.deviceplugin.usage import Usage
from gpusharing.deviceplugin.view import View
from gpusharing.discovery.simulated import simulated_mig_minors

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"


def shared(replicas: int, *, resource: str = GPU, more: str = "") -> str:
    """A config with so many shares; `more` is put into the resource's line."""
    entry = f"{{name: {resource}, replicas: {replicas}{more}}}"
    return f"version: v1\nsharing: {{timeSlicing: {{resources: [{entry}]}}}}\n"


def mig(strategy: str) -> str:
    """A config with this MIG strategy."""
    return f"version: v1\nflags: {{migStrategy: {strategy}}}\n"


class HardwareDouble:
    """GPUs as the test says."""

    def __init__(self, inventory: Inventory | None) -> None:
        self.inventory = inventory
        self.problem = ""
        self.sick: Mapping[str, str] = {}


class HostDouble:
    """A host that has what a config needs, unless `refuse` says otherwise; `takes` is how long it is looked at."""

    def __init__(self) -> None:
        self.there: frozenset[str] = frozenset({"/dev/nvidiactl"})
        self.refuse = ""
        self.takes = 0.0
        self.daemons: set[str] = set()
        self.asked = 0

    def nodes(self, config: ServedConfig) -> frozenset[str]:
        return self.there

    async def facts(self, config: ServedConfig, inventory: Inventory, runtime: str) -> HostFacts:
        self.asked += 1
        await asyncio.sleep(self.takes)
        if self.refuse:
            raise InvalidInput(self.refuse)
        return HostFacts(self.there, simulated_mig_minors(inventory), runtime)

    def mps_ready(self, config: ServedConfig, resource: str) -> bool:
        return resource in self.daemons


class ServerDouble:
    """A kubelet that takes every list at once; `problem` says why it does not."""

    def __init__(self, view: View, node: "Node") -> None:
        self.view, self._node = view, node
        self.running = False
        self.problem = ""
        # a kubelet that is restarted opens another one
        self.streams = 1
        self.stop_takes = 0.0
        self.ended = float("-inf")

    @property
    def status(self) -> RegistrationStatus:
        taken = self.running and not self.problem
        return RegistrationStatus(self.view.name, taken, taken, self.running, self.problem, self.streams)

    def start(self) -> None:
        for other in self._node.servers[self.view.name]:
            assert not other.running, "two servers of one resource"
            assert self._node.now() - other.ended >= 0.5, "the kubelet may still have the old stream (contract 3.2)"
        self._node.servers[self.view.name].append(self)
        self.running = True
        self.changed()

    def changed(self) -> None:
        shown = {device.id: healthy for device, healthy in self.view.listed()}
        self._node.lists.setdefault(self.view.name, []).append((self._node.now(), shown))

    async def stop(self) -> None:
        await asyncio.sleep(self.stop_takes)
        self.running, self.ended = False, self._node.now()


class PodResourcesDouble:
    """Says what the node's pods hold, and that the kubelet has every list that it was shown."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    @property
    def problem(self) -> str:
        return "" if self._node.readable else "no socket"

    @property
    def names(self) -> frozenset[str]:
        return frozenset({*(f"{row.namespace}/{row.pod}" for row in self._node.pods.values()), *self._node.idle_pods})

    async def pods(self) -> Sequence[PodDevices] | None:
        return list(self._node.pods.values()) if self._node.readable else None

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        shown = {name: self._node.listed(name) or {} for name in self._node.lists}
        return {name: frozenset(device for device, well in ids.items() if well) for name, ids in shown.items()}


class Node:
    """A node with its plugin."""

    def __init__(
        self,
        inventory: Inventory | None = None,
        *,
        options: Options | None = None,
        restored: State | None = None,
        ledger: LedgerKeeper | None = None,
        runtime: str = "",
        times: PluginTimes | None = None,
    ) -> None:
        self.hardware = HardwareDouble(make_hardware(2).build() if inventory is None else inventory)
        self.host = HostDouble()
        self.pods: dict[str, PodDevices] = {}
        # pods that hold nothing that the kubelet would show
        self.idle_pods: set[str] = set()
        self.readable = True
        # GPUs that processes compute on; and what the driver says instead of that, after so many seconds
        self.computing: set[str] = set()
        self.driver_fails: Exception | None = None
        self.driver_takes = 0.0
        # when it was asked
        self.driver_asked: list[float] = []
        self.servers: dict[str, list[ServerDouble]] = defaultdict(list)
        self.lists: dict[str, list[tuple[float, dict[str, bool]]]] = {}
        self.reports: list[Observed] = []
        self.saved: list[State] = []
        self.disk_is_full = False
        self.usage = Usage(PodResourcesDouble(self), lambda: self.plugin.wake(), jitter=lambda: 0.0)
        self.processes = GpuProcesses(self._computing, lambda: self.plugin.wake())
        self.plugin = Plugin(
            options or Options(),
            self.hardware,
            self.host,
            self.usage,
            self.processes,
            lambda view: ServerDouble(view, self),
            report=self.reports.append,
            save=self._save,
            reservations=ledger,
            restored=restored,
            runtime=runtime,
            times=times or PluginTimes(),
        )

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Node"]:
        """Run the plugin; at the end it stops as it does upon a signal."""
        loops = (self.plugin.run(), self.usage.run(), self.processes.run())
        tasks = [asyncio.ensure_future(each) for each in loops]
        try:
            yield self
            await self.plugin.stop()
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    # --- what happens

    def desire(self, text: str | None, name: str = "c", **more: Any) -> None:
        """The node should serve this."""
        self.plugin.desire(Desired(name, text, **more))

    def see(self, inventory: Inventory | None) -> None:
        """The GPUs are others now."""
        self.hardware.inventory = inventory
        self.plugin.wake()

    def hold(self, pod: str, *ids: str, resource: str = GPU) -> None:
        """A pod has these ids."""
        self.pods[pod] = PodDevices("team", pod, "main", resource, ids)

    def end(self, pod: str) -> None:
        """A pod has ended."""
        del self.pods[pod]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds; at most ten minutes of fake time."""
        async with asyncio.timeout(600):
            while not holds():
                await asyncio.sleep(0.05)

    # --- what there is to see

    def listed(self, resource: str = GPU) -> dict[str, bool] | None:
        """The last list that the kubelet was shown, id → healthy; None = the resource is not served."""
        running = any(server.running for server in self.servers[resource])
        return self.lists[resource][-1][1] if running else None

    def healthy(self, resource: str = GPU) -> int:
        """How many ids pods could get now."""
        return sum((self.listed(resource) or {}).values())

    @property
    def observed(self) -> Observed:
        """The last report."""
        return self.reports[-1]

    @property
    def problems(self) -> list[str]:
        """The reasons of the last report."""
        return [each.reason.value for each in self.all_problems()]

    def all_problems(self) -> tuple[Problem, ...]:
        """The problems of the last report."""
        return problems(self.observed)

    async def _computing(self) -> frozenset[str]:
        self.driver_asked.append(self.now())
        await asyncio.sleep(self.driver_takes)
        if self.driver_fails:
            raise self.driver_fails
        return frozenset(self.computing)

    def _save(self, state: State) -> bool:
        if self.disk_is_full:
            return False
        self.saved.append(state)
        return True
