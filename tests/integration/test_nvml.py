"""The NVML path for real: the worker process, pynvml, and a library in C that says what a YAML inventory says."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.fakenvml import FakeDriver, build
from tests.support.frozen import freeze

from gpusharing.core.devices import Link
from gpusharing.core.health import GpuEvent, Health, HealthChecks, Probe
from gpusharing.discovery.base import DiscoveryError
from gpusharing.discovery.worker import NvmlDiscovery, NvmlWorker

T = TypeVar("T")
FOLDER = Path(__file__).parents[1] / "vectors" / "inventories"
FILES = sorted(FOLDER.glob("*.yaml"))
PAIRS = (FOLDER / "a100-pcie-4-bridged-pairs.yaml").read_text()
SWITCHED = (FOLDER / "dgx-a100-8.yaml").read_text()
SEVEN = ", ".join(f"{{profile: 1g.10gb, start: {n}}}" for n in range(7))
CHECKS = HealthChecks()


def mig(model: str, memory: int, *devices: str) -> str:
    entries = ", ".join("{{profile: {}, start: {}}}".format(*device.split("@")) for device in devices)
    return f"gpus: [{{index: 0, model: {model}, memoryMiB: {memory}, migDevices: [{entries}]}}]"


ONE_WITH_SEVEN = f"""
gpus:
- {{index: 0, model: NVIDIA A100-SXM4-80GB, memoryMiB: 81920, migDevices: [{SEVEN}]}}
- {{index: 1, model: NVIDIA A100-SXM4-80GB, memoryMiB: 81920}}
"""


async def soon(ask: Callable[[], Awaitable[T]], check: Callable[[T], bool] = lambda _: True) -> T:
    """What `ask` returns once it raises no DiscoveryError and passes the check; a guard against hanging only."""
    async with asyncio.timeout(60):
        while True:
            try:
                got = await ask()
            except DiscoveryError:
                pass
            else:
                if check(got):
                    return got
            await asyncio.sleep(0.05)


@asynccontextmanager
async def nvml(fake: FakeDriver, **settings: Any) -> AsyncIterator[NvmlDiscovery]:
    discovery = NvmlDiscovery(str(fake.root), sysfs=str(fake.sysfs), **{"deadline": 60.0, **settings})
    try:
        yield discovery
    finally:
        await discovery.close()


async def refused(ask: Callable[[], Awaitable[object]]) -> DiscoveryError:
    with pytest.raises(DiscoveryError) as error:
        await ask()
    return error.value


def reasons(probes: Mapping[str, Probe]) -> list[str]:
    return [probe.reason for probe in probes.values()]


class TestWhatIsSeen:
    @pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
    async def test_nvml_shows_what_the_simulation_shows(self, path: Path, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, path.read_text())
        async with nvml(fake) as discovery:
            assert await discovery.inventory() == fake.inventory
            assert await discovery.probe() == {gpu.uuid: Probe() for gpu in fake.inventory.gpus}

    @pytest.mark.parametrize(
        "text",
        [
            mig("NVIDIA A100-SXM4-80GB", 81920, "3g.40gb@4", "1g.10gb+me@3", "2g.20gb@0"),
            mig("NVIDIA A100-SXM4-80GB", 81920, "1c.3g.40gb@0", "2c.3g.40gb@0", "1c.3g.40gb@4"),
            mig("NVIDIA H200", 143771, "4g.71gb@0", "1g.35gb@4", "1g.18gb@6"),
            mig("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "1g.24gb+me.all@0", "1g.24gb-me@3"),
            mig("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "2g.48gb+gfx@6", "1g.24gb@0"),
            ONE_WITH_SEVEN,
            "gpus: [{index: 0, model: NVIDIA A100-SXM4-80GB, migMode: true}]",
            "gpus: []",
        ],
    )
    async def test_mig_devices_too(self, text: str, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, text)
        async with nvml(fake) as discovery:
            assert await discovery.inventory() == fake.inventory

    async def test_slots_of_mig_devices_may_have_gaps(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, ONE_WITH_SEVEN)
        fake.tell(gpu__0__mig__3__uuid="")
        async with nvml(fake) as discovery:
            got = (await discovery.inventory()).gpus[0].mig_devices
            assert [device.index for device in got] == [0, 1, 2, 4, 5, 6]

    async def test_where_the_driver_names_a_profile_otherwise_nvidias_formula_counts_and_it_is_told_once(
        self, tmp_path: Path
    ) -> None:
        fake = FakeDriver(tmp_path, mig("NVIDIA A100-SXM4-80GB", 81920, "1g.10gb@0"))
        fake.tell(gpu__0__mig__0__name="NVIDIA A100-SXM4-80GB MIG 1g.11gb+me")
        told: list[str] = []
        async with nvml(fake, on_problem=told.append) as discovery:
            for _ in range(2):
                assert (await discovery.inventory()).gpus[0].mig_devices[0].profile == "1g.10gb+me"
        assert [re.sub("^MIG-[^ ]*", "it", problem) for problem in told] == [
            "it is served as 1g.10gb, but the driver calls it 1g.11gb+me"
        ]

    async def test_without_the_boards_memory_the_drivers_name_counts(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, mig("NVIDIA A100-SXM4-80GB", 81920, "1g.10gb+me@0"))
        fake.tell(fault__nvmlDeviceGetMemoryInfo="3")
        async with nvml(fake) as discovery:
            gpu = (await discovery.inventory()).gpus[0]
            assert (gpu.memory_mib, gpu.mig_devices[0].profile) == (0, "1g.10gb+me")
            assert reasons(await discovery.probe()) == [""]  # it answered

    @pytest.mark.parametrize("text", [PAIRS, SWITCHED], ids=["direct", "switched"])
    async def test_an_old_driver_shows_what_it_can(self, text: str, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, text, old=True)
        async with nvml(fake) as discovery:
            assert await discovery.inventory() == fake.inventory
            assert set(reasons(await discovery.probe())) == {""}

    async def test_an_old_driver_has_no_mig(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, ONE_WITH_SEVEN, old=True)
        async with nvml(fake) as discovery:
            assert not any(gpu.mig_mode or gpu.mig_devices for gpu in (await discovery.inventory()).gpus)

    async def test_of_links_that_differ_by_direction_the_lower_count_counts(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        one, other = fake.inventory.gpus[:2]
        count = fake.inventory.links[one.uuid, other.uuid].nvlinks
        fake.tell(gpu__0__link__0="")
        async with nvml(fake) as discovery:
            got = await discovery.inventory()
            assert got.links[one.uuid, other.uuid].nvlinks == count - 1

    @pytest.mark.fault("F12")
    async def test_a_gpu_whose_links_cannot_be_read_stays_usable(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        fake.tell(fault__nvmlDeviceGetNvLinkState="999", fault__nvmlDeviceGetNvLinkState__gpu="1")
        bad = fake.inventory.gpus[1]
        async with nvml(fake) as discovery:
            got = await discovery.inventory()
            assert [gpu.uuid for gpu in got.gpus] == [gpu.uuid for gpu in fake.inventory.gpus]
            assert got.links == {pair: link for pair, link in fake.inventory.links.items() if bad.uuid not in pair}

    async def test_without_pcie_distances_no_pair_is_known(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        fake.tell(fault__nvmlDeviceGetTopologyCommonAncestor="999")
        async with nvml(fake) as discovery:
            assert (await discovery.inventory()).links == dict[tuple[str, str], Link]()

    async def test_what_the_library_prints_is_no_answer(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        fake.tell(chatty="1")
        async with nvml(fake) as discovery:
            assert await discovery.inventory() == fake.inventory


class TestProcesses:
    async def test_a_gpu_is_computed_on_by_processes_of_its_own_and_by_those_of_an_mps_server(
        self, tmp_path: Path
    ) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        gpus = [gpu.uuid for gpu in fake.inventory.gpus]
        async with nvml(fake) as discovery:
            assert await discovery.computing() == frozenset()
            fake.tell(gpu__1__processes="3", gpu__2__mps="1")
            assert await discovery.computing() == {gpus[1], gpus[2]}
            fake.tell(gpu__1__processes="", gpu__2__lost="1")
            assert await discovery.computing() == frozenset()

    async def test_a_gpu_that_does_not_tell_counts_as_idle_and_the_others_are_seen(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake) as discovery:
            fake.tell(gpu__1__processes="1", gpu__3__processes="1")
            calls = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3")
            for call in calls:
                fake.tell(**{f"fault__{call}": "3", f"fault__{call}__gpu": "1"})
            assert await discovery.computing() == {fake.inventory.gpus[3].uuid}

    async def test_an_old_driver_tells_of_none(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS, old=True)
        fake.tell(gpu__1__processes="1")
        async with nvml(fake) as discovery:
            assert await discovery.computing() == frozenset()

    @pytest.mark.fault("F11")
    async def test_a_driver_that_hangs_ends_the_question(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake, deadline=0.3) as discovery:
            await soon(discovery.inventory)
            fake.tell(fault__nvmlDeviceGetComputeRunningProcesses_v3="hang")
            assert (await refused(discovery.computing)).kind == "hung"


class TestNvmlAsAWhole:
    @pytest.mark.fault("F09")
    async def test_a_driver_that_is_not_loaded_yet_is_absent_and_then_there(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS + "faults: [{nvml: absent}]")
        async with nvml(fake) as discovery:
            for ask in (discovery.inventory, discovery.probe):
                error = await refused(ask)
                assert error.kind == "absent"
                assert str(error).startswith("NVML: Driver Not Loaded (NVML_ERROR_DRIVER_NOT_LOADED). hint: ")
            fake.show(PAIRS)
            assert await discovery.inventory() == fake.inventory

    @pytest.mark.fault("F09")
    async def test_a_library_that_is_not_there_yet_is_found_when_it_comes(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        fake.remove()
        async with nvml(fake) as discovery:
            assert (await refused(discovery.inventory)).kind == "absent"
            fake.install()
            assert await discovery.inventory() == fake.inventory

    async def test_a_library_of_another_machine_is_passed_over(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        other = fake.root / "usr" / "lib" / f"{os.uname().machine}-linux-gnu" / "libnvidia-ml.so.1"
        other.parent.mkdir(parents=True)
        other.write_bytes(b"\x7fELF of another machine")
        async with nvml(fake) as discovery:
            assert await discovery.inventory() == fake.inventory

    @pytest.mark.parametrize("code", ["UNKNOWN", "LIB_RM_VERSION_MISMATCH", "UNINITIALIZED"])
    async def test_an_error_of_every_call_is_told_by_its_name(self, code: str, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS + f"faults: [{{nvml: {code}}}]")
        async with nvml(fake) as discovery:
            error = await refused(discovery.inventory)
            assert error.kind == "failed"
            assert f"NVML_ERROR_{code}" in str(error)
            fake.show(PAIRS)
            assert await discovery.inventory() == fake.inventory

    @pytest.mark.fault("F10")
    async def test_after_a_reload_of_the_driver_the_same_gpus_are_well_again_within_thirty_seconds(
        self, tmp_path: Path
    ) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake) as discovery:
            before = await discovery.inventory()
            health = Health().after_event(GpuEvent(before.gpus[0].uuid, 48), before, CHECKS, 0.0)
            fake.tell(fault__any="999")
            with pytest.raises(DiscoveryError) as error:
                await discovery.probe()
            health = health.after_failure(str(error.value), before, CHECKS, 5.0)
            assert health.sick(before).keys() == {gpu.uuid for gpu in before.gpus}

            turned = reordered(fake)
            for now in (10.0, 20.0, 30.0):
                health = health.after_probe(await discovery.probe(), before, CHECKS, now)
            assert health.sick(before) == {}
            after = await discovery.inventory()
            assert [gpu.uuid for gpu in after.gpus] == turned
            assert set(turned) == {gpu.uuid for gpu in before.gpus}

    @pytest.mark.parametrize("call", ["nvmlDeviceGetCount_v2", "nvmlEventSetCreate", "nvmlShutdown"])
    async def test_a_beginning_that_fails_half_way_is_begun_anew(self, call: str, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS + "faults: [{gpu: 1, lost: true}]")
        async with nvml(fake, reopen_after=0.0) as discovery:
            await discovery.inventory()
            fake.show(PAIRS + f"faults: [{{nvml: UNKNOWN, call: {call}}}]")
            for _ in range(2):
                with suppress(DiscoveryError):
                    await discovery.probe()
            fake.show(PAIRS)
            assert await soon(discovery.inventory, lambda got: got == fake.inventory)
            fake.xid(1, 63)
            assert [event.xid for event in await events_of(discovery, 1)] == [63]

    async def test_when_no_gpu_answers_nvml_is_begun_anew(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake) as discovery:
            await discovery.inventory()
            fake.tell(fault__nvmlDeviceGetMemoryInfo="999")
            error = await refused(discovery.probe)
            assert (error.kind, str(error)) == ("failed", "NVML: no GPU answers: Unknown Error (NVML_ERROR_UNKNOWN)")
            fake.tell(fault__nvmlDeviceGetMemoryInfo="")
            assert set(reasons(await discovery.probe())) == {""}

    @pytest.mark.parametrize("after", [0, 1, 3, 8, 20])
    async def test_wherever_it_fails_the_next_call_is_right(self, after: int, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, ONE_WITH_SEVEN)
        async with nvml(fake, reopen_after=0.0) as discovery:
            for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetMinorNumber"):
                fake.show(ONE_WITH_SEVEN + f"faults: [{{nvml: UNKNOWN, call: {call}, after: {after}}}]")
                for ask in (discovery.inventory, discovery.probe, discovery.inventory):
                    with suppress(DiscoveryError):
                        await ask()
            fake.show(ONE_WITH_SEVEN)
            assert await soon(discovery.inventory, lambda got: got == fake.inventory)


def reordered(fake: FakeDriver) -> list[str]:
    """Let NVML enumerate the GPUs the other way round."""
    lines = PAIRS.splitlines()
    gpus = [f"{gpu.uuid}" for gpu in fake.inventory.gpus]
    for old, uuid in zip(("index: 0", "index: 1", "index: 2", "index: 3"), gpus, strict=True):
        lines = [line.replace(old, f"{old}, uuid: {uuid}") for line in lines]
    text = "\n".join(lines)
    for index, uuid in enumerate(reversed(gpus)):
        text = re.sub(rf"index: {index}, uuid: GPU-[-0-9a-f]+", f"index: {index}, uuid: {uuid}", text)
    fake.show(text)
    return gpus[::-1]


class Remembered(NvmlWorker):
    """A worker that the test can find."""

    def __init__(self, started: list["Remembered"], arguments: Sequence[str], on_event: Callable[[GpuEvent], None]):
        super().__init__(arguments, on_event)
        # in uninterruptible sleep: it does not die when it is killed
        self.stubborn = False
        started.append(self)

    def kill(self) -> None:
        if self.stubborn:
            self._end(TimeoutError())
        else:
            super().kill()


class TestHangs:
    @pytest.mark.fault("F11")
    @pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo", "nvmlEventSetWait_v2"])
    async def test_a_call_that_hangs_ends_with_its_process_and_nothing_waits_for_it(
        self, call: str, tmp_path: Path
    ) -> None:
        fake = FakeDriver(tmp_path, PAIRS + f"faults: [{{nvml: hang, call: {call}}}]")
        async with nvml(fake, deadline=1.0) as discovery:
            turns = 0

            async def until_hung() -> DiscoveryError:
                while True:
                    try:
                        await discovery.probe()
                    except DiscoveryError as error:
                        if error.kind == "hung":
                            return error
                    await asyncio.sleep(0.01)

            hung = asyncio.create_task(until_hung())
            while not hung.done():
                turns += 1
                await asyncio.sleep(0.01)
            assert str(hung.result()).startswith("the NVIDIA driver has not answered for 1 s. hint: ")
            assert turns > 10, "the loop stood still"
            fake.show(PAIRS)
            assert await soon(discovery.inventory) == fake.inventory
            async with asyncio.timeout(60):
                while discovery.left_behind:
                    await asyncio.sleep(0.01)

    @pytest.mark.fault("F11")
    async def test_slow_is_not_hung_as_long_as_it_gets_on(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, SWITCHED)
        fake.tell(delay__nvmlDeviceGetHandleByIndex_v2="250")  # 8 GPUs: twice the deadline
        async with nvml(fake, deadline=1.0) as discovery:
            assert await soon(discovery.inventory) == fake.inventory

    @pytest.mark.fault("F11")
    async def test_calls_that_wait_beside_the_one_that_hangs_end_with_it(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS + "faults: [{nvml: hang}]")
        async with nvml(fake, deadline=1.0) as discovery:
            got = await asyncio.gather(*(discovery.probe() for _ in range(5)), return_exceptions=True)
            assert {type(error) for error in got} == {DiscoveryError}
            assert {error.kind for error in got if isinstance(error, DiscoveryError)} == {"hung"}

    @pytest.mark.fault("F11")
    async def test_workers_that_do_not_die_are_left_behind_counted_and_only_so_many(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS + "faults: [{nvml: hang}]")
        started: list[Remembered] = []

        def stubborn(*arguments: Any) -> NvmlWorker:
            worker = Remembered(started, *arguments)
            worker.stubborn = True
            return worker

        try:
            async with nvml(fake, deadline=0.5, left_behind_max=2, worker=stubborn) as discovery:
                for _ in range(5):
                    error = await refused(discovery.probe)
                    assert error.kind == "hung"
                assert str(error) == "2 processes hang in the NVIDIA driver and cannot be ended. hint: reboot the node"
                assert len(started) == discovery.left_behind == 2
                for worker in started:
                    os.kill(worker.pid, signal.SIGKILL)
                async with asyncio.timeout(60):
                    while discovery.left_behind:
                        await asyncio.sleep(0.01)
                await refused(discovery.probe)
                assert len(started) == 3  # they have died, so there may be one more
        finally:
            for worker in started:
                NvmlWorker.kill(worker)
                async with asyncio.timeout(60):
                    while worker.alive:
                        await asyncio.sleep(0.01)

    async def test_a_worker_that_ends_is_replaced(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        started: list[Remembered] = []

        async with nvml(fake, worker=partial(Remembered, started)) as discovery:
            await discovery.inventory()
            freeze(started[0].pid)
            asking = asyncio.create_task(discovery.probe())
            await asyncio.sleep(0)
            os.kill(started[0].pid, signal.SIGKILL)
            error = await refused(lambda: asking)
            assert (error.kind, error.message) == ("failed", "the process that asks NVML has ended")
            assert await discovery.inventory() == fake.inventory
            assert len(started) == 2


class TestLostGpus:
    @pytest.mark.fault("F12")
    async def test_a_lost_gpu_alone_is_gone_and_stays_in_the_inventory(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, SWITCHED)
        async with nvml(fake, reopen_after=0.0) as discovery:
            before = await discovery.inventory()
            fake.show(SWITCHED + "faults: [{gpu: 3, lost: true}]")
            for _ in range(3):
                probes = await discovery.probe()
                lost = {uuid for uuid, probe in probes.items() if probe.gone}
                assert lost == {before.gpus[3].uuid}
                assert probes[before.gpus[3].uuid].reason == "GPU is lost (NVML_ERROR_GPU_IS_LOST)"
                assert len(probes) == 8
                assert await discovery.inventory() == before

    @pytest.mark.fault("F16")
    async def test_one_that_comes_back_is_found_again_and_heals(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake, reopen_after=0.0) as discovery:
            before = await discovery.inventory()
            uuid = before.gpus[2].uuid
            health = Health().after_event(GpuEvent(uuid, 79), before, CHECKS, 0.0)
            fake.show(PAIRS + "faults: [{gpu: 2, lost: true}]")
            health = health.after_probe(await discovery.probe(), before, CHECKS, 2.0)
            assert health.sick(before).keys() == {uuid}
            fake.show(PAIRS)
            for now in (10.0, 20.0, 30.0):
                health = health.after_probe(await discovery.probe(), before, CHECKS, now)
            assert health.sick(before) == {}
            assert await discovery.inventory() == before

    async def test_nvml_is_not_begun_anew_at_every_probe(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake, reopen_after=3600.0) as discovery:
            await discovery.inventory()
            fake.show(PAIRS + "faults: [{gpu: 2, lost: true}]")
            await discovery.probe()
            fake.show(PAIRS)
            probes = await discovery.probe()
            assert sum(probe.gone for probe in probes.values()) == 1

    @pytest.mark.fault("F12")
    async def test_one_that_was_lost_before_anybody_saw_it_is_left_out_and_told(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS + "faults: [{gpu: 0, lost: true}]")
        told: list[str] = []
        async with nvml(fake, on_problem=told.append) as discovery:
            got = await discovery.inventory()
            assert [gpu.index for gpu in got.gpus] == [1, 2, 3]
            assert told == ["GPU 0 cannot be read and is left out: GPU is lost (NVML_ERROR_GPU_IS_LOST)"]
            assert set(reasons(await discovery.probe())) == {""}

    @pytest.mark.fault("F17")
    async def test_a_swapped_gpu_is_another_one(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, ONE_WITH_SEVEN)
        async with nvml(fake, reopen_after=0.0) as discovery:
            before = await discovery.inventory()
            new = "GPU-00000000-0000-0000-0000-000000000001"
            fake.show(ONE_WITH_SEVEN.replace("index: 1,", f"index: 1, uuid: {new},"))
            assert (await discovery.probe())[before.gpus[1].uuid].gone
            after = await discovery.inventory()
            assert [gpu.uuid for gpu in after.gpus] == [before.gpus[0].uuid, new]
            assert await discovery.probe() == {gpu.uuid: Probe() for gpu in after.gpus}

    async def test_mig_devices_may_come_and_go(self, tmp_path: Path) -> None:
        text = "gpus: [{index: 0, model: NVIDIA A100-SXM4-80GB, memoryMiB: 81920, migMode: true%s}]"
        fake = FakeDriver(tmp_path, text % "")
        async with nvml(fake) as discovery:
            assert await discovery.inventory() == fake.inventory
            fake.show(text % ", migDevices: [{profile: 3g.40gb, start: 0}]")
            assert await discovery.inventory() == fake.inventory
            assert fake.inventory.gpus[0].mig_devices


async def events_of(discovery: NvmlDiscovery, count: int) -> list[GpuEvent]:
    got: list[GpuEvent] = []
    async with asyncio.timeout(60), aclosing(discovery.events()) as events:  # type: ignore[type-var]
        while len(got) < count:
            got.append(await anext(events))
    return got


class TestXids:
    @pytest.mark.fault("F15")
    async def test_they_name_the_gpu_and_its_instances(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, ONE_WITH_SEVEN)
        async with nvml(fake) as discovery:
            inventory = await discovery.inventory()
            parent, other = inventory.gpus
            fake.xid(1, 79)
            for device in parent.mig_devices:
                fake.xid(0, 63, device.gi, device.ci)
            fake.xid(0, 48)
            want = [
                GpuEvent(other.uuid, 79),
                *(GpuEvent(parent.uuid, 63, device.gi, device.ci) for device in parent.mig_devices),
                GpuEvent(parent.uuid, 48),
            ]
            got = await events_of(discovery, len(want))
            assert got == want
            sick = [set(Health().after_event(event, inventory, CHECKS, 0.0).sick(inventory)) for event in got]
            everything = {parent.uuid, *(device.uuid for device in parent.mig_devices)}
            assert sick == [{other.uuid}, *({device.uuid} for device in parent.mig_devices), everything]

    @pytest.mark.fault("F12")
    async def test_one_of_a_gpu_that_is_lost_by_then_still_names_it(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake) as discovery:
            await discovery.inventory()
            fake.xid(2, 79)
            fake.tell(gpu__2__lost="1")
            assert await events_of(discovery, 1) == [GpuEvent(fake.inventory.gpus[2].uuid, 79)]

    async def test_one_that_nvml_cannot_place_names_no_gpu(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake) as discovery:
            await discovery.inventory()
            fake.xid(-1, 63)
            assert await events_of(discovery, 1) == [GpuEvent("", 63)]

    @pytest.mark.fault("F13")
    async def test_a_storm_is_one_event_now_and_then(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        loop = asyncio.get_running_loop()
        async with nvml(fake) as discovery:
            await discovery.inventory()
            fake.tell(storm="1 63")
            began = loop.time()
            got = await events_of(discovery, 4)
            assert set(got) == {GpuEvent(fake.inventory.gpus[1].uuid, 63)}
            assert len(got) <= 5 * (loop.time() - began) + 1
            assert await discovery.inventory() == fake.inventory  # calls get through

    async def test_what_happened_before_anybody_looked_is_no_event(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        fake.xid(0, 48)
        async with nvml(fake) as discovery:
            await discovery.inventory()
            fake.xid(0, 63)
            assert [event.xid for event in await events_of(discovery, 1)] == [63]

    async def test_a_gpu_whose_events_cannot_be_had_is_sick_until_they_can(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        fake.tell(fault__nvmlDeviceRegisterEvents="999", fault__nvmlDeviceRegisterEvents__gpu="1")
        async with nvml(fake) as discovery:
            assert reasons(await discovery.probe()) == [
                "",
                "XID events cannot be had: Unknown Error (NVML_ERROR_UNKNOWN)",
                "",
                "",
            ]
            fake.show(PAIRS)
            assert set(reasons(await discovery.probe())) == {""}
            fake.xid(1, 63)
            assert await events_of(discovery, 1) == [GpuEvent(fake.inventory.gpus[1].uuid, 63)]

    async def test_a_gpu_without_events_is_fine(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        fake.tell(fault__nvmlDeviceRegisterEvents="3")
        async with nvml(fake) as discovery:
            assert set(reasons(await discovery.probe())) == {""}

    async def test_after_the_wait_for_them_failed_they_come_again(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake, reopen_after=0.0) as discovery:
            await discovery.inventory()
            fake.tell(fault__nvmlEventSetWait_v2="999")
            await discovery.probe()
            fake.show(PAIRS)
            await discovery.probe()
            fake.xid(0, 63)
            assert [event.xid for event in await events_of(discovery, 1)] == [63]

    async def test_they_end_when_discovery_is_closed(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake) as discovery:
            await discovery.inventory()
            reader = asyncio.create_task(events_of(discovery, 1))
            await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await reader


class TestTheProcess:
    @pytest.mark.fault("X11")
    def test_it_gets_nothing_of_our_environment_and_starts_no_thread_here(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        script = textwrap.dedent(f"""
            import asyncio, os
            from pathlib import Path
            from gpusharing.discovery.worker import NvmlDiscovery

            async def main():
                discovery = NvmlDiscovery({str(fake.root)!r}, sysfs={str(fake.sysfs)!r}, deadline=60)
                print(len((await discovery.inventory()).gpus))
                worker = Path("/proc") / str(discovery._worker.pid)
                print(worker.joinpath("environ").read_bytes())
                print("preloaded.so" in worker.joinpath("maps").read_text())
                print(worker.joinpath("cmdline").read_bytes().split(b"\\0")[1:4])
                print(os.readlink(worker / "cwd"))
                print(len(os.listdir("/proc/self/task")))
                await discovery.close()

            asyncio.run(main())
        """)
        preloaded = tmp_path / "preloaded.so"
        preloaded.write_bytes(build().read_bytes())
        planted = tmp_path / "pynvml.py"
        planted.write_text("raise SystemExit('planted')")
        environment = {
            **os.environ,
            "LD_PRELOAD": str(preloaded),
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.pathsep.join(sys.path)}",
            "PYTHONSTARTUP": str(planted),
            "HTTPS_PROXY": "http://127.0.0.1:9",
        }
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
        assert run.stdout.splitlines() == [
            "4",
            "b''",
            "False",
            "[b'-I', b'-m', b'gpusharing.discovery.nvmlprocess']",
            "/",
            "1",
        ]
        assert run.stderr == ""

    async def test_it_weighs_little(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, SWITCHED)
        started: list[Remembered] = []

        for _ in range(2):  # the first one may have to compile what it imports
            async with nvml(fake, worker=partial(Remembered, started)) as discovery:
                await discovery.inventory()
                await discovery.probe()
                status = Path(f"/proc/{started[-1].pid}/status").read_text()
        kib = int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0])
        assert kib <= 12 * 1024

    async def test_it_ends_with_us(self, tmp_path: Path) -> None:
        fake = FakeDriver(tmp_path, PAIRS)
        async with nvml(fake) as discovery:
            await discovery.inventory()
        assert discovery.left_behind == 0
