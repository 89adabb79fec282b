"""What is known of the GPUs while discovery answers, fails and changes its mind. On a fake clock."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

import pytest
from tests.support.hardware import gpu_uuid, make_hardware

from gpusharing.core.devices import Inventory
from gpusharing.core.health import GpuEvent, HealthChecks, Probe
from gpusharing.deviceplugin.hardware import Hardware
from gpusharing.discovery.base import DiscoveryError

pytestmark = pytest.mark.looptime

G0, G1 = gpu_uuid(0), gpu_uuid(1)


class Discovery:
    """GPUs as the test says; `fails` is raised by every call."""

    def __init__(self) -> None:
        self.found = make_hardware(2).build()
        self.lost: set[str] = set()
        self.fails: Exception | None = None
        self.takes = 0.0
        self.asked: list[float] = []
        self.inventories = 0
        self._events: asyncio.Queue[GpuEvent] = asyncio.Queue()

    async def inventory(self) -> Inventory:
        self.inventories += 1
        await self._answer()
        return self.found

    async def probe(self) -> Mapping[str, Probe]:
        await self._answer()
        return {gpu.uuid: Probe("lost", gone=True) if gpu.uuid in self.lost else Probe() for gpu in self.found.gpus}

    async def computing(self) -> frozenset[str]:
        return frozenset()

    async def events(self) -> AsyncIterator[GpuEvent]:
        while True:
            yield await self._events.get()

    async def close(self) -> None:
        """Nothing is held."""

    def xid(self, gpu: str, xid: int) -> None:
        self._events.put_nowait(GpuEvent(gpu, xid))

    async def _answer(self) -> None:
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes)
        if self.fails:
            raise self.fails


class Told:
    """Counts how often something changed."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


class World:
    """Hardware, what is behind it, and who hears of it."""

    def __init__(self) -> None:
        self.discovery, self.told = Discovery(), Told()
        self.hardware = Hardware(self.discovery, HealthChecks(), self.told)

    @contextmanager
    def running(self) -> Iterator["World"]:
        task = asyncio.ensure_future(self.hardware.run())
        try:
            yield self
        finally:
            task.cancel()


ABSENT = DiscoveryError("NVML: driver not loaded", kind="absent", hint="load it")


async def test_the_gpus_are_known_at_once_and_while_nothing_changes_nobody_is_told() -> None:
    with World().running() as world:
        await asyncio.sleep(0.1)
        assert world.hardware.inventory == world.discovery.found
        assert (world.hardware.problem, dict(world.hardware.sick)) == ("", {})
        await asyncio.sleep(300)
        assert world.told.times == 1


@pytest.mark.fault("F09")
async def test_a_driver_that_is_not_there_is_asked_less_and_less_often_for_ever() -> None:
    with World().running() as world:
        world.discovery.fails = ABSENT
        await asyncio.sleep(150)
        gaps = [after - before for before, after in zip(world.discovery.asked, world.discovery.asked[1:], strict=False)]
        assert gaps == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30], abs=0.01)
        assert world.hardware.inventory is None
        assert world.hardware.problem == "NVML: driver not loaded. hint: load it"
        assert world.told.times == 1
        world.discovery.fails = None
        await asyncio.sleep(30)
        assert world.hardware.inventory == world.discovery.found
        assert world.hardware.problem == ""


@pytest.mark.fault("F10")
async def test_a_driver_that_goes_away_makes_every_gpu_sick_within_5_s_and_all_heal_within_30_s_of_its_return() -> None:
    with World().running() as world:
        await asyncio.sleep(60)
        world.discovery.fails = ABSENT
        await asyncio.sleep(5)
        assert set(world.hardware.sick) == {G0, G1}
        assert world.hardware.inventory == world.discovery.found
        world.discovery.fails = None
        world.discovery.found = Inventory(tuple(reversed(world.discovery.found.gpus)), "580.95.05")  # another order
        await asyncio.sleep(30)
        assert dict(world.hardware.sick) == {}


@pytest.mark.fault("F11")
async def test_a_driver_that_hangs_is_a_failure_like_any_other() -> None:
    with World().running() as world:
        await asyncio.sleep(10)
        world.discovery.takes, world.discovery.fails = 5.0, DiscoveryError("no answer for 5 s", kind="hung")
        await asyncio.sleep(8)
        assert set(world.hardware.sick) == {G0, G1}
        assert world.hardware.problem == "no answer for 5 s"


@pytest.mark.fault("F12")
@pytest.mark.fault("F16")
async def test_a_lost_gpu_alone_is_sick_within_5_s_and_heals_after_three_good_probes() -> None:
    with World().running() as world:
        await asyncio.sleep(60)
        world.discovery.lost = {G1}
        await asyncio.sleep(5)
        assert set(world.hardware.sick) == {G1}
        world.discovery.lost = set()
        await asyncio.sleep(15)
        assert set(world.hardware.sick) == {G1}
        await asyncio.sleep(10)
        assert dict(world.hardware.sick) == {}


@pytest.mark.fault("F13")
async def test_an_xid_counts_at_once_and_a_storm_of_them_tells_nobody_anew() -> None:
    with World().running() as world:
        await asyncio.sleep(60)
        told = world.told.times
        for _ in range(10_000):
            world.discovery.xid(G0, 48)
        await asyncio.sleep(0.1)
        assert set(world.hardware.sick) == {G0}
        assert world.told.times == told + 1


@pytest.mark.fault("F17")
async def test_a_swapped_gpu_is_seen_within_30_s() -> None:
    with World().running() as world:
        await asyncio.sleep(60)
        world.discovery.found = make_hardware(2).change(1, uuid="GPU-new").build()
        await asyncio.sleep(30)
        assert world.hardware.inventory == world.discovery.found


async def test_after_a_failure_the_gpus_are_counted_anew_at_once() -> None:
    with World().running() as world:
        await asyncio.sleep(1)
        world.discovery.fails = ABSENT
        await asyncio.sleep(2)
        world.discovery.fails, world.discovery.found = None, make_hardware(1).build()
        await asyncio.sleep(3)
        assert world.hardware.inventory == world.discovery.found


async def test_a_bug_in_discovery_is_a_failure_and_not_the_end() -> None:
    with World().running() as world:
        world.discovery.fails = KeyError("uuid")
        await asyncio.sleep(1)
        assert world.hardware.problem == "KeyError: this is a bug, please report it"
        world.discovery.fails = None
        await asyncio.sleep(3)
        assert world.hardware.problem == ""
