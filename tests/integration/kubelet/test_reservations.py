"""Reservations from the spec to the container, with a kubelet's sockets, restarts and sets (placement guide, 13.2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.hardware import gpu_uuid, make_hardware
from tests.support.kubeletdouble import AdmissionFailed, KubeletDouble, Pod
from tests.support.kubeletplugin import POLL, TENTH, eventually
from tests.support.pluginparts import GPU, HardwareDouble, HostDouble

from gpusharing.core.options import Options
from gpusharing.core.reservations import Reservation, Wanted
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.deviceplugin.kubelet import KubeletWatcher
from gpusharing.deviceplugin.ledger import LedgerKeeper
from gpusharing.deviceplugin.plugin import Plugin, PluginTimes
from gpusharing.deviceplugin.pod_resources import PodResources
from gpusharing.deviceplugin.processes import GpuProcesses
from gpusharing.deviceplugin.registration import ResourceServer
from gpusharing.deviceplugin.saving import State
from gpusharing.deviceplugin.servers import ServerTimes
from gpusharing.deviceplugin.sockets import PluginFolder
from gpusharing.deviceplugin.statefile import LEDGER
from gpusharing.deviceplugin.usage import PollTimes, Usage

G0, G1, G2, G3 = (gpu_uuid(n) for n in range(4))
JUDGE, POLICY = (f"place.gpusharing.io/{it}.rl-eval.team-a" for it in ("judge", "policy"))
P01 = (Reservation(JUDGE, JUDGE, (G0,)), Reservation(POLICY, POLICY, (G1, G2)))
QUICK = PluginTimes(
    settle=0.1,
    linger=0.6,
    confirm=0.1,
    look=0.05,
    save=0.0,
    servers=ServerTimes(farewell=0.1, margin=0.05),
)
POLLS = PollTimes(every=0.2, jitter=0.0, least=0.05, settle=0.1)


@asynccontextmanager
async def plugin(kubelet: KubeletDouble, state_dir: Path, restored: State = State()) -> AsyncIterator[Plugin]:  # noqa: B008
    """The plugin with its real edges towards the kubelet and the disk, at a fraction of the product's durations."""
    watcher = KubeletWatcher(PluginFolder(kubelet.folder), POLL)
    reader = PodResources(kubelet.pod_resources_socket)
    usage = Usage(reader, lambda: made.wake(), POLLS)
    processes = GpuProcesses(_idle, lambda: made.wake())
    made = Plugin(
        Options(),
        HardwareDouble(make_hardware(4).build()),
        HostDouble(),
        usage,
        processes,
        lambda view: ResourceServer(view, watcher, TENTH),
        reservations=LedgerKeeper(lambda ledger: LEDGER.save(state_dir, ledger), LEDGER.load(state_dir)[0]),
        restored=restored,
        times=QUICK,
    )
    tasks = [asyncio.ensure_future(each) for each in (watcher.run(), usage.run(), processes.run(), made.run())]
    try:
        yield made
    finally:
        await made.stop()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await reader.close()
        watcher.folder.close()


async def _idle() -> frozenset[str]:
    """No process computes on any GPU."""
    return frozenset()


async def counts(kubelet: KubeletDouble, want: dict[str, tuple[int, int]]) -> None:
    """Wait until the node shows these capacities and allocatables, those that are none left out."""
    await kubelet.until(lambda: {name: it for name, it in kubelet.count().items() if any(it)} == want, str(want))


def states(of: Plugin) -> dict[str, str]:
    return {row.resource: row.state for row in of.observed.reservations.rows}


async def active(of: Plugin) -> None:
    await eventually(lambda: set(states(of).values()) == {"Active"} and len(states(of)) == 2, "all Active")


SHARED_ALONE = {GPU: (4, 4)}
RESERVED = {GPU: (1, 1), JUDGE: (1, 1), POLICY: (2, 2)}


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.obligation("P2")
async def test_the_whole_life_of_a_reservation_over_restarts_of_kubelet_and_plugin(
    kubelet: KubeletDouble, state_dir: Path
) -> None:
    async with plugin(kubelet, state_dir) as first:
        first.desire(Desired("", None))
        first.reserve(Wanted(1, None))
        await counts(kubelet, SHARED_ALONE)
        first.reserve(Wanted(2, P01))
        await counts(kubelet, RESERVED)
        await active(first)
        pod = Pod("policy-0", limits={POLICY: 2}, namespace="team-a")
        held = await kubelet.admit(pod)
        assert held.ids["main", POLICY] == {G1, G2}
        [answer] = held.answers["main", POLICY].container_responses
        assert set(answer.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == {G1, G2}
        with pytest.raises(AdmissionFailed):
            await kubelet.admit(Pod("greedy", limits={GPU: 2}))

        # E06: every endpoint registers again, and the running pod keeps its ids
        await kubelet.restart()
        await counts(kubelet, RESERVED)
        await kubelet.readmit()
        assert kubelet.failed == {}
        await active(first)
        listing = first.observed.listing

    # E05: without the API server
    async with plugin(kubelet, state_dir, State(listing=listing)) as second:
        second.desire(Desired("", None))
        await counts(kubelet, RESERVED)
        await active(second)
        assert kubelet.manager.healthy[GPU] == {G3}

        # E11: released by drain
        second.reserve(Wanted(3, ()))
        await counts(kubelet, {GPU: (2, 2), POLICY: (2, 0)})
        assert states(second) == {POLICY: "Releasing"}
        await kubelet.delete(pod)
        await counts(kubelet, SHARED_ALONE)
        await eventually(lambda: not states(second), "nothing is left")
        assert kubelet.streams(POLICY) == 0


async def test_a_lost_ledger_lists_what_pods_hold_by_name_and_nothing_else_until_the_api_answers(
    kubelet: KubeletDouble, state_dir: Path
) -> None:
    async with plugin(kubelet, state_dir) as first:
        first.desire(Desired("", None))
        first.reserve(Wanted(2, P01))
        await counts(kubelet, RESERVED)
        await kubelet.admit(Pod("policy-0", limits={POLICY: 2}))
        await active(first)
    (state_dir / LEDGER.name).unlink()
    async with plugin(kubelet, state_dir) as second:
        second.desire(Desired("", None))
        await kubelet.until(lambda: kubelet.manager.healthy.get(POLICY) == {G1, G2}, "what the pod holds is listed")
        assert not kubelet.manager.healthy.get(GPU)
        second.reserve(Wanted(2, P01))
        await active(second)
        await counts(kubelet, RESERVED)


@pytest.mark.fault("F51")
async def test_a_name_that_only_the_node_shows_gets_an_empty_list_so_that_no_pod_starts_without_a_gpu(
    kubelet: KubeletDouble, state_dir: Path
) -> None:
    async with plugin(kubelet, state_dir) as made:
        made.desire(Desired("", None))
        made.reserve(Wanted(1, ()))
        made.see_node({JUDGE: "1", GPU: "4"})
        await kubelet.until(lambda: kubelet.streams(JUDGE) and kubelet.lists[JUDGE], "an empty list")
        with pytest.raises(AdmissionFailed):
            await kubelet.admit(Pod("judge-0", limits={JUDGE: 1}))
        made.see_node({JUDGE: "0", GPU: "4"})
        await kubelet.until(lambda: not kubelet.streams(JUDGE), "its server has ended")
        await counts(kubelet, SHARED_ALONE)


async def test_32_names_register_at_once_and_again_after_a_restart(folder: Path, state_dir: Path) -> None:
    everything = tuple(
        Reservation(f"place.gpusharing.io/s{n}.p.team-a", "team-a/p", (gpu_uuid(n % 3),)) for n in range(32)
    )
    want = {GPU: (1, 1), **{each.resource: (1, 1) for each in everything}}
    async with KubeletDouble(folder) as kubelet, plugin(kubelet, state_dir) as made:
        made.desire(Desired("", None))
        made.reserve(Wanted(2, everything))
        await counts(kubelet, want)
        await kubelet.restart()
        await counts(kubelet, want)
