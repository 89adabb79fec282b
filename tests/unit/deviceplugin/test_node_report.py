"""When the report is written, and when not; against an API server in memory, on a fake clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from tests.support.hardware import gpu_uuid, make_config, make_hardware

from gpusharing.api.node import ReservationReport, ReservationState
from gpusharing.core.errors import ApiError
from gpusharing.core.fragmentation import Fragmentation
from gpusharing.core.listing import Listing, advance
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.reservationreport import Reserved
from gpusharing.core.resources import resources_of
from gpusharing.deviceplugin.node_report import NodeReporter, ReportTimes
from gpusharing.kube import paths
from gpusharing.kube.client import Page
from gpusharing.kube.objectwatch import watch_object

pytestmark = pytest.mark.looptime

GPU_NODE = f"{paths.GPU_NODES}/gpu-a"
STATUS, CONDITION = f"{GPU_NODE}/status", f"{paths.NODES}/gpu-a/status"
GPU = "nvidia.com/gpu"
DOWN = ApiError("no answer")
HARDWARE = make_hardware(2).build()
QUIET = 100.0
"""Seconds in which everything that is due happens."""


def listed(replicas: int, name: str) -> Observed:
    served = make_config(name).shared(replicas).build()
    listing = advance(
        Listing(), resources_of(served, HARDWARE), served, sick={}, held={}, calls_open=frozenset(), now=0.0
    )
    return Observed(inventory=HARDWARE, listing=listing, served=served, desired=name, last_good=name)


FOUR, TWO = listed(4, "four"), listed(2, "two")


def holding(*shares: int) -> Observed:
    """The same node with pods on these shares."""
    ids = tuple(f"{gpu_uuid(0)}::{share}" for share in shares)
    return replace(FOUR, pods=(PodDevices("team-a", "web", "main", GPU, ids),))


def node(uid: str = "uid-1", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "gpu-a", "uid": uid}, "status": status}


@dataclass
class Server:
    """The one `GpuNode`, the one Node's condition, and every request with its time."""

    gpu_node: dict[str, Any] | None = None
    condition: dict[str, Any] | None = None
    asked: list[tuple[str, str, float]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    fails: list[ApiError] = field(default_factory=list)
    """How the next requests end, apart from watches."""

    def __post_init__(self) -> None:
        self.changed = asyncio.Event()

    def writes(self, *of: str) -> list[float]:
        """When something was written."""
        return [time for verb, path, time in self.asked if verb == "apply" and (not of or path in of)]

    @property
    def status(self) -> dict[str, Any]:
        assert self.gpu_node is not None
        return dict(self.gpu_node["status"])

    def delete(self) -> None:
        self.gpu_node = None
        self.changed.set()

    def _note(self, verb: str, path: str) -> None:
        self.asked.append((verb, path, asyncio.get_running_loop().time()))
        if self.fails:
            raise self.fails.pop(0)

    async def get(self, path: str) -> dict[str, Any]:
        self._note("get", path)
        if self.gpu_node is None:
            raise ApiError("not found", status=404)
        return self.gpu_node

    async def apply(self, path: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        assert options == {"manager": "gpu-sharing-device-plugin", "force": True, "only_metadata": True}
        self._note("apply", path)
        if path == CONDITION:
            [self.condition] = body["status"]["conditions"]
            self.condition["uid"] = body["metadata"]["uid"]
            return body
        if path == STATUS and self.gpu_node is None:
            raise ApiError("not found", status=404)
        self.gpu_node = (
            {**(self.gpu_node or {}), **body}
            if path == GPU_NODE
            else {**(self.gpu_node or {}), "status": body["status"]}
        )
        return body

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == paths.EVENTS
        self.events.append(body["reason"])
        return body

    async def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def pages(self, path: str, *, field: str = "", only_metadata: bool = False) -> AsyncIterator[Page]:
        assert (path, field, only_metadata) == (paths.GPU_NODES, "metadata.name=gpu-a", False)
        yield Page([self.gpu_node] if self.gpu_node else [], 1)

    async def watch(self, path: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
        while True:
            await self.changed.wait()
            self.changed.clear()
            yield {"type": "DELETED", "object": {"metadata": {"resourceVersion": "2"}}}


@asynccontextmanager
async def reporting(server: Server, **options: Any) -> AsyncIterator[NodeReporter]:
    """A reporter at work."""
    client: Any = server
    known: dict[str, Any] = {"now": lambda: datetime(2026, 1, 1, tzinfo=UTC), "jitter": lambda: 0.5, **options}
    reporter = NodeReporter(client, "gpu-a", **known)

    async def follow() -> None:
        async for found in watch_object(client, paths.GPU_NODES, "gpu-a"):
            reporter.see_gpu_node(found)

    tasks = [asyncio.create_task(follow()), asyncio.create_task(reporter.run())]
    try:
        yield reporter
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def settled(server: Server, **options: Any) -> AsyncIterator[NodeReporter]:
    """A reporter that has said what there was to say; what was asked so far is forgotten."""
    async with reporting(server, **options) as reporter:
        reporter.see_node(node())
        reporter.report(FOUR)
        await asyncio.sleep(QUIET)
        server.asked.clear()
        yield reporter


# --- the first report


async def test_the_first_report_makes_the_object_as_the_nodes_own_then_its_status_then_the_condition() -> None:
    server = Server()
    async with reporting(server) as reporter:
        reporter.see_node(node())
        reporter.report(FOUR)
        await asyncio.sleep(QUIET)
    assert [(verb, path) for verb, path, _ in server.asked] == [
        ("get", GPU_NODE),
        ("apply", GPU_NODE),
        ("apply", STATUS),
        ("apply", CONDITION),
    ]
    assert server.gpu_node is not None
    assert server.gpu_node["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-a", "uid": "uid-1"}
    ]
    assert server.status["config"]["served"] == "four"
    assert "staleResources" not in server.status
    assert server.condition == {
        "type": "GpuSharingReady",
        "status": "True",
        "reason": "Serving",
        "message": "nvidia.com/gpu: 8 devices.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "uid": "uid-1",
    }


@pytest.mark.fault("F36")
async def test_nothing_is_written_before_the_node_is_seen_and_nothing_once_it_is_gone() -> None:
    server = Server()
    async with reporting(server) as reporter:
        reporter.report(FOUR)
        await asyncio.sleep(QUIET)
        reporter.see_node(None)
        await asyncio.sleep(QUIET)
        assert server.asked == []
        reporter.see_node(node())
        await asyncio.sleep(QUIET)
        assert len(server.writes()) == 3
        reporter.see_node(None)
        reporter.report(TWO)
        await asyncio.sleep(QUIET)
        assert len(server.writes()) == 3


@pytest.mark.fault("F49")
@pytest.mark.parametrize(("has_checkpoint", "first"), [(True, 2.5), (False, 0.0)], ids=["checkpoint", "new-node"])
async def test_with_a_checkpoint_the_first_request_waits_for_a_random_moment(
    has_checkpoint: bool, first: float
) -> None:
    server = Server()
    async with reporting(server, has_checkpoint=has_checkpoint) as reporter:
        reporter.see_node(node())
        reporter.report(FOUR)
        await asyncio.sleep(QUIET)
    assert server.asked[0][2] == first


async def test_a_restart_alone_writes_nothing() -> None:
    server = Server()
    async with settled(server):
        pass
    known = [{"type": "Ready", "status": "True"}, {**(server.condition or {})}]
    async with reporting(server) as restarted:
        restarted.see_node(node(conditions=known))
        restarted.report(FOUR)
        await asyncio.sleep(QUIET)
    assert [verb for verb, _, _ in server.asked] == ["get"]


async def test_a_report_of_an_earlier_version_that_cannot_be_read_is_written_anew() -> None:
    owner = [{"kind": "Node", "uid": "uid-1"}]
    server = Server({"metadata": {"ownerReferences": owner}, "status": {"gpus": [{"index": "none"}]}})
    async with settled(server):
        assert server.status["gpuCount"] == 2


# --- rare


async def test_nothing_is_written_when_nothing_changed_however_often_it_is_reported() -> None:
    server = Server()
    async with settled(server) as reporter:
        for _ in range(50):
            reporter.report(replace(FOUR))
            reporter.see_node(node(capacity={"cpu": "8"}))
            await asyncio.sleep(5)
    assert server.asked == []


async def test_a_change_goes_out_at_once_and_a_storm_of_them_every_two_seconds_with_the_last_one_last() -> None:
    server = Server()
    async with settled(server) as reporter:
        start = asyncio.get_running_loop().time()
        for number in range(100):
            reporter.report(TWO if number % 2 else FOUR)
            reporter.report(replace(TWO, desired=f"c{number}"))
            await asyncio.sleep(0.1)
        await asyncio.sleep(QUIET)
    times = [round(time - start, 1) for time in server.writes(STATUS)]
    assert times == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert server.status["config"]["desired"] == "c99"


async def test_who_holds_what_alone_is_written_at_most_every_fifteen_seconds_and_then_as_it_is_by_then() -> None:
    server = Server()
    async with settled(server) as reporter:
        start = asyncio.get_running_loop().time()
        for shares in range(1, 5):
            for _ in range(50):
                reporter.report(holding(*range(shares)))
                await asyncio.sleep(0.1)
        await asyncio.sleep(QUIET)
    assert [round(time - start, 1) for time in server.writes()] == [0.0, 16.5]
    assert server.status["inUse"] == 4
    assert server.writes(CONDITION) == []


async def test_how_scattered_the_node_is_waits_as_who_holds_what_does() -> None:
    server = Server()
    async with settled(server) as reporter:
        start = asyncio.get_running_loop().time()
        for free in (2, 1, 0):
            reporter.report(replace(FOUR, fragmentation=Fragmentation((), free, 2)))
            await asyncio.sleep(1)
        await asyncio.sleep(QUIET)
    assert [round(time - start, 1) for time in server.writes()] == [0.0, 16.5]
    assert server.status["fragmentation"]["freeWholeGpus"] == 0


def reserving(state: ReservationState, in_use: int = 0) -> Observed:
    """The same node with one reservation."""
    row = ReservationReport(resource="place.gpusharing.io/a.p.team", gpus=[gpu_uuid(0)], state=state, in_use=in_use)
    return replace(FOUR, reservations=Reserved(7, (row,)))


async def test_the_state_of_a_reservation_is_written_at_once_and_how_much_of_it_is_in_use_waits() -> None:
    server = Server()
    async with settled(server) as reporter:
        start = asyncio.get_running_loop().time()
        for observed in (reserving("Withdrawing"), reserving("Active"), reserving("Active", 1)):
            reporter.report(observed)
            await asyncio.sleep(5)
        await asyncio.sleep(QUIET)
    assert [round(time - start, 1) for time in server.writes()] == [0.0, 5.0, 21.5]
    assert server.status["reservationsObservedGeneration"] == 7
    assert [row["inUse"] for row in server.status["reservations"]] == [1]


async def test_a_change_takes_what_pods_hold_along() -> None:
    server = Server()
    async with settled(server) as reporter:
        reporter.report(holding(0))
        await asyncio.sleep(3)
        reporter.report(replace(holding(0, 1), unknown_keys=("flagz",)))
        await asyncio.sleep(0.1)
        assert server.status["inUse"] == 2


async def test_the_node_condition_is_written_only_when_it_says_something_else_and_can_be_turned_off() -> None:
    server = Server()
    async with settled(server) as reporter:
        reporter.report(replace(FOUR, config_error="bad " * 1000))
        await asyncio.sleep(QUIET)
        reporter.report(replace(FOUR, config_error="bad " * 1000, last_good="x"))
        await asyncio.sleep(QUIET)
    assert len(server.writes(STATUS)) == 2
    assert len(server.writes(CONDITION)) == 1
    assert server.condition is not None
    assert (server.condition["status"], len(server.condition["message"])) == ("False", 512)

    quiet = Server()
    async with settled(quiet, node_condition=False):
        pass
    assert quiet.condition is None


# --- nodes and objects that come and go


@pytest.mark.fault("F36")
async def test_a_node_that_was_created_anew_gets_a_report_of_its_own_without_the_old_history() -> None:
    server = Server()
    async with settled(server) as reporter:
        reporter.report(TWO)
        await asyncio.sleep(QUIET)
        assert [change["to"] for change in server.status["history"]] == ["four", "two"]
        reporter.see_node(node("uid-2"))
        await asyncio.sleep(QUIET)
    assert server.gpu_node is not None
    assert server.gpu_node["metadata"]["ownerReferences"][0]["uid"] == "uid-2"
    assert [change["to"] for change in server.status["history"]] == ["two"]
    assert server.condition is not None
    assert server.condition["uid"] == "uid-2"


@pytest.mark.fault("F53")
async def test_a_report_that_was_deleted_by_hand_is_written_again_in_full_with_its_history() -> None:
    server = Server()
    async with settled(server) as reporter:
        reporter.report(TWO)
        await asyncio.sleep(QUIET)
        before = server.status
        server.delete()
        await asyncio.sleep(1)
        assert server.status == before


@pytest.mark.fault("F53")
async def test_a_report_that_vanished_unseen_is_written_again_with_the_next_change() -> None:
    server = Server()
    async with settled(server) as reporter:
        server.gpu_node = None
        reporter.report(TWO)
        await asyncio.sleep(QUIET)
    assert server.status["config"]["served"] == "two"


@pytest.mark.fault("F51")
async def test_resources_that_the_kubelet_keeps_at_0_are_reported_as_the_node_shows_them() -> None:
    server = Server()
    async with settled(server) as reporter:
        reporter.see_node(node(capacity={"nvidia.com/gpu.shared": "0", GPU: "8"}))
        await asyncio.sleep(QUIET)
        assert server.status["staleResources"] == ["nvidia.com/gpu.shared"]
        reporter.see_node(node(capacity={GPU: "8"}))
        await asyncio.sleep(QUIET)
    assert "staleResources" not in server.status


# --- an API server that is away, or says no


@pytest.mark.fault("F29")
async def test_an_api_server_that_is_away_is_tried_less_and_less_often_and_then_told_the_last_state() -> None:
    server, results = Server(), list[str]()
    async with settled(server, on_write=results.append, times=ReportTimes(longest_pause=20)) as reporter:
        server.fails = [DOWN] * 8
        start = asyncio.get_running_loop().time()
        reporter.report(TWO)
        await asyncio.sleep(1)
        reporter.report(FOUR)
        reporter.report(replace(TWO, desired="last"))
        await asyncio.sleep(3 * QUIET)
    times = [round(time - start, 2) for time in server.writes(STATUS)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == [0.75, 1.5, 3, 6, 12, 15, 15, 15]
    assert server.status["config"]["desired"] == "last"
    assert results[-10:] == ["unreachable"] * 8 + ["written"] * 2


@pytest.mark.fault("F47")
async def test_a_refused_condition_does_not_repeat_the_status_and_is_tried_again() -> None:
    server = Server()
    async with settled(server) as reporter:
        reporter.report(replace(FOUR, config_error="bad"))
        server.fails = []
        original = server.apply

        async def refuse(path: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
            if path == CONDITION and len(server.writes(CONDITION)) < 3:
                server.asked.append(("apply", path, asyncio.get_running_loop().time()))
                raise ApiError("forbidden", status=403)
            return await original(path, body, **options)

        server.apply = refuse  # type: ignore[method-assign]
        await asyncio.sleep(QUIET)
    assert len(server.writes(STATUS)) == 1
    assert len(server.writes(CONDITION)) == 4
    assert server.condition is not None
    assert server.condition["status"] == "False"


@pytest.mark.fault("F49")
async def test_the_api_servers_own_wish_to_wait_is_obeyed() -> None:
    server = Server()
    async with settled(server) as reporter:
        server.fails = [ApiError("slow down", status=429, retry_after=40)]
        reporter.report(TWO)
        await asyncio.sleep(QUIET)
    [first, second] = server.writes(STATUS)
    assert second - first == 40


# --- Events


async def test_a_preference_that_was_not_taken_is_posted_although_nothing_else_differs() -> None:
    server = Server()
    async with settled(server) as reporter:
        for _ in range(3):
            reporter.report(replace(FOUR, overruled="nvidia.com/gpu: the kubelet gave a container B0"))
            await asyncio.sleep(QUIET)
    assert server.events == ["PreferenceIgnored"]
    assert server.writes() == []


async def test_an_event_is_posted_once_its_report_is_written() -> None:
    server = Server()
    async with settled(server) as reporter:
        assert server.events == []
        server.fails = [DOWN]
        reporter.report(replace(FOUR, config_error="bad", unknown_keys=("flagz",)))
        await asyncio.sleep(0.5)
        assert server.events == []
        await asyncio.sleep(QUIET)
        assert server.events == ["InvalidConfig", "UnknownKey"]
        reporter.report(replace(FOUR, config_error="bad", unknown_keys=("flagz",), desired="x"))
        await asyncio.sleep(QUIET)
    assert server.events == ["InvalidConfig", "UnknownKey"]
