"""The five RPCs of the device plugin API, each: translate, ask the plugin, translate (kubelet contract 4 and 5).

None of the kubelet's calls has a deadline, and while one is open the node starts no pod: each has one of our own. An
error of `GetPreferredAllocation` fails the pod although it is only advice: there is none. An error of `Allocate` is
what the user reads in the pod's status: one sentence.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from gpusharing.core.allocation.request import Choice
from gpusharing.core.edits import Edits
from gpusharing.core.errors import GpuSharingError
from gpusharing.core.kubeletchoice import Offer, Verdict
from gpusharing.core.resources import Device
from gpusharing.deviceplugin.counts import Counts, PreferenceResult
from gpusharing.deviceplugin.translate import allocate_response, list_message, preferred_response
from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb
from gpusharing.deviceplugin.v1beta1.deviceplugin_v1beta1_pb2_grpc import DevicePluginServicer
from gpusharing.observability.logs import logger

log = logger(__name__)

# a sentence for people, in pod status and Event
_MAX_SENTENCE = 600
# seconds from one log line about unknown ids to the next
_QUIET = 60.0


class ResourceView(Protocol):
    """What the RPCs ask of the plugin about one resource; everything from memory (P10)."""

    @property
    def name(self) -> str:
        """Return the resource's name: nvidia.com/gpu."""

    def listed(self) -> Sequence[tuple[Device, bool]]:
        """Return the whole list with whether each is Healthy; the same object while nothing changed."""

    @property
    def policy(self) -> str:
        """Return the allocation policy that serves the resource."""

    async def prefer(self, available: Set[str], must_include: Sequence[str], size: int) -> Choice:
        """Return the ids that are best, or none to abstain."""

    def judge(self, offer: Offer, ids: Sequence[str]) -> Verdict:
        """Return how the ids of an `Allocate` compare with the preference before it."""

    async def allocate(self, ids: Sequence[str]) -> Edits:
        """Return what a container needs to use these. Raises InvalidInput with a sentence for the pod's owner."""

    def opened(self) -> None:
        """Take note that a call is being answered: no id may be left out now (P13)."""

    def closed(self) -> None:
        """Take note that the call was answered."""


@dataclass(frozen=True, slots=True)
class AnswerTimes:
    """Seconds: the deadline of our own for each call, and the least time between two lists of a stream."""

    answer: float = 2.0
    coalesce: float = 0.2


class Refused(Exception):
    """An `Allocate` that fails: the status code, and the sentence that the pod's owner reads."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        self.code = code
        self.sentence = " ".join(sentence.split())[:_MAX_SENTENCE]
        super().__init__(self.sentence)


class ListFeed:
    """The list of one resource as a message, made once for each change and handed to all streams."""

    def __init__(self, view: ResourceView) -> None:
        self._view = view
        self._listed: Sequence[tuple[Device, bool]] | None = None
        self._message = pb.ListAndWatchResponse()
        self._streams: set[asyncio.Event] = set()

    def changed(self) -> None:
        """Have the streams look whether the list is another one."""
        for wake in self._streams:
            wake.set()

    def send_again(self) -> None:
        """Have the streams send the list although it is the same: another plugin's may have replaced it (1.37)."""
        self._listed = None
        self.changed()

    def message(self) -> pb.ListAndWatchResponse:
        """Return the message for the list of now; the same object while nothing changed."""
        listed = self._view.listed()
        if listed is not self._listed and (self._listed is None or listed != self._listed):
            self._message = list_message(listed)
        self._listed = listed
        return self._message

    def join(self, wake: asyncio.Event) -> None:
        """Wake this stream from now on."""
        self._streams.add(wake)

    def leave(self, wake: asyncio.Event) -> None:
        """Wake it no more."""
        self._streams.discard(wake)


class ResourceServicer(DevicePluginServicer):
    """One resource on one socket. `on_streams` is called whenever the number of open streams changes."""

    def __init__(
        self,
        view: ResourceView,
        feed: ListFeed,
        counts: Counts,
        times: AnswerTimes = AnswerTimes(),
        on_streams: Any = lambda: None,
    ) -> None:
        self._view = view
        self._feed = feed
        self._counts = counts
        self._times = times
        self._on_streams = on_streams
        # the last preference that no `Allocate` came after yet, and the list that it was made for
        self._offer: Offer | None = None
        self._offered: Sequence[tuple[Device, bool]] = ()
        self._say_unknown_from = float("-inf")
        self._ending = asyncio.Event()
        self._silent = False
        self._calls = 0
        self._answered = asyncio.Event()
        self.streams = 0
        self.streams_ever = 0

    async def end(self, grace: float) -> None:
        """Send no list any more, let open calls be answered, then end all streams.

        With a stream the kubelet closes the connection, and an `Allocate` on it fails: its pod would be lost. A server
        that stops waits for its streams otherwise.
        """
        self._silent = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._calls:
                    self._answered.clear()
                    await self._answered.wait()
        self._ending.set()
        self._feed.changed()

    async def GetDevicePluginOptions(self, request: pb.Empty, context: Any) -> pb.DevicePluginOptions:
        """Answer what the kubelet asks inside of our own `Register` call."""
        return pb.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: pb.Empty, context: Any) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Send the list at once, then each time that it changes, at most every 0.2 s."""
        wake = asyncio.Event()
        self._count_streams(1)
        self._feed.join(wake)
        sent: pb.ListAndWatchResponse | None = None
        try:
            while not self._ending.is_set():
                wake.clear()
                message = self._feed.message()
                if message is not sent and not self._silent:
                    sent = message
                    self._counts.lists += 1
                    yield message
                    await self._pause()
                await wake.wait()
        finally:
            # the peer's end raises CancelledError, a message that it refuses GeneratorExit
            self._feed.leave(wake)
            self._count_streams(-1)

    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: Any
    ) -> pb.PreferredAllocationResponse:
        """Answer exactly N ids for each container, or none; never an error (P4)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._times.answer
        with self._answering():
            offers = [await self._prefer(each, deadline) for each in request.container_requests]
            # a kubelet asks for one container; what it does with more is not known
            self._offer, self._offered = offers[0] if len(offers) == 1 else None, self._view.listed()
            return preferred_response([offer.preferred for offer in offers])

    async def Allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:
        """Answer with one response for each container, or with an error that says why not (P5, P14)."""
        with self._answering():
            try:
                return await self.allocate(request)
            except Refused as refused:
                self._counts.allocation_errors += 1
                log.warning("Allocate refused", resource=self._view.name, code=refused.code.name, why=refused.sentence)
                await context.abort(refused.code, refused.sentence)
                raise

    async def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: Any
    ) -> pb.PreStartContainerResponse:
        """Answer, although the options say that we need no such call."""
        return pb.PreStartContainerResponse()

    async def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        """Return the edits of each container. Raises Refused."""
        offer, self._offer = self._offer, None
        if not request.container_requests:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{self._view.name}: the request names no container")
        ids = [device_id for each in request.container_requests for device_id in each.devices_ids]
        try:
            async with asyncio.timeout(self._times.answer):
                edits = [await self._view.allocate(tuple(each.devices_ids)) for each in request.container_requests]
        except TimeoutError:
            raise Refused(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"{self._view.name}: no answer for {_named(ids)} within {self._times.answer:g} s. "
                "hint: see the log of the device plugin on this node",
            ) from None
        except GpuSharingError as error:
            raise Refused(self._code(ids), str(error)) from error
        except Exception as error:
            log.exception("Allocate failed: this is a bug, please report it", resource=self._view.name)
            raise Refused(
                grpc.StatusCode.INTERNAL,
                f"{self._view.name}: the device plugin failed on {_named(ids)} ({type(error).__name__}). "
                "hint: this is a bug; please report it with the log of the device plugin on this node",
            ) from error
        self._counts.allocations += len(edits)
        if offer is not None and len(edits) == 1 and self._offered is self._view.listed():
            self._count_verdict(self._view.judge(offer, ids))
        return allocate_response(edits)

    def _count_verdict(self, verdict: Verdict) -> None:
        self._counts.overruled += verdict.overruled
        if verdict.split_by:
            self._counts.splits[verdict.split_by] += 1

    def _code(self, ids: Sequence[str]) -> grpc.StatusCode:
        """Return the code of a refusal. For ids that are not ours the kubelet may have another plugin's list."""
        if set(ids) <= {device.id for device, _ in self._view.listed()}:
            return grpc.StatusCode.FAILED_PRECONDITION
        self._feed.send_again()
        return grpc.StatusCode.NOT_FOUND

    async def _prefer(self, each: pb.ContainerPreferredAllocationRequest, deadline: float) -> Offer:
        """Return the request with its answer, and count it."""
        available, must_include = frozenset(each.available_deviceIDs), tuple(each.must_include_deviceIDs)
        choice, result = await self._choice(available, must_include, each.allocation_size, deadline)
        self._counts.preferences[self._view.policy, result] += 1
        if choice.unknown:
            self._say_unknown(choice.unknown)
        return Offer(available, must_include, each.allocation_size, choice.ids)

    async def _choice(
        self, available: Set[str], must_include: Sequence[str], size: int, deadline: float
    ) -> tuple[Choice, PreferenceResult]:
        try:
            async with asyncio.timeout_at(deadline):
                choice = await self._view.prefer(available, must_include, size)
        except TimeoutError:
            log.warning("no preference in time", resource=self._view.name, seconds=self._times.answer)
            return Choice(), "timeout"
        except Exception:
            log.exception("no preference: this is a bug, please report it", resource=self._view.name)
            return Choice(), "error"
        if not choice.ids:
            return choice, choice.refusal or "not-served"
        if not _is_valid(choice.ids, available, must_include, size):
            log.error("no valid preference: this is a bug, please report it", resource=self._view.name)
            return choice._replace(ids=()), "error"
        return choice, "chosen"

    def _say_unknown(self, ids: Sequence[str]) -> None:
        self._counts.unknown_ids += len(ids)
        now = asyncio.get_running_loop().time()
        if now >= self._say_unknown_from:
            self._say_unknown_from = now + _QUIET
            log.warning("the kubelet offered ids that are not ours", resource=self._view.name, ids=list(ids[:10]))

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Have a call known to be open: no id may be left out, and no stream be ended, until it is answered."""
        self._calls += 1
        self._view.opened()
        try:
            yield
        finally:
            self._calls -= 1
            self._view.closed()
            self._answered.set()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.coalesce):
                await self._ending.wait()

    def _count_streams(self, change: int) -> None:
        self.streams += change
        if change > 0:
            self.streams_ever += 1
            self._counts.streams += 1
        self._on_streams()


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return f"{', '.join(ids[:3])}{more}"


def _is_valid(chosen: Sequence[str], available: Set[str], must_include: Sequence[str], size: int) -> bool:
    """Whether the kubelet would take the preference as it is: exactly N different ids that it offered, R among them."""
    distinct = set(chosen)
    offered = distinct.difference(must_include) <= available
    return len(chosen) == len(distinct) == size and offered and distinct >= set(must_include)
