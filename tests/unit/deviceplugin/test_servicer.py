"""The answers to the kubelet's calls; what no kubelet sends is answered too."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.support.kubeletview import GPU, StubView, devices

from gpusharing.core.allocation.request import Choice
from gpusharing.core.edits import Edits
from gpusharing.core.errors import InvalidInput
from gpusharing.core.kubeletchoice import Verdict
from gpusharing.deviceplugin.counts import Counts
from gpusharing.deviceplugin.servicer import AnswerTimes, ListFeed, Refused, ResourceServicer
from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb

some_ids = st.lists(st.sampled_from([f"GPU-{n}" for n in range(12)] + [""]), max_size=10)


def servicer(view: StubView, counts: Counts | None = None) -> ResourceServicer:
    return ResourceServicer(view, ListFeed(view), counts or Counts())


def asks(*containers: int, available: Sequence[str] = ("GPU-0", "GPU-1", "GPU-2")) -> pb.PreferredAllocationRequest:
    """A request for so many devices for each container."""
    each = [
        pb.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
        for size in containers
    ]
    return pb.PreferredAllocationRequest(container_requests=each)


def takes(*containers: Sequence[str]) -> pb.AllocateRequest:
    """An `Allocate` of these for each container."""
    return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers])


async def preferred(view: StubView, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
    each = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
    )
    answer = await servicer(view).GetPreferredAllocation(
        pb.PreferredAllocationRequest(container_requests=[each]), context=None
    )
    [response] = answer.container_responses
    assert view.open == 0
    return list(response.deviceIDs)


async def allocated(view: StubView, *containers: Sequence[str]) -> pb.AllocateResponse:
    return await servicer(view).allocate(takes(*containers))


@pytest.mark.obligation("P4")
@given(available=some_ids, must_include=some_ids, size=st.integers(-2, 12), answer=some_ids)
def test_whatever_is_asked_and_whatever_is_chosen_the_answer_is_exactly_n_offered_ids_or_nothing(
    available: list[str], must_include: list[str], size: int, answer: list[str]
) -> None:
    view = StubView()

    async def choose(*_: object) -> Sequence[str]:
        return answer

    view.on_prefer = choose
    got = asyncio.run(preferred(view, available, must_include, size))
    if got:
        assert got == answer
        assert len(got) == len(set(got)) == size
        assert set(must_include) <= set(got) <= set(available) | set(must_include)
    else:
        valid = len(answer) == len(set(answer)) == size and set(must_include) <= set(answer)
        assert not answer or not valid or not set(answer) <= set(available) | set(must_include)


@pytest.mark.obligation("P4")
@pytest.mark.parametrize("error", [RuntimeError("boom"), InvalidInput("no"), KeyError("x"), RecursionError()])
async def test_a_failure_to_prefer_is_no_error_but_no_preference(error: Exception) -> None:
    view = StubView()

    async def fail(*_: object) -> Sequence[str]:
        raise error

    view.on_prefer = fail
    assert await preferred(view, ["GPU-0", "GPU-1"], [], 1) == []


@pytest.mark.obligation("P4")
@pytest.mark.looptime
async def test_a_preference_that_takes_too_long_is_given_up_after_two_seconds_for_all_containers_together() -> None:
    view = StubView()

    async def hang(*_: object) -> Sequence[str]:
        await asyncio.sleep(3600)
        return []

    view.on_prefer = hang
    each = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["GPU-0"], allocation_size=1)
    request = pb.PreferredAllocationRequest(container_requests=[each, each, each])
    answer = await servicer(view).GetPreferredAllocation(request, context=None)
    assert [list(response.deviceIDs) for response in answer.container_responses] == [[], [], []]
    assert asyncio.get_running_loop().time() == pytest.approx(2, abs=0.01)


@pytest.mark.obligation("P14")
async def test_each_container_gets_a_response_in_order() -> None:
    answer = await allocated(StubView(), ["GPU-1"], ["GPU-3", "GPU-2"])
    assert [dict(each.envs) for each in answer.container_responses] == [
        {"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
        {"NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-3"},
    ]


@pytest.mark.obligation("P14")
async def test_a_request_without_containers_is_refused_rather_than_answered_with_nothing() -> None:
    with pytest.raises(Refused, match="names no container"):
        await allocated(StubView())


@pytest.mark.obligation("P14")
@pytest.mark.fault("F24")
async def test_an_id_that_we_never_listed_is_refused_by_name_and_our_list_is_sent_again() -> None:
    view = StubView()
    feed = ListFeed(view)
    before = feed.message()
    assert feed.message() is before
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-0", "GPU-99"])])
    with pytest.raises(Refused) as caught:
        await ResourceServicer(view, feed, Counts()).allocate(request)
    assert caught.value.code == grpc.StatusCode.NOT_FOUND
    assert "'GPU-99'" in caught.value.sentence
    assert feed.message() is not before
    assert feed.message() == before


@pytest.mark.fault("F24")
async def test_a_sick_id_is_refused_by_name_and_the_list_is_not_sent_again() -> None:
    view = StubView()

    async def sick(ids: Sequence[str]) -> Edits:
        raise InvalidInput(f"{GPU}: {ids[0]} is broken:\n  it fell off the bus", hint="see the GpuNode")

    view.on_allocate = sick
    feed = ListFeed(view)
    before = feed.message()
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-0"])])
    with pytest.raises(Refused) as caught:
        await ResourceServicer(view, feed, Counts()).allocate(request)
    assert caught.value.code == grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.sentence == f"{GPU}: GPU-0 is broken: it fell off the bus. hint: see the GpuNode"
    assert feed.message() is before


@pytest.mark.obligation("P5")
@pytest.mark.looptime
async def test_an_answer_that_takes_too_long_fails_after_two_seconds_with_a_sentence() -> None:
    view = StubView()

    async def hang(ids: Sequence[str]) -> Edits:
        await asyncio.sleep(3600)
        return Edits()

    view.on_allocate = hang
    with pytest.raises(Refused, match=r"no answer for GPU-0 within 2 s\. hint: ") as caught:
        await allocated(view, ["GPU-0"])
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert asyncio.get_running_loop().time() == pytest.approx(2, abs=0.01)


@pytest.mark.obligation("P14")
async def test_a_bug_is_one_readable_sentence_too() -> None:
    view = StubView()

    async def bug(ids: Sequence[str]) -> Edits:
        raise KeyError("\n".join(ids))

    view.on_allocate = bug
    with pytest.raises(Refused) as caught:
        await allocated(view, [f"GPU-{n}" for n in range(10)])
    assert caught.value.code == grpc.StatusCode.INTERNAL
    assert "\n" not in caught.value.sentence
    assert "on GPU-0, GPU-1, GPU-2 and 7 more (KeyError). hint: " in caught.value.sentence


# --- what the kubelet makes of a preference


async def test_an_allocate_is_compared_with_the_preference_before_it_once() -> None:
    view, counts = StubView(), Counts()
    edge = servicer(view, counts)
    for _ in range(2):  # the second Allocate had no preference: an init container's devices, used again
        await edge.GetPreferredAllocation(asks(1), None)
        await edge.allocate(takes(["GPU-2"]))
        await edge.allocate(takes(["GPU-2"]))
    assert view.verdicts == [Verdict(overruled=True)] * 2
    assert counts.overruled == 2


async def test_a_preference_that_was_followed_is_none_to_tell_of() -> None:
    view = StubView()
    edge = servicer(view)
    await edge.GetPreferredAllocation(asks(2), None)
    await edge.allocate(takes(["GPU-1", "GPU-0"]))
    assert view.verdicts == [Verdict()]


async def test_nothing_is_compared_across_lists_connections_refusals_or_calls_for_several_containers() -> None:
    view = StubView()
    edge = servicer(view)
    await edge.GetPreferredAllocation(asks(1), None)
    view.show(devices(7))
    await edge.allocate(takes(["GPU-2"]))
    await edge.GetPreferredAllocation(asks(1), None)
    await servicer(view).allocate(takes(["GPU-2"]))
    with pytest.raises(Refused):
        await edge.allocate(takes(["GPU-99"]))
    await edge.allocate(takes(["GPU-2"]))
    await edge.GetPreferredAllocation(asks(1, 1), None)
    await edge.allocate(takes(["GPU-2"]))
    await edge.GetPreferredAllocation(asks(1), None)
    await edge.allocate(takes(["GPU-1"], ["GPU-2"]))
    assert view.verdicts == []


async def test_splits_are_counted_by_whose_choice_they_were() -> None:
    view, counts = StubView(), Counts()
    verdicts = [Verdict(split_by="plugin"), Verdict(), Verdict(True, "kubelet"), Verdict(split_by="plugin")]
    view.judge = lambda offer, ids: verdicts.pop()  # type: ignore[method-assign]
    edge = servicer(view, counts)
    while verdicts:
        await edge.GetPreferredAllocation(asks(1), None)
        await edge.allocate(takes(["GPU-0"]))
    assert (counts.splits, counts.overruled) == ({"plugin": 2, "kubelet": 1}, 1)


async def test_answers_are_counted_by_policy_and_result() -> None:
    view, counts = StubView(), Counts()
    answers: list[Choice | Exception] = [
        Choice(("GPU-0",)),
        Choice((), "insufficient"),
        Choice(),
        Choice(("GPU-9",)),
        TimeoutError(),
        KeyError("bug"),
    ]

    async def answer(*_: object) -> Choice:
        got = answers.pop(0)
        if isinstance(got, Exception):
            raise got
        return got

    view.prefer = answer  # type: ignore[method-assign]
    edge = servicer(view, counts)
    while answers:
        await edge.GetPreferredAllocation(asks(1), None)
    assert counts.preferences == {
        ("packed", "chosen"): 1,
        ("packed", "insufficient"): 1,
        ("packed", "not-served"): 1,
        ("packed", "error"): 2,
        ("packed", "timeout"): 1,
    }


@pytest.mark.looptime
async def test_unknown_ids_are_counted_each_time_and_logged_once_a_minute() -> None:
    view, counts = StubView(), Counts()

    async def choose(*_: object) -> Choice:
        return Choice(("GPU-0",), "", ("GPU-x", "GPU-y"))

    view.prefer = choose  # type: ignore[method-assign]
    edge = servicer(view, counts)
    with capture_logs() as logged:
        for _ in range(121):
            await edge.GetPreferredAllocation(asks(1), None)
            await asyncio.sleep(1)
    assert counts.unknown_ids == 242
    assert [line["ids"] for line in logged] == [["GPU-x", "GPU-y"]] * 3


async def test_the_options_ask_for_preferences_and_for_no_call_before_a_start() -> None:
    options = await servicer(StubView()).GetDevicePluginOptions(pb.Empty(), None)
    assert options.get_preferred_allocation_available
    assert not options.pre_start_required
    assert await servicer(StubView()).PreStartContainer(pb.PreStartContainerRequest(), None) is not None


@pytest.mark.obligation("P13")
async def test_a_call_is_known_to_be_open_until_it_is_answered() -> None:
    view = StubView()
    seen: list[int] = []

    async def look(ids: Sequence[str]) -> Edits:
        seen.append(view.open)
        return Edits()

    view.on_allocate = look
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-0"])])
    await servicer(view).Allocate(request, None)
    assert seen == [1]
    assert view.open == 0


@pytest.mark.looptime
async def test_a_stream_whose_peer_refuses_the_message_is_counted_off() -> None:
    view = StubView()
    edge = servicer(view)
    lists = edge.ListAndWatch(pb.Empty(), None)
    await anext(lists)
    assert edge.streams == 1
    await lists.aclose()  # type: ignore[attr-defined]
    assert edge.streams == 0
    assert edge.streams_ever == 1


@pytest.mark.looptime
@pytest.mark.parametrize(("lasts", "want"), [(1.5, 1.5), (3600, 2.0)])
async def test_streams_stay_open_until_a_call_is_answered_but_for_two_seconds_only(lasts: float, want: float) -> None:
    view = StubView()

    async def slow(ids: Sequence[str]) -> Edits:
        await asyncio.sleep(lasts)
        return Edits()

    view.on_allocate = slow
    edge = ResourceServicer(view, ListFeed(view), Counts(), AnswerTimes(answer=7200))
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-0"])])
    allocating = asyncio.create_task(edge.Allocate(request, None))
    await asyncio.sleep(0)
    await edge.end(grace=2)
    assert asyncio.get_running_loop().time() == pytest.approx(want, abs=0.01)
    allocating.cancel()


@pytest.mark.looptime
async def test_streams_that_are_ended_send_nothing_more() -> None:
    view = StubView()
    feed = ListFeed(view)
    edge = ResourceServicer(view, feed, Counts())
    lists = edge.ListAndWatch(pb.Empty(), None)
    await anext(lists)
    view.show(devices(2))
    await edge.end(grace=2)
    assert [message async for message in lists] == []


@pytest.mark.obligation("P10")
def test_on_the_way_from_a_kubelet_to_its_list_there_is_no_library_for_the_api_server_or_nvml() -> None:
    loaded = "import sys, gpusharing.deviceplugin.registration, gpusharing.deviceplugin.pod_resources"
    look = f"{loaded}; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    for name in ("kubernetes", "pynvml", "aiohttp", "gpusharing.kube", "gpusharing.discovery"):
        assert f"'{name}" not in done.stdout, name
