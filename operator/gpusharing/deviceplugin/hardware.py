"""What the node has and which of it is sick: discovery asked again and again, and never waited for by the kubelet.

NVML that does not answer makes every GPU sick, and is tried again, less and less often, for ever (F09, F10).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpusharing.core.devices import Inventory
from gpusharing.core.health import GpuEvent, Health, HealthChecks
from gpusharing.discovery.base import DeviceDiscovery, DiscoveryError
from gpusharing.observability.logs import logger

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class LookTimes:
    """Seconds."""

    # between two probes of every GPU
    probe: float = 2.0
    # between two inventories: a GPU that was swapped, or MIG devices made anew, are seen within it (F17: 30 s)
    inventory: float = 15.0
    # after the first failure, doubling up to the longest
    first_pause: float = 1.0
    longest_pause: float = 30.0


class Hardware:
    """The GPUs as they were last seen. `changed` is called when anything differs."""

    def __init__(
        self,
        discovery: DeviceDiscovery,
        checks: HealthChecks,
        changed: Callable[[], None],
        times: LookTimes = LookTimes(),
    ) -> None:
        self._discovery = discovery
        self._checks = checks
        self._changed = changed
        self._times = times
        self._health = Health()
        self._pause = times.first_pause
        self._inventory_due = 0.0
        self.inventory: Inventory | None = None
        self.problem = ""
        self.sick: Mapping[str, str] = MappingProxyType({})

    async def run(self) -> None:
        """Look and listen until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._look_again_and_again())

    async def _look_again_and_again(self) -> None:
        while True:
            try:
                await self.look()
                await asyncio.sleep(self._times.probe)
                continue
            except DiscoveryError as error:
                self._failed(error)
            except Exception as error:
                log.exception("looking at the GPUs failed: this is a bug, please report it")
                self._failed(DiscoveryError(f"{type(error).__name__}: this is a bug, please report it", kind="failed"))
            await asyncio.sleep(self._pause)
            self._pause = min(self._times.longest_pause, 2 * self._pause)

    async def look(self) -> None:
        """Ask what is there, if it is time, and how it is. Raises DiscoveryError."""
        now = asyncio.get_running_loop().time()
        inventory = self.inventory
        if inventory is None or now >= self._inventory_due:
            inventory = await self._discovery.inventory()
            self._inventory_due = now + self._times.inventory
        probes = await self._discovery.probe()
        self._pause = self._times.first_pause
        health = self._health.after_probe(probes, inventory, self._checks, asyncio.get_running_loop().time())
        self._take(inventory, health, "")

    async def _listen(self) -> None:
        async for event in self._discovery.events():
            self._heard(event)

    def _heard(self, event: GpuEvent) -> None:
        inventory = self.inventory or Inventory()
        log.warning("XID", gpu=event.gpu, xid=event.xid, gi=event.gi, ci=event.ci)
        now = asyncio.get_running_loop().time()
        self._take(self.inventory, self._health.after_event(event, inventory, self._checks, now), self.problem)

    def _failed(self, error: DiscoveryError) -> None:
        why = str(error)
        if why != self.problem:
            log.error("the GPUs cannot be seen", error=error.message, hint=error.hint)
        self._inventory_due = 0.0  # when it answers again, everything may be another
        now = asyncio.get_running_loop().time()
        health = self._health.after_failure(error.message, self.inventory or Inventory(), self._checks, now)
        self._take(self.inventory, health, why)

    def _take(self, inventory: Inventory | None, health: Health, problem: str) -> None:
        before = (self.inventory, self.problem, self.sick)
        if inventory != self.inventory:  # an equal one stays the same object: others compare by identity
            log.info("GPUs", count=len(inventory.gpus) if inventory else 0)
            self.inventory = inventory
        self._health, self.problem = health, problem
        self.sick = MappingProxyType(dict(health.sick(self.inventory or Inventory())))
        if before != (self.inventory, self.problem, self.sick):
            self._changed()
