"""Two processes that serve one resource: a rollout that overlaps, a pod that is stuck, a stranger."""

import asyncio
from pathlib import Path

import pytest
from tests.support.kubeletdouble import AdmissionFailed, KubeletDouble, Pod
from tests.support.kubeletplugin import Plugin, serving
from tests.support.kubeletview import GPU, StubView

from gpusharing.core.resources import Device
from gpusharing.deviceplugin.pod_resources import PodResources


@pytest.mark.fault("F07")
@pytest.mark.obligation("P9")
async def test_of_two_plugins_the_newer_is_served_again_after_the_older_has_ended(
    kubelet: KubeletDouble, folder: Path
) -> None:
    async with Plugin(folder, StubView()) as older:
        await serving(kubelet, 8)
        async with Plugin(folder, StubView(5)) as newer:
            await kubelet.until(lambda: kubelet.streams(GPU) == 2, "both have a stream")
            await older.server.stop()
            await serving(kubelet, 5)
            assert newer.server.status.stream_open
            await kubelet.admit(Pod("a", limits={GPU: 1}))
            # before 1.37 the kubelet takes the newer one's stream away, and it registers again
            assert len(kubelet.registers) == (3 if kubelet.rule == "1.34" else 2)


@pytest.mark.fault("F07")
async def test_the_survivor_of_two_answers_for_ids_it_never_listed_with_an_error_and_its_own_list(
    kubelet: KubeletDouble, folder: Path
) -> None:
    async with Plugin(folder, StubView(2)):
        await serving(kubelet, 2)
        async with Plugin(folder, StubView(8)):
            await kubelet.until(lambda: kubelet.count()[GPU] == (8, 8), "the newer one's list")
        if kubelet.rule == "1.34":
            await kubelet.until(lambda: kubelet.count()[GPU] == (8, 0), "the end of the newer one is seen")
            return
        await kubelet.until(lambda: kubelet.streams(GPU) == 1, "the newer one has ended")
        assert kubelet.count()[GPU] == (8, 8)
        with pytest.raises(AdmissionFailed, match=r"code = NotFound desc = nvidia.com/gpu has no device 'GPU-"):
            await kubelet.admit(Pod("a", limits={GPU: 7}))
        await serving(kubelet, 2)
        await kubelet.admit(Pod("b", limits={GPU: 2}))


@pytest.mark.fault("X10")
async def test_a_foreign_process_under_our_name_shows_in_what_is_allocatable_and_there_is_no_fight(
    kubelet: KubeletDouble, folder: Path
) -> None:
    foreign = StubView(1)
    foreign.show([Device("FOREIGN", "FOREIGN", "FOREIGN")])
    pods = PodResources(kubelet.pod_resources_socket)
    async with Plugin(folder, StubView()) as ours:
        await serving(kubelet, 8)
        assert await pods.allocatable() == {GPU: frozenset(f"GPU-{n}" for n in range(8))}
        async with Plugin(folder, foreign):
            await kubelet.until(lambda: kubelet.count()[GPU] == (1, 1), "the foreign list")
            assert await pods.allocatable() == {GPU: frozenset({"FOREIGN"})}
            await asyncio.sleep(0.2)
            assert ours.server.counts.registrations == 1
            assert ours.server.counts.lists == 1
    await pods.close()
