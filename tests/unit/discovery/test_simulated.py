"""The simulated hardware over time: its file changes under it. On simulated time."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusharing.core.health import GpuEvent, Probe
from gpusharing.core.host import HostFacts, device_nodes
from gpusharing.discovery.base import DeviceDiscovery, DiscoveryError
from gpusharing.discovery.simulated import SimulatedDiscovery, simulated_mig_minors

pytestmark = pytest.mark.looptime
GPUS = "gpus:\n- {index: 0, model: NVIDIA A100-SXM4-80GB, memoryMiB: 81920}\n- {index: 1, model: NVIDIA L4}\n"
MIG = """
gpus:
- index: 0
  model: NVIDIA A100-SXM4-80GB
  memoryMiB: 81920
  migDevices: [{profile: 3g.40gb, start: 0}, {profile: 1c.3g.40gb, start: 4}, {profile: 2c.3g.40gb, start: 4}]
"""
Write = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inventory.yaml"


@pytest.fixture
def write(path: Path) -> Write:
    def write(*faults: str, gpus: str = GPUS) -> None:
        new = path.with_suffix(".new")
        new.write_text(gpus + "faults:\n" + "".join(f"- {fault}\n" for fault in faults) if faults else gpus)
        new.replace(path)  # a new inode each time, as editors and ConfigMaps do

    write()
    return write


@pytest.fixture
def simulated(path: Path, write: Write) -> SimulatedDiscovery:
    return SimulatedDiscovery(path, "a")


async def refused(discovery: DeviceDiscovery) -> DiscoveryError:
    with pytest.raises(DiscoveryError) as first:
        await discovery.inventory()
    with pytest.raises(DiscoveryError) as second:
        await discovery.probe()
    assert str(first.value) == str(second.value)
    return first.value


class TestTheFile:
    async def test_a_folder_has_a_file_per_node_and_one_for_the_rest(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text(GPUS)
        (tmp_path / "default.yaml").write_text("gpus: []")
        assert len((await SimulatedDiscovery(tmp_path, "a").inventory()).gpus) == 2
        assert len((await SimulatedDiscovery(tmp_path, "b").inventory()).gpus) == 0

    async def test_one_that_is_missing_may_come_later(self, tmp_path: Path) -> None:
        discovery = SimulatedDiscovery(tmp_path, "a")
        error = await refused(discovery)
        assert (error.kind, str(error)) == (
            "absent",
            f"there is no inventory {tmp_path}/default.yaml. hint: see --inventory",
        )
        (tmp_path / "default.yaml").write_text(GPUS)
        assert len((await discovery.inventory()).gpus) == 2

    @pytest.mark.parametrize("content", [b"gpus: 3", b"\xff", b"gpus: ["])
    async def test_one_that_is_not_usable_is_an_error_that_says_so(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        error = await refused(SimulatedDiscovery(path, "a"))
        assert error.kind == "failed"
        assert str(path) in str(error)

    async def test_a_folder_in_its_place_is_an_error_too(self, tmp_path: Path) -> None:
        (tmp_path / "default.yaml").mkdir()
        assert (await refused(SimulatedDiscovery(tmp_path, "a"))).kind == "failed"

    async def test_one_that_goes_bad_is_told_once_and_what_it_said_before_stays(self, path: Path, write: Write) -> None:
        told: list[str] = []
        discovery = SimulatedDiscovery(path, "a", on_problem=told.append)
        before = await discovery.inventory()
        write(gpus="gpus: 3")
        assert [await discovery.inventory() for _ in range(3)] == [before] * 3
        assert len(told) == 1
        path.unlink()
        assert await discovery.inventory() == before
        assert len(told) == 2
        write(gpus="gpus: []")
        assert (await discovery.inventory()).gpus == ()
        assert len(told) == 2
        path.unlink()
        await discovery.inventory()
        assert len(told) == 3

    @pytest.mark.fault("F17")
    async def test_nothing_computes_on_gpus_that_are_not_there(
        self, simulated: SimulatedDiscovery, write: Write
    ) -> None:
        assert await simulated.computing() == frozenset()
        write("{nvml: absent}")
        with pytest.raises(DiscoveryError):
            await simulated.computing()

    async def test_gpus_may_change(self, simulated: SimulatedDiscovery, write: Write) -> None:
        before = await simulated.inventory()
        write(gpus=GPUS.replace("L4}", "L4, uuid: GPU-00000000-0000-0000-0000-000000000001}"))
        after = await simulated.inventory()
        assert before.gpus[0] == after.gpus[0]
        assert after.gpus[1].uuid == "GPU-00000000-0000-0000-0000-000000000001"


class TestFaults:
    @pytest.mark.fault("F12")
    @pytest.mark.parametrize("by", ["index", "uuid"])
    async def test_a_lost_gpu_stays_in_the_inventory_and_takes_nobody_with_it(
        self, simulated: SimulatedDiscovery, write: Write, by: str
    ) -> None:
        before = await simulated.inventory()
        one, two = (gpu.uuid for gpu in before.gpus)
        write(f"{{gpu: {1 if by == 'index' else two}, lost: true}}")
        assert await simulated.probe() == {one: Probe(), two: Probe("the GPU is lost (simulated)", gone=True)}
        assert await simulated.inventory() == before
        write()
        assert await simulated.probe() == {one: Probe(), two: Probe()}

    async def test_one_share_may_be_sick(self, simulated: SimulatedDiscovery, write: Write) -> None:
        share = f"{(await simulated.inventory()).gpus[0].uuid}::3"
        write(f"{{id: '{share}', sick: true}}")
        probes = await simulated.probe()
        assert [id_ for id_, probe in probes.items() if probe.reason] == [share]

    @pytest.mark.parametrize(
        ("fault", "kind", "seconds"),
        [("absent", "absent", 0), ("hang", "hung", 5), ("UNKNOWN", "failed", 0), ("NVML_ERROR_UNKNOWN", "failed", 0)],
    )
    @pytest.mark.fault("F09")
    @pytest.mark.fault("F11")
    async def test_nvml_may_fail_and_come_back(
        self, simulated: SimulatedDiscovery, write: Write, fault: str, kind: str, seconds: float
    ) -> None:
        write(f"{{nvml: {fault}}}")
        began = asyncio.get_running_loop().time()
        error = await refused(simulated)
        assert error.kind == kind
        assert asyncio.get_running_loop().time() - began == 2 * seconds
        write()
        await simulated.inventory()

    async def test_nvml_may_fail_after_some_calls(self, simulated: SimulatedDiscovery, write: Write) -> None:
        write("{nvml: UNKNOWN, call: nvmlDeviceGetMemoryInfo, after: 2}")
        await simulated.inventory()
        await simulated.probe()
        await refused(simulated)

    async def test_an_xid_is_one_event_when_it_appears(self, simulated: SimulatedDiscovery, write: Write) -> None:
        gpu = (await simulated.inventory()).gpus[0].uuid
        got: list[GpuEvent] = []

        async def collect(take: Callable[[GpuEvent], None] = got.append) -> None:
            async for event in simulated.events():
                take(event)

        write("{gpu: 0, xid: 48}")
        reader = asyncio.create_task(collect())
        await asyncio.sleep(3)
        assert got == [GpuEvent(gpu, 48)]
        write("{gpu: 0, xid: 48}", "{gpu: 0, xid: 63, gi: 2, ci: 0}")
        await asyncio.sleep(0.6)
        assert got[1:] == [GpuEvent(gpu, 63, 2, 0)]
        write()
        await asyncio.sleep(0.6)
        write("{gpu: 0, xid: 48}")
        await asyncio.sleep(0.6)
        assert got[2:] == [GpuEvent(gpu, 48)]
        reader.cancel()

    async def test_events_wait_for_a_file_that_is_not_there_yet(self, path: Path) -> None:
        discovery = SimulatedDiscovery(path, "a")
        first = asyncio.ensure_future(anext(discovery.events()))
        await asyncio.sleep(2)
        path.write_text(f"{GPUS}faults: [{{gpu: 1, xid: 79}}]")
        assert (await first).xid == 79
        await discovery.close()


async def test_every_simulated_mig_device_has_its_capability_nodes(path: Path, write: Write) -> None:
    write(gpus=MIG)
    inventory = await SimulatedDiscovery(path, "a").inventory()
    minors = simulated_mig_minors(inventory)
    assert len(set(minors.values())) == len(minors) == 5  # two GPU instances, three compute instances
    gpu = inventory.gpus[0]
    for device in gpu.mig_devices:
        assert len(device_nodes(gpu, device, HostFacts(mig_minors=minors))) == 3
