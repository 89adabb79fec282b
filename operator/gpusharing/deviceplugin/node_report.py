"""Writes what the plugin observes: `GpuNode`, the node condition `GpuSharingReady`, Events. Rare, and never in the way.

Whoever notices something calls `report`; one task compares it with what was last written, and writes what differs:

    config, capacity, health differ      at once, writes at least 2 s apart
    nothing but who holds what differs   15 s after the last write, with jitter
    nothing differs                      never: there is no heartbeat

It writes only while the watch of the Node shows one, and for that one's uid: a Node that was created anew gets a report
without the history of the old one (decision 35, F36). An API server that is away is tried again, less and less often.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from gpusharing.api import names
from gpusharing.api.meta import rfc3339
from gpusharing.api.node import READY_CONDITION, GpuNodeStatus
from gpusharing.core.errors import ApiError
from gpusharing.core.nodeevents import node_events
from gpusharing.core.nodeproblems import Observed, stale_resources
from gpusharing.core.nodestatus import node_status, ready_condition
from gpusharing.core.oneline import one_line
from gpusharing.kube import paths
from gpusharing.kube.apply import apply_gpu_node, apply_gpu_node_status, apply_node_condition
from gpusharing.kube.client import Client, JsonObject
from gpusharing.kube.events import EventRecorder
from gpusharing.observability.logs import logger

log = logger(__name__)

# `kubectl describe node` prints it, and every kubelet's status write carries it along.
NODE_MESSAGE_MAX = 512
_ON_NODE = ("status", "reason", "message")
_DOMAINS = (names.RESOURCE_DOMAIN, names.PLACE_DOMAIN)


@dataclass(frozen=True, slots=True)
class ReportTimes:
    """Seconds."""

    # between two writes
    spacing: float = 2.0
    # between two writes for nothing but who holds what; up to `jitter` more
    occupancy: float = 15.0
    jitter: float = 3.0
    # before the first request, if there is a checkpoint to serve from (F49); drawn from 0 to this
    start: float = 5.0
    # after the first failure, doubling up to the longest
    first_pause: float = 1.0
    longest_pause: float = 60.0


@dataclass(frozen=True, slots=True)
class OwnNode:
    """The Node as its watch shows it."""

    uid: str
    # resource → quantity
    capacity: Mapping[str, str]
    # GpuSharingReady as it stands there; empty = it does not
    condition: Mapping[str, str]


@dataclass(slots=True)
class _Written:
    """What the API server has of us for one Node."""

    uid: str
    # as last written or found; history and times go on from it
    status: GpuNodeStatus | None
    # whether the `GpuNode` with that status is there
    present: bool
    condition: Mapping[str, str]


class NodeReporter:
    """Keeps the API server's picture of this node true. `run` is its task; everything else returns at once."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        *,
        times: ReportTimes = ReportTimes(),
        has_checkpoint: bool = False,
        node_condition: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
        on_write: Callable[[str], object] = lambda result: None,
    ) -> None:
        """Report on the node. `on_write` hears the result of each write: `written`, `refused` or `unreachable`."""
        self._client = client
        self._name = node_name
        self._times = times
        self._has_checkpoint = has_checkpoint
        self._node_condition = node_condition
        self._now = now
        self._jitter = jitter
        self._on_write = on_write
        self._recorder = EventRecorder(client, component=names.PLUGIN, on_drop=_say_dropped)
        self._wake = asyncio.Event()
        self._observed: Observed | None = None
        self._reported: Observed | None = None
        self._node: OwnNode | None = None
        self._written: _Written | None = None
        # by the loop's clock: not before these, for anything and for occupancy alone
        self._not_before = self._occupancy_not_before = 0.0
        self._pause = times.first_pause
        self._said = ""

    def report(self, observed: Observed) -> None:
        """Take in what is to be reported from now on."""
        self._observed = observed
        self._wake.set()

    def see_node(self, node: JsonObject | None) -> None:
        """Take in the Node as a watch shows it; None = it is not there."""
        self._node = _own_node(node) if node else None
        self._wake.set()

    def see_gpu_node(self, gpu_node: JsonObject | None) -> None:
        """Take in the `GpuNode` as a watch shows it; one that somebody deleted is written again (F53)."""
        if gpu_node is None and self._written is not None:
            self._written.present = False
            self._wake.set()

    async def run(self) -> None:
        """Report until cancelled."""
        if self._has_checkpoint:
            await asyncio.sleep(self._jitter() * self._times.start)
        await self._keep_reporting()

    async def _keep_reporting(self) -> None:
        while True:
            self._wake.clear()
            try:
                wait = self._wait()
                if wait is None or wait > 0:
                    await _set_or_over(self._wake, wait)
                else:
                    await self._write_what_differs()
            except (ApiError, ValidationError) as error:
                self._failed(error)

    # --- when

    def _wait(self) -> float | None:
        """Return how many seconds to wait before the next write; None = nothing is to be written."""
        now = asyncio.get_running_loop().time()
        if self._observed is None or self._node is None:
            return None
        if now < self._not_before:
            return self._not_before - now
        urgent = self._urgent()
        if urgent is None:
            return None
        return 0.0 if urgent else max(0.0, self._occupancy_not_before - now)

    def _urgent(self) -> bool | None:
        """Whether more differs than who holds what; None = nothing does."""
        written = self._of_this_node()
        if written is None or not written.present or written.status is None:
            return True
        status = self._status(written.status)
        if self._node_condition and _on_node(status) != written.condition:
            return True
        if status == written.status:
            return False if self._has_advice_to_tell_of() else None
        return _without_occupancy(status) != _without_occupancy(written.status)

    def _has_advice_to_tell_of(self) -> bool:
        """Whether the kubelet ignored a preference since the last Event about that."""
        seen, reported = self._observed, self._reported
        return seen is not None and reported is not None and seen.overruled != reported.overruled

    def _of_this_node(self) -> _Written | None:
        known = self._written is not None and self._node is not None and self._written.uid == self._node.uid
        return self._written if known else None

    def _status(self, previous: GpuNodeStatus | None) -> GpuNodeStatus:
        assert self._observed is not None
        stale = stale_resources(self._node.capacity, self._observed.listing) if self._node else ()
        return node_status(self._observed, previous, self._now(), stale)

    # --- what

    async def _write_what_differs(self) -> None:
        assert self._node is not None
        assert self._observed is not None
        node, observed = self._node, self._observed
        written = self._of_this_node()
        if written is None or not written.present:
            written = self._written = await self._adopt(node, written)
        status = self._status(written.status)
        if not written.present or status != written.status:
            await apply_gpu_node_status(self._client, self._name, _wire(status))
            written.status, written.present = status, True
            self._on_write("written")
        condition = _on_node(status)
        if self._node_condition and condition != written.condition:
            since = ready_condition(status).last_transition_time
            said = {"type": READY_CONDITION, **condition, "lastTransitionTime": rfc3339(since)}
            await apply_node_condition(self._client, self._name, node.uid, said)
            written.condition = condition
            self._on_write("written")
        self._succeeded()
        await self._post_events(observed, node)

    async def _adopt(self, node: OwnNode, before: _Written | None) -> _Written:
        """Find or make the `GpuNode` of this Node, and take in what it says: a restart alone writes nothing."""
        found = await self._read()
        if found is not None and _owner(found) == node.uid:
            return _Written(node.uid, _status_of(found), True, before.condition if before else node.condition)
        await apply_gpu_node(self._client, self._name, node.uid)
        if before is not None:
            return before
        return _Written(node.uid, None, False, node.condition)

    async def _read(self) -> JsonObject | None:
        try:
            return await self._client.get(f"{paths.GPU_NODES}/{self._name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _post_events(self, observed: Observed, node: OwnNode) -> None:
        for event in node_events(self._reported, observed, self._name, node.uid):
            await self._recorder.post(event)
        self._reported = observed

    # --- how it went

    def _succeeded(self) -> None:
        now = asyncio.get_running_loop().time()
        self._not_before = now + self._times.spacing
        self._occupancy_not_before = now + self._times.occupancy + self._jitter() * self._times.jitter
        self._pause, self._said = self._times.first_pause, ""

    def _failed(self, error: ApiError | ValidationError) -> None:
        asked_for = error.retry_after if isinstance(error, ApiError) else 0.0
        rest = max(asked_for, self._pause * (0.5 + self._jitter() / 2))
        self._not_before = asyncio.get_running_loop().time() + rest
        self._pause = min(self._times.longest_pause, 2 * self._pause)
        status = error.status if isinstance(error, ApiError) else 0
        if status == 404 and self._written is not None:
            self._written.present = False
        self._on_write("refused" if status else "unreachable")
        said = one_line(str(error), 1024)
        if said != self._said:
            self._said = said
            log.warning("the node's report cannot be written", error=said, retry_in=round(rest, 1))


def _say_dropped(why: str) -> None:
    log.warning("an Event is dropped", why=why)


def _own_node(node: JsonObject) -> OwnNode:
    status = node.get("status") or {}
    conditions = {said.get("type"): said for said in status.get("conditions") or ()}
    said = conditions.get(READY_CONDITION) or {}
    capacity = {name: count for name, count in (status.get("capacity") or {}).items() if name.startswith(_DOMAINS)}
    return OwnNode(node["metadata"]["uid"], capacity, {key: said[key] for key in _ON_NODE if key in said})


def _on_node(status: GpuNodeStatus) -> dict[str, str]:
    """Return what the node condition says, without its time."""
    condition = ready_condition(status)
    message = one_line(condition.message, NODE_MESSAGE_MAX)
    return dict(zip(_ON_NODE, (condition.status, condition.reason, message), strict=True))


def _owner(gpu_node: JsonObject) -> str:
    """Return the uid of the Node that a `GpuNode` belongs to."""
    owners = gpu_node["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("kind") == "Node"), "")


def _status_of(gpu_node: JsonObject) -> GpuNodeStatus | None:
    """Return the status as an earlier process wrote it; None = it cannot be read, so it is written anew."""
    try:
        return GpuNodeStatus.model_validate(gpu_node.get("status") or {})
    except ValidationError:
        return None


def _without_occupancy(status: GpuNodeStatus) -> GpuNodeStatus:
    unused = {
        "resources": [row.model_copy(update={"in_use": 0}) for row in status.resources],
        "reservations": [row.model_copy(update={"in_use": 0}) for row in status.reservations],
    }
    return status.model_copy(update={"in_use": 0, "occupancy": [], "fragmentation": None, **unused})


def _wire(status: GpuNodeStatus) -> JsonObject:
    """Return the status as it is sent: without empty lists, so that an older CRD takes it as long as it can."""
    return {key: value for key, value in status.to_wire().items() if value != []}


async def _set_or_over(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
