"""Keeps one resource registered with the kubelet: serve, register, watch, begin again (kubelet contract 3).

Each attempt has a socket of its own that lives through these states, and a new name for the next one:

    bound ──► registering ──► awaiting the stream ──► serving
      │            │                  │                  │
      └────────────┴──── over: streams ended, server stopped, socket removed ──► rest ──► next attempt

An attempt is over when the kubelet refuses, or another kubelet is there, when its socket vanished, when no stream opens
or the last one ends. The rest is jittered and grows; another kubelet ends it at once: 0.3 s count then (P2).
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from gpusharing.deviceplugin.counts import Counts
from gpusharing.deviceplugin.kubelet import KubeletWatcher
from gpusharing.deviceplugin.servicer import AnswerTimes, ListFeed, ResourceServicer, ResourceView
from gpusharing.deviceplugin.sockets import FolderGone, SocketIdentity
from gpusharing.deviceplugin.transport import GrpcTransport, RegisterFailed, Transport
from gpusharing.observability.logs import logger

log = logger(__name__)

# Refusals that no further attempt with the same kubelet can change: a bug of ours, or a bad name (contract 3.1).
_FINAL_REFUSALS = ("requested API version", "the ResourceName")


@dataclass(frozen=True, slots=True)
class RegistrationTimes:
    """Seconds."""

    # of `Register`: more than the 10 s that the kubelet dials us for
    register: float = 15.0
    # until the kubelet opens its stream
    stream: float = 10.0
    # a stream that ends sooner counts as a failed attempt
    trial: float = 30.0
    # between the end of a stream and the next `Register` with the same kubelet
    margin: float = 0.5
    # the shortest and the longest rest after a failed attempt
    backoff: float = 0.1
    backoff_cap: float = 10.0
    # for calls that are being answered when an attempt is over
    grace: float = 2.0
    # for streams whose peer does not read
    close: float = 0.5
    answers: AnswerTimes = field(default_factory=AnswerTimes)


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """What is to be reported of one resource."""

    resource: str
    # the kubelet answered `Register`, and that attempt is not over
    registered: bool
    stream_open: bool
    # either a stream is open, or another attempt is certain to come (P12)
    live: bool
    # one sentence on why the last attempt ended; empty once a stream is open
    problem: str
    # how many streams the kubelet has opened so far
    streams: int = 0


@dataclass(frozen=True, slots=True)
class _Over:
    """Why an attempt ended."""

    why: str
    # counts towards the backoff
    failed: bool = True
    # not to be tried again with this kubelet
    final: bool = False


def backoff(failures: int, times: RegistrationTimes, jitter: float) -> float:
    """Return the rest after so many failed attempts in a row; `jitter` is 0 to 1, and takes up to half of it away."""
    if failures == 0:
        return 0.0
    return min(times.backoff_cap, times.backoff * float(2 ** min(failures - 1, 20))) * (1 - jitter / 2)


def _jitter() -> float:
    return secrets.randbelow(1 << 20) / (1 << 20)


class ResourceServer:
    """One resource, and its one live registration."""

    def __init__(
        self,
        view: ResourceView,
        watcher: KubeletWatcher,
        times: RegistrationTimes = RegistrationTimes(),
        *,
        register: bool = True,
        transport: Transport | None = None,
        jitter: Callable[[], float] = _jitter,
    ) -> None:
        """Serve the view. `register=False`: the kubelet's socket is set to nothing, so it is never told."""
        self.counts = Counts()
        self._view = view
        self._watcher = watcher
        self._times = times
        self._register = register
        self._transport = transport or GrpcTransport()
        self._jitter = jitter
        self._feed = ListFeed(view)
        self._nudge = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        # of the attempt that is under way
        self._servicer: ResourceServicer | None = None
        self._registered = False
        self._tried: SocketIdentity | None = None
        # of those that are over
        self._failures = 0
        self._stream_ended = float("-inf")
        self._problem = ""

    # --- for the plugin ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve and to register."""
        self._task = asyncio.create_task(self._run(), name=f"registration of {self._view.name}")

    def changed(self) -> None:
        """Have the list sent, if it is another one; at most every 0.2 s."""
        self._feed.changed()

    async def stop(self) -> None:
        """End streams and server, and remove the socket; for ever (P11)."""
        self._stopping = True
        self._nudge.set()
        if self._task is not None:
            await self._task

    @property
    def status(self) -> RegistrationStatus:
        """Return what is to be reported."""
        streams = self._servicer.streams if self._servicer else 0
        return RegistrationStatus(
            resource=self._view.name,
            registered=self._registered,
            stream_open=streams > 0,
            live=self._task is not None and not self._task.done(),
            problem="" if streams else self._problem,
            streams=self.counts.streams,
        )

    # --- one attempt after the other ---------------------------------------------------------------------------

    async def _run(self) -> None:
        self._watcher.listen(self, self._nudge.set)
        try:
            while not self._stopping:
                over = await self._attempt()
                if not self._stopping:
                    self._take_note(over)
                    await self._rest(over)
        finally:
            self._watcher.forget(self)

    async def _attempt(self) -> _Over:
        await self._meet_kubelet()
        if self._register and not self._transport.listens(self._watcher.folder.kubelet_socket):
            return _Over(f"nobody listens on {str(self._watcher.folder.kubelet_socket)!r}: the kubelet is down")
        name = self._watcher.folder.new_name(self._view.name)
        servicer = ResourceServicer(self._view, self._feed, self.counts, self._times.answers, self._streams_changed)
        self._servicer = servicer
        try:
            stop_server = await self._transport.serve(self._watcher.folder.path / name, servicer)
        except (OSError, RuntimeError) as error:
            return _Over(f"cannot serve on {name!r} in {str(self._watcher.folder.path)!r}: {error}")
        try:
            return await self._live(name, servicer)
        except FolderGone as gone:
            return _Over(gone.message)
        except Exception as error:
            log.exception("registration failed: this is a bug, please report it", resource=self._view.name)
            return _Over(f"the registration failed with {type(error).__name__}: this is a bug, please report it")
        finally:
            self._registered = False
            await servicer.end(self._times.grace)
            await stop_server(self._times.close)
            self._watcher.folder.remove(name)
            if servicer.streams_ever:
                self._stream_ended = asyncio.get_running_loop().time()

    async def _meet_kubelet(self) -> None:
        """Wait until there is a kubelet to register with."""
        if not self._register:
            return
        self._watcher.stream_missing(self)
        if self._watcher.kubelet is None:
            self._problem = f"{self._view.name}: there is no kubelet at {str(self._watcher.folder.kubelet_socket)!r}"
            await self._until(lambda: self._watcher.kubelet is not None)
        if self._watcher.kubelet != self._tried:
            self._failures = 0
        self._tried = self._watcher.kubelet

    async def _live(self, name: str, servicer: ResourceServicer) -> _Over:
        """See one socket through its states; return why it is over."""
        if not self._register:
            await self._until(lambda: False)
            return _Over("stopped", failed=False)
        # A kubelet that starts just now has removed this socket, and would dial it for 10 s; after that 1.34 does not
        # notice any more when the stream of this resource ends. So nothing is bound while no kubelet listens.
        self._watcher.look()
        if why := self._lost(name):
            return _Over(why)
        if over := await self._announce(name):
            return over
        self._registered = True
        if not await self._until(lambda: servicer.streams_ever > 0 or self._lost(name), self._times.stream):
            return _Over(f"the kubelet registered the resource but opened no stream within {self._times.stream:g} s")
        opened = asyncio.get_running_loop().time()
        await self._until(lambda: servicer.streams == 0 or self._lost(name))
        lived = asyncio.get_running_loop().time() - opened
        why = self._lost(name) or f"the kubelet ended the stream after {lived:.1f} s"
        return _Over(why, failed=lived < self._times.trial)

    async def _announce(self, name: str) -> _Over | None:
        """Call `Register`; None = the kubelet took it."""
        self.counts.registrations += 1
        call = asyncio.create_task(
            self._transport.register(self._watcher.folder.kubelet_socket, self._view.name, name, self._times.register)
        )
        call.add_done_callback(lambda _: self._nudge.set())
        try:
            if not await self._until(lambda: call.done() or self._lost(name), self._times.register):
                return _Over(f"the kubelet did not answer Register within {self._times.register:g} s")
            if not call.done():
                return _Over(self._lost(name))
            call.result()
        except RegisterFailed as failed:
            self.counts.refusals += 1
            text = " ".join(str(failed).split())
            return _Over(f"the kubelet refused to register: {text}", final=text.startswith(_FINAL_REFUSALS))
        finally:
            call.cancel()
            with suppress(asyncio.CancelledError, RegisterFailed):
                await call
        # the kubelet that answered; if it died since, its stream ends
        self._watcher.look()
        self._tried = self._watcher.kubelet or self._tried
        return None

    def _lost(self, name: str) -> str:
        """Return why the attempt cannot go on, as far as the folder says."""
        # that it is gone proves nothing: the kubelet may live on, with our stream open
        if self._watcher.kubelet not in {None, self._tried}:
            return "the kubelet was restarted"
        return "" if self._watcher.has(name) else f"somebody removed our socket {name!r}"

    def _take_note(self, over: _Over) -> None:
        problem = f"{self._view.name}: {over.why}"
        if problem != self._problem:
            log.warning("registration over", resource=self._view.name, why=over.why)
        self._problem = problem
        self._failures = self._failures + 1 if over.failed else 0

    async def _rest(self, over: _Over) -> None:
        """Wait until the next attempt may begin: at once with another kubelet."""
        since_stream = asyncio.get_running_loop().time() - self._stream_ended
        margin = self._times.margin - since_stream
        rest = None if over.final else max(margin, backoff(self._failures, self._times, self._jitter()), 0.0)
        await self._until(lambda: self._watcher.kubelet not in {None, self._tried}, rest)

    def _streams_changed(self) -> None:
        if self._servicer and self._servicer.streams:
            self._watcher.stream_open(self)
        elif self._register:
            self._watcher.stream_missing(self)
        self._nudge.set()

    async def _until(self, holds: Callable[[], object], timeout: float | None = None) -> bool:
        """Wait until it holds, or we stop; return whether that was within the time and we do not stop."""
        try:
            async with asyncio.timeout(timeout):
                while not self._stopping and not holds():
                    self._nudge.clear()
                    await self._nudge.wait()
        except TimeoutError:
            return False
        return not self._stopping
