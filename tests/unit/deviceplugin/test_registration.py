"""Registration at the product's own durations, on a fake clock; the folder's files are real."""

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kubeletclock import ClockKubelet, now, plugin
from tests.support.kubeletview import GPU, StubView, devices

from gpusharing.deviceplugin.kubelet import KubeletWatcher, PollTimes, poll_interval
from gpusharing.deviceplugin.registration import RegistrationTimes, backoff
from gpusharing.deviceplugin.sockets import FolderGone, PluginFolder
from gpusharing.deviceplugin.transport import RegisterFailed

pytestmark = pytest.mark.looptime

HOUR = 3600.0
# for hours of fake time in which the folder does not matter: 36,000 looks take half a minute of real time
LAZY = PollTimes(hurried=5.0, patient=5.0)


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> ClockKubelet:
    double = ClockKubelet(tmp_path_factory.mktemp("k"))
    double.start()
    return double


@pytest.mark.obligation("P1")
async def test_the_socket_is_served_before_it_is_registered_and_the_first_list_comes_at_once(
    kubelet: ClockKubelet,
) -> None:
    served: list[bool] = []

    async def on_register(resource: str, endpoint: str) -> None:
        served.append(endpoint in kubelet.served and endpoint in kubelet.folder_names())

    kubelet.on_register, kubelet.stream_delay = on_register, 3.0
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(5)
    assert served == [True]
    [(at, _, message)] = kubelet.lists
    assert at == pytest.approx(3.0, abs=0.1)
    assert len(message.devices) == 8


@pytest.mark.obligation("P1")
async def test_an_empty_list_is_sent_too(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView(0)):
        await asyncio.sleep(1)
    assert [len(message.devices) for _, _, message in kubelet.lists] == [0]


@pytest.mark.obligation("P2")
@pytest.mark.fault("F01")
@pytest.mark.parametrize("down", [0.0, 0.013, 0.5, 0.777, 1.0, 3.3, 42.0, 59.97, 61.03])
async def test_a_new_kubelet_has_the_list_within_0_3_s_however_long_the_old_one_was_gone(
    kubelet: ClockKubelet, down: float
) -> None:
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(100)
        kubelet.die()
        await asyncio.sleep(down)
        kubelet.start()
        started, before = now(), len(kubelet.lists)
        await asyncio.sleep(5)
        assert kubelet.lists[before][0] - started < 0.3
        assert len(kubelet.lists) == before + 1
        assert kubelet.open_streams() == 1


@pytest.mark.fault("F01")
async def test_of_the_two_detectors_the_poll_alone_is_enough(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(100)
        kubelet.start()  # the old stream stays open, as if nobody had told us
        started = now()
        await asyncio.sleep(5)
        assert len(kubelet.calls) == 2
        assert kubelet.calls[1].at - started <= 1.05


@pytest.mark.fault("F01")
async def test_of_the_two_detectors_the_end_of_the_stream_alone_is_enough(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(100)
        kubelet.end_streams()  # the socket is the same
        ended = now()
        await asyncio.sleep(5)
        assert len(kubelet.calls) == 2
        assert kubelet.calls[1].at - ended == pytest.approx(0.5, abs=0.01)


@pytest.mark.obligation("P9")
@pytest.mark.fault("F01")
async def test_two_starts_within_a_second_end_in_one_stream(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(10)
        for pause in (0.4, 0.4, 0.003, 0.051):
            kubelet.restart()
            await asyncio.sleep(pause)
        await asyncio.sleep(2)
        assert kubelet.open_streams() == 1
        assert len([name for name in kubelet.folder_names() if name.startswith("gpusharing-")]) == 1


@pytest.mark.fault("F01")
async def test_a_kubelet_that_starts_between_bind_and_register_costs_no_ten_seconds(kubelet: ClockKubelet) -> None:
    async def wiped(resource: str, endpoint: str) -> None:
        if len(kubelet.calls) == 1:
            kubelet.start()  # removes the socket that it is asked to dial

    kubelet.on_register = wiped
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(1)
        assert kubelet.open_streams() == 1
        assert len(kubelet.calls) == 2
        assert kubelet.calls[1].at < 0.3


@pytest.mark.fault("F01")
async def test_while_the_kubelet_is_down_nothing_is_bound_that_its_start_would_remove(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView()) as [server]:
        await asyncio.sleep(10)
        kubelet.die()
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert kubelet.served == {}
        assert "nobody listens on" in server.status.problem
        assert len(kubelet.calls) == 1


@pytest.mark.obligation("P9")
@pytest.mark.fault("F02")
async def test_a_socket_that_was_removed_is_noticed_within_a_second_and_replaced_within_another(
    kubelet: ClockKubelet,
) -> None:
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(100)
        [name] = [name for name in kubelet.folder_names() if name.startswith("gpusharing-")]
        (kubelet.folder / name).unlink()
        removed = now()
        while kubelet.open_streams():
            await asyncio.sleep(0.01)
        dip = now()
        await asyncio.sleep(3)
        assert dip - removed <= 1.05
        assert kubelet.lists[-1][0] - dip < 1.0
        assert kubelet.calls[1].endpoint != name
        assert kubelet.open_streams() == 1


async def test_a_kubelet_socket_that_is_removed_by_hand_ends_no_stream(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(10)
        kubelet.socket.unlink()
        await asyncio.sleep(100)
        assert kubelet.open_streams() == 1
        assert len(kubelet.calls) == 1


@pytest.mark.obligation("P3")
@pytest.mark.obligation("P9")
@pytest.mark.fault("F05")
async def test_refused_for_an_hour_it_tries_each_ten_seconds_and_then_serves_and_others_never_notice(
    kubelet: ClockKubelet,
) -> None:
    async def refuse(resource: str, endpoint: str) -> None:
        if resource == "nvidia.com/bad":
            raise RegisterFailed("the kubelet\nis busy")

    kubelet.on_register = refuse
    async with plugin(kubelet, StubView(), StubView(name="nvidia.com/bad"), poll=LAZY) as (good, bad):
        await asyncio.sleep(HOUR)
        calls = [call for call in kubelet.calls if call.resource == "nvidia.com/bad"]
        gaps = [after.at - before.at for before, after in itertools.pairwise(calls)]
        assert gaps[0] == pytest.approx(0.1, abs=0.01)
        assert all(after >= before - 1e-6 for before, after in itertools.pairwise(gaps))
        assert gaps[-2] == pytest.approx(10, abs=0.1)
        assert len({call.endpoint for call in calls}) == len(calls) < HOUR / 9
        assert set(kubelet.stopped) == {call.endpoint for call in calls}
        assert bad.status.problem == "nvidia.com/bad: the kubelet refused to register: the kubelet is busy"
        assert bad.status.live
        assert not bad.status.registered
        assert good.status.stream_open
        assert len([call for call in kubelet.calls if call.resource == GPU]) == 1
        kubelet.on_register = None
        await asyncio.sleep(11)
        assert bad.status.stream_open
        assert bad.status.problem == ""


@pytest.mark.fault("F05")
@pytest.mark.parametrize(
    "text",
    [
        'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v9"]',
        'the ResourceName "nvidia.com/gpu" is invalid',
    ],
)
async def test_a_refusal_that_is_final_is_reported_and_tried_again_with_another_kubelet_only(
    kubelet: ClockKubelet, text: str
) -> None:
    async def refuse(resource: str, endpoint: str) -> None:
        raise RegisterFailed(text)

    kubelet.on_register = refuse
    async with plugin(kubelet, StubView(), poll=LAZY) as [server]:
        await asyncio.sleep(HOUR)
        assert len(kubelet.calls) == 1
        assert text in server.status.problem
        kubelet.on_register = None
        kubelet.restart()
        await asyncio.sleep(6)
        assert server.status.stream_open


@pytest.mark.obligation("P3")
@pytest.mark.obligation("P9")
@pytest.mark.fault("F06")
async def test_registered_without_a_stream_is_tried_anew_on_a_new_socket_after_ten_seconds(
    kubelet: ClockKubelet,
) -> None:
    kubelet.streams = 0
    async with plugin(kubelet, StubView()) as [server]:
        await asyncio.sleep(9.9)
        assert server.status.registered
        assert len(kubelet.calls) == 1
        await asyncio.sleep(0.4)
        first, second = (call.endpoint for call in kubelet.calls)
        assert first != second
        assert first in kubelet.stopped
        assert "opened no stream within 10 s" in server.status.problem


@pytest.mark.obligation("P9")
@pytest.mark.fault("F06")
async def test_two_streams_get_the_same_lists_and_one_may_end(kubelet: ClockKubelet) -> None:
    kubelet.streams = 2
    view = StubView()
    async with plugin(kubelet, view) as [server]:
        await asyncio.sleep(1)
        view.show(devices(8), sick=["GPU-3"])
        server.changed()
        await asyncio.sleep(1)
        [served] = kubelet.served.values()
        served.streams[0].cancel()
        view.show(devices(8))
        server.changed()
        await asyncio.sleep(1)
        healthy = [sum(device.health == "Healthy" for device in message.devices) for _, _, message in kubelet.lists]
        assert healthy == [8, 8, 7, 7, 8]
        assert len(kubelet.calls) == 1


@pytest.mark.obligation("P9")
async def test_a_stream_that_opens_before_register_has_answered_counts(kubelet: ClockKubelet) -> None:
    async def early(resource: str, endpoint: str) -> None:
        kubelet.open_stream(resource, endpoint)
        await asyncio.sleep(2)

    kubelet.on_register, kubelet.streams = early, 0
    async with plugin(kubelet, StubView()) as [server]:
        await asyncio.sleep(1)
        assert len(kubelet.lists) == 1
        await asyncio.sleep(60)
        assert server.status.stream_open
        assert len(kubelet.calls) == 1


async def test_a_stream_that_ended_before_register_has_answered_is_not_waited_for(kubelet: ClockKubelet) -> None:
    async def brief(resource: str, endpoint: str) -> None:
        kubelet.open_stream(resource, endpoint)
        await asyncio.sleep(1)
        kubelet.end_streams()
        await asyncio.sleep(1)

    kubelet.on_register, kubelet.streams = brief, 0
    async with plugin(kubelet, StubView()):
        await asyncio.sleep(3)
        assert len(kubelet.calls) == 2


@pytest.mark.obligation("P3")
async def test_a_register_that_is_not_answered_ends_after_15_s_and_its_server_is_stopped(kubelet: ClockKubelet) -> None:
    async def hang(resource: str, endpoint: str) -> None:
        await asyncio.sleep(HOUR)

    kubelet.on_register = hang
    async with plugin(kubelet, StubView()) as [server]:
        await asyncio.sleep(15.5)
        assert kubelet.stopped == [kubelet.calls[0].endpoint]
        assert len(kubelet.calls) == 2
        assert kubelet.calls[1].at == pytest.approx(15.1, abs=0.05)
        assert "did not answer Register within 15 s" in server.status.problem


async def test_a_stream_that_ends_soon_after_each_registration_is_tried_less_and_less_often(
    kubelet: ClockKubelet,
) -> None:
    async with plugin(kubelet, StubView()):
        for _ in range(2000):
            await asyncio.sleep(0.05)
            kubelet.end_streams()
        assert 10 < len(kubelet.calls) < 20


async def test_a_stream_that_lived_for_30_s_ends_the_memory_of_failures(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView()):
        for _ in range(600):
            await asyncio.sleep(0.05)
            kubelet.end_streams()
        await asyncio.sleep(50)
        assert kubelet.open_streams() == 1
        kubelet.end_streams()
        ended = now()
        await asyncio.sleep(1)
        assert kubelet.calls[-1].at - ended == pytest.approx(0.5, abs=0.01)


@pytest.mark.obligation("P11")
@pytest.mark.obligation("P3")
@pytest.mark.parametrize("phase", ["no kubelet", "registering", "no stream", "serving", "refused", "final"])
async def test_a_stop_takes_less_than_five_seconds_in_every_state_and_leaves_no_socket(
    kubelet: ClockKubelet, phase: str
) -> None:
    async def answer(resource: str, endpoint: str) -> None:
        if phase == "registering":
            await asyncio.sleep(HOUR)
        if phase == "refused":
            raise RegisterFailed("busy")
        if phase == "final":
            raise RegisterFailed('the ResourceName "x" is invalid')

    kubelet.on_register = answer
    kubelet.streams = 0 if phase == "no stream" else 1
    if phase == "no kubelet":
        kubelet.socket.unlink()
    async with plugin(kubelet, StubView()) as [server]:
        await asyncio.sleep(7)
        began, lists = now(), len(kubelet.lists)
        await server.stop()
        assert now() - began < 5
        assert not [name for name in kubelet.folder_names() if name.startswith("gpusharing-")]
        assert len(kubelet.lists) == lists
        await asyncio.sleep(100)
        assert kubelet.open_streams() == 0
        assert len({call.endpoint for call in kubelet.calls}) == len(kubelet.calls)
        assert {call.endpoint for call in kubelet.calls} <= set(kubelet.stopped)


@pytest.mark.obligation("P12")
async def test_it_is_live_while_it_serves_or_tries_and_no_longer_when_stopped(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView()) as [server]:
        await asyncio.sleep(1)
        assert server.status.live
        kubelet.die()
        await asyncio.sleep(20)
        assert server.status.live
        assert not server.status.stream_open
        await server.stop()
        assert not server.status.live


@pytest.mark.parametrize("obstacle", ["missing", "plain file", "link"])
async def test_a_kubelet_socket_that_appears_late_is_found(kubelet: ClockKubelet, obstacle: str) -> None:
    kubelet.socket.unlink()
    if obstacle == "plain file":
        kubelet.socket.write_text("")
    if obstacle == "link":
        kubelet.socket.symlink_to("/nowhere")
    async with plugin(kubelet, StubView()) as [server]:
        await asyncio.sleep(90)
        assert kubelet.calls == []
        assert "there is no kubelet at" in server.status.problem
        kubelet.start()
        started = now()
        await asyncio.sleep(1)
        assert kubelet.lists[0][0] - started < 0.3


async def test_without_a_kubelet_socket_it_serves_and_never_registers(kubelet: ClockKubelet) -> None:
    async with plugin(kubelet, StubView(), poll=LAZY, register=False) as [server]:
        await asyncio.sleep(600)
        assert kubelet.calls == []
        assert len(kubelet.served) == 1
        assert server.status.live


async def test_a_socket_that_cannot_be_bound_is_tried_again(kubelet: ClockKubelet) -> None:
    class Full(ClockKubelet):
        async def serve(self, path: Path, servicer: object):  # type: ignore[no-untyped-def]
            if now() < 60:
                raise RuntimeError("Failed to bind to address: no space left on device")
            return await super().serve(path, servicer)

    full = Full(kubelet.folder)
    full.start()
    async with plugin(full, StubView()) as [server]:
        await asyncio.sleep(59)
        assert "no space left on device" in server.status.problem
        await asyncio.sleep(12)
        assert server.status.stream_open


@pytest.mark.obligation("P13")
async def test_lists_are_sent_on_change_only_and_at_most_every_0_2_s_the_last_one_winning(
    kubelet: ClockKubelet,
) -> None:
    view = StubView()
    async with plugin(kubelet, view) as [server]:
        await asyncio.sleep(1)
        server.changed()
        await asyncio.sleep(100)
        assert len(kubelet.lists) == 1
        for number in range(1000):
            view.show(devices(8), sick=[f"GPU-{number % 8}"])
            server.changed()
            await asyncio.sleep(0.01)
        view.show(devices(3))
        server.changed()
        await asyncio.sleep(1)
        times = [at for at, _, _ in kubelet.lists]
        assert min(after - before for before, after in itertools.pairwise(times)) >= 0.2 - 1e-6
        assert 45 <= len(times) <= 54
        assert len(kubelet.lists[-1][2].devices) == 3


@pytest.mark.obligation("P9")
@pytest.mark.fault("F03")
async def test_a_folder_that_was_removed_and_made_again_ends_the_watch(kubelet: ClockKubelet) -> None:
    folder = PluginFolder(kubelet.folder)
    watching = asyncio.create_task(KubeletWatcher(folder).run())
    await asyncio.sleep(30)
    kubelet.socket.unlink()
    kubelet.folder.rmdir()
    kubelet.folder.mkdir()
    kubelet.start()
    removed = now()
    with pytest.raises(FolderGone, match="was removed"):
        await watching
    assert now() - removed <= 10
    folder.close()


@pytest.mark.obligation("P2")
async def test_one_look_serves_all_resources(kubelet: ClockKubelet) -> None:
    views = [StubView(name=f"nvidia.com/mig-{n}") for n in range(20)]
    async with plugin(kubelet, *views) as servers:
        await asyncio.sleep(1)
        kubelet.restart()
        started = now()
        await asyncio.sleep(1)
        assert all(server.status.stream_open for server in servers)
        assert max(at for at, _, _ in kubelet.lists) - started < 0.3


@given(failures=st.integers(0, 10_000), jitter=st.floats(0, 1))
def test_the_rest_grows_from_0_1_to_10_s_and_jitter_takes_at_most_half(failures: int, jitter: float) -> None:
    times = RegistrationTimes()
    rest = backoff(failures, times, jitter)
    assert rest == 0 if failures == 0 else 0.05 <= rest <= 10
    assert backoff(failures + 1, times, jitter) >= rest


@pytest.mark.parametrize(("missing_for", "want"), [(None, 1.0), (0.0, 0.05), (59.9, 0.05), (60.0, 0.1), (1e6, 0.1)])
def test_the_poll_hurries_while_a_stream_is_missing(missing_for: float | None, want: float) -> None:
    assert poll_interval(missing_for, PollTimes()) == want
