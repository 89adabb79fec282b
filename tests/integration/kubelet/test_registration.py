"""The plugin's kubelet side on the kubelet double: real gRPC, real sockets, durations of ours at a tenth."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.support.kubeletdouble import AdmissionFailed, KubeletCrashed, KubeletDouble, Pod
from tests.support.kubeletplugin import Plugin, eventually, own_sockets, serving
from tests.support.kubeletview import GPU, StubView, devices

from gpusharing.core.edits import Edits
from gpusharing.core.resources import Device
from gpusharing.deviceplugin.registration import RegistrationTimes


@pytest.mark.obligation("P1")
@pytest.mark.obligation("P3")
@pytest.mark.obligation("P11")
async def test_from_start_to_a_pod_to_a_stop_that_leaves_nothing_behind(kubelet: KubeletDouble, folder: Path) -> None:
    async with Plugin(folder, StubView()):
        await serving(kubelet, 8)
        held = await kubelet.admit(Pod("trainer", limits={GPU: 3}))
        assert held.ids["main", GPU] == {"GPU-0", "GPU-1", "GPU-2"}
        [response] = held.answers["main", GPU].container_responses
        assert dict(response.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1,GPU-2"}
    assert own_sockets(folder) == []
    await kubelet.until(lambda: kubelet.count()[GPU] == (8, 0), "the end of the stream is seen")
    assert len(kubelet.registers) == 1


@pytest.mark.obligation("P2")
@pytest.mark.obligation("P3")
@pytest.mark.fault("F01")
async def test_a_hundred_restarts_in_a_row_leave_one_stream_and_no_stray_socket(
    kubelet: KubeletDouble, folder: Path
) -> None:
    async with Plugin(folder, StubView()):
        await serving(kubelet, 8)
        descriptors = len(os.listdir("/proc/self/fd"))
        for number in range(100):
            await kubelet.restart(down=0.01 * (number % 3))
            await serving(kubelet, 8)
        assert len(own_sockets(folder)) == 1
        endpoints = [endpoint for _, endpoint in kubelet.registers]
        assert len(set(endpoints)) == len(endpoints)
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 3


@pytest.mark.obligation("P9")
@pytest.mark.fault("F01")
async def test_running_pods_keep_their_devices_over_a_restart_and_are_not_asked_about(
    kubelet: KubeletDouble, folder: Path
) -> None:
    async with Plugin(folder, StubView()) as plugin:
        await serving(kubelet, 8)
        pod = Pod("trainer", limits={GPU: 3})
        held = (await kubelet.admit(pod)).ids
        calls = plugin.view.answered
        await kubelet.restart(down=0.02)
        await serving(kubelet, 8)
        await kubelet.readmit()
        assert kubelet.failed == {}
        assert plugin.view.answered == calls
        assert kubelet.manager.pods[pod.uid, "main", GPU] == held["main", GPU]


@pytest.mark.obligation("P9")
@pytest.mark.fault("F01")
async def test_a_kubelet_process_that_is_killed_comes_back_to_a_full_list(folder: Path) -> None:
    async with Plugin(folder, StubView(4)) as plugin:
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.kubeletdouble", str(folder)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout
            async with asyncio.timeout(60):
                while b'"node": {"nvidia.com/gpu": [4, 4]}' not in await process.stdout.readline():
                    pass
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            await eventually(lambda: not plugin.server.status.stream_open, "the end of the stream is seen")
    assert own_sockets(folder) == []


@pytest.mark.obligation("P9")
@pytest.mark.fault("F02")
async def test_a_removed_socket_is_replaced_by_another_name(kubelet: KubeletDouble, folder: Path) -> None:
    async with Plugin(folder, StubView()):
        await serving(kubelet, 8)
        [name] = own_sockets(folder)
        (folder / name).unlink()
        await kubelet.until(lambda: len(kubelet.registers) == 2, "registered again")
        await serving(kubelet, 8)
        [other] = own_sockets(folder)
        assert other != name


@pytest.mark.obligation("P9")
@pytest.mark.fault("F05")
async def test_a_refused_resource_does_not_stop_the_others(kubelet: KubeletDouble, folder: Path) -> None:
    kubelet.behaviour.refuse_resources["nvidia.com/bad"] = "busy"
    async with Plugin(folder, StubView(), StubView(2, "nvidia.com/bad"), StubView(2, "Not.Valid/x")) as plugin:
        await serving(kubelet, 8)
        good, bad, invalid = plugin.servers
        await eventually(lambda: bad.counts.refusals > 3, "tried again and again")
        assert bad.status.problem == "nvidia.com/bad: the kubelet refused to register: busy"
        await eventually(lambda: "is invalid" in invalid.status.problem, "the invalid name is reported")
        kubelet.behaviour.refuse_resources.clear()
        await serving(kubelet, 2, "nvidia.com/bad")
        assert invalid.counts.registrations == good.counts.registrations == 1


@pytest.mark.obligation("P9")
@pytest.mark.fault("F06")
async def test_a_kubelet_that_opens_no_stream_is_registered_with_anew(kubelet: KubeletDouble, folder: Path) -> None:
    kubelet.behaviour.streams = 0
    async with Plugin(folder, StubView()) as plugin:
        await kubelet.until(lambda: len(kubelet.registers) == 2, "registered again")
        assert "opened no stream" in plugin.server.status.problem
        kubelet.behaviour.streams = 1
        await serving(kubelet, 8)
        assert len(own_sockets(folder)) == 1


@pytest.mark.obligation("P9")
@pytest.mark.fault("F06")
async def test_two_streams_and_one_that_opens_before_register_answers_are_served(
    kubelet: KubeletDouble, folder: Path
) -> None:
    kubelet.behaviour.streams = 2
    kubelet.behaviour.stream_before_answer = 0.1
    async with Plugin(folder, StubView()) as plugin:
        await kubelet.until(lambda: kubelet.streams(GPU) == 2 and kubelet.lists[GPU] == 2, "two streams with a list")
        plugin.show(5)
        await kubelet.until(lambda: kubelet.lists[GPU] == 4, "both have the change")
        assert kubelet.count()[GPU] == (5, 5)
        assert len(kubelet.registers) == 1


@pytest.mark.obligation("P9")
async def test_a_kubelet_that_stops_reading_does_not_hold_up_a_stop(kubelet: KubeletDouble, folder: Path) -> None:
    kubelet.behaviour.stall_after = 1
    async with Plugin(folder, StubView(5_000)) as plugin:
        await kubelet.until(lambda: kubelet.lists.get(GPU) == 1, "the first list")
        for count in range(5_001, 5_006):
            plugin.show(count)
            await asyncio.sleep(0.03)
        async with asyncio.timeout(20):
            await plugin.server.stop()
    assert own_sockets(folder) == []


@pytest.mark.obligation("P7")
@pytest.mark.parametrize("kubelet", ["1.34"], indirect=True)
async def test_sixty_thousand_devices_are_served_and_chosen_from(kubelet: KubeletDouble, folder: Path) -> None:
    async with Plugin(folder, StubView(60_000), times=RegistrationTimes()):
        await serving(kubelet, 60_000)
        held = await kubelet.admit(Pod("one", limits={GPU: 1}))
        assert len(held.ids["main", GPU]) == 1


@pytest.mark.obligation("P7")
async def test_a_list_that_the_kubelet_refuses_is_not_sent_over_and_over(kubelet: KubeletDouble, folder: Path) -> None:
    view = StubView(1)
    long = "x" * 1000  # no list of ours has such ids: the core refuses it before
    view.show([Device(f"{long}{n}", long, long) for n in range(4300)])
    async with Plugin(folder, view) as plugin:
        await eventually(lambda: plugin.server.counts.registrations == 3, "tried three times")
        assert "ended the stream" in plugin.server.status.problem
        assert kubelet.count()[GPU] == (0, 0)
        plugin.show(8)
        await serving(kubelet, 8)


@pytest.mark.obligation("P4")
@pytest.mark.obligation("P14")
@pytest.mark.fault("F24")
async def test_no_preference_admits_the_pod_and_a_refused_allocate_says_why_in_its_status(
    kubelet: KubeletDouble, folder: Path
) -> None:
    async def fail(*_: object) -> list[str]:
        raise RuntimeError("boom")

    async def refuse(ids: object) -> Edits:
        await asyncio.sleep(3600)
        return Edits()

    async with Plugin(folder, StubView()) as plugin:
        await serving(kubelet, 8)
        plugin.view.on_prefer = fail
        assert len((await kubelet.admit(Pod("a", limits={GPU: 2}))).ids["main", GPU]) == 2
        plugin.view.on_allocate = refuse
        with pytest.raises(AdmissionFailed, match=r"code = DeadlineExceeded desc = nvidia.com/gpu: no answer for GPU-"):
            await kubelet.admit(Pod("b", limits={GPU: 1}))
        plugin.view.on_allocate = None
        await kubelet.admit(Pod("c", limits={GPU: 6}))


@pytest.mark.obligation("P6")
async def test_a_device_that_breaks_is_sent_as_unhealthy_and_heals(kubelet: KubeletDouble, folder: Path) -> None:
    async with Plugin(folder, StubView()) as plugin:
        await serving(kubelet, 8)
        plugin.show(8, sick=("GPU-1", "GPU-2"))
        await kubelet.until(lambda: kubelet.count()[GPU] == (8, 6), "two are unhealthy")
        plugin.show(8)
        await serving(kubelet, 8)


@pytest.mark.obligation("P13")
async def test_an_id_that_vanishes_under_an_open_allocate_crashes_the_kubelet_and_an_unhealthy_one_does_not(
    kubelet: KubeletDouble, folder: Path
) -> None:
    async with Plugin(folder, StubView()) as plugin:
        await serving(kubelet, 8)

        async def sick_meanwhile(ids: object) -> Edits:
            plugin.show(8, sick=tuple(f"GPU-{n}" for n in range(8)))
            await kubelet.until(lambda: kubelet.count()[GPU] == (8, 0), "the list has arrived")
            return Edits()

        async def gone_meanwhile(ids: object) -> Edits:
            plugin.show(0)
            await kubelet.until(lambda: kubelet.count()[GPU] == (0, 0), "the list has arrived")
            return Edits()

        plugin.view.on_allocate = sick_meanwhile
        await kubelet.admit(Pod("a", limits={GPU: 1}))
        plugin.show(8)
        await serving(kubelet, 8)
        plugin.view.on_allocate = gone_meanwhile
        with pytest.raises(KubeletCrashed):
            await kubelet.admit(Pod("b", limits={GPU: 1}))


@pytest.mark.obligation("P11")
async def test_a_stop_lets_an_open_allocate_end_and_sends_no_further_list(kubelet: KubeletDouble, folder: Path) -> None:
    async def slow(ids: object) -> Edits:
        await asyncio.sleep(0.1)
        return Edits(envs={"answered": "yes"})

    async with Plugin(folder, StubView()) as plugin:
        await serving(kubelet, 8)
        plugin.view.on_allocate = slow
        admitting = asyncio.create_task(kubelet.admit(Pod("a", limits={GPU: 1})))
        await eventually(lambda: plugin.view.open and plugin.view.answered, "Allocate is open")
        lists = kubelet.lists[GPU]
        plugin.view.show(devices(3))
        stopping = asyncio.create_task(plugin.server.stop())
        await asyncio.sleep(0)
        plugin.server.changed()
        await stopping
        [response] = (await admitting).answers["main", GPU].container_responses
        assert dict(response.envs) == {"answered": "yes"}
        assert kubelet.lists[GPU] == lists
