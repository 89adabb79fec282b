"""What the probes answer, what is measured, and when the watchdog ends the process; time is virtual."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.support.builders import make_node, make_policy
from tests.support.stage import placement_object
from tests.unit.controller.making import make_context, take_in

from gpusharing.controller.context import Context
from gpusharing.controller.health import HEARTBEAT_SECONDS, Health
from gpusharing.controller.resync import ListState
from gpusharing.kube.watch import WatchStamps

pytestmark = pytest.mark.looptime
WATCH = {"watch": "true"}


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Process:
    """A process whose end is written down."""

    context: Context = field(default_factory=make_context)
    lists: ListState = field(default_factory=lambda: ListState(""))
    ended: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stamps = WatchStamps(clock=now)
        self.health = Health(self.lists, self.stamps, 70, clock=now, end=self.ended.append)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.health.watch(self.context))
        yield
        assert not watching.done()
        watching.cancel()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.context.metrics.registry.get_sample_value(f"gpusharing_{name}", labels)


# --- ready


async def test_a_standby_is_ready() -> None:
    process = Process(lists=ListState())
    assert process.health.ready() == ""


async def test_a_leader_is_not_ready_before_its_caches_are_filled() -> None:
    process = Process(lists=ListState())
    process.health.leading = True
    assert process.health.ready() == "the caches are not filled yet"


async def test_a_leader_whose_lists_fail_says_which_and_why() -> None:
    process = Process(lists=ListState("list /api/v1/nodes: 403 Forbidden"))
    process.health.leading = True
    assert process.health.ready() == "list /api/v1/nodes: 403 Forbidden"
    process.lists.problem = ""
    assert process.health.ready() == ""


# --- live


async def test_a_loop_that_runs_is_alive() -> None:
    process = Process()
    async with process.watched():
        await asyncio.sleep(200)
        assert process.health.live() == ""


async def test_a_loop_that_stands_still_is_not_alive() -> None:
    process = Process()  # nobody beats
    await asyncio.sleep(HEARTBEAT_SECONDS)
    assert process.health.live() == ""
    await asyncio.sleep(5)
    assert process.health.live() == "the event loop has not run for 35 s"


async def test_a_leader_with_a_silent_watch_is_not_alive_and_says_for_how_long() -> None:
    process = Process()
    process.health.leading = True
    async with process.watched():
        process.stamps.stamp("/api/v1/nodes", WATCH)
        await asyncio.sleep(20)
        process.stamps.stamp("/apis/x", WATCH)
        assert process.health.live() == ""
        await asyncio.sleep(51)
        assert process.health.live() == "a watch has not come back for 71 s, 70 s are allowed"


# --- watchdog


async def test_the_watchdog_ends_a_leader_whose_watch_does_not_come_back() -> None:
    process = Process()
    process.health.leading = True
    async with process.watched():
        process.stamps.stamp("/api/v1/nodes", WATCH)
        await asyncio.sleep(70)
        assert process.ended == []
        await asyncio.sleep(1)
        assert set(process.ended) == {1}


async def test_the_watchdog_leaves_a_leader_alone_whose_watches_come_back() -> None:
    process = Process()
    process.health.leading = True
    async with process.watched():
        for _ in range(10):
            process.stamps.stamp("/api/v1/nodes", WATCH)
            await asyncio.sleep(45)
        assert process.ended == []


async def test_the_watchdog_leaves_a_standby_alone_and_a_leader_that_does_not_watch_yet() -> None:
    process = Process()
    async with process.watched():
        process.health.leading = True
        await asyncio.sleep(200)
        process.health.leading = False
        process.stamps.stamp("/api/v1/nodes", WATCH)
        await asyncio.sleep(200)
        assert process.ended == []


# --- measures


async def test_queue_and_pace_are_measured_as_they_are() -> None:
    process = Process()
    process.context.queue.add(("node", "gpu-a"))
    process.context.pace.overloaded()
    async with process.watched():
        await asyncio.sleep(10)
    assert process.metric("queue_depth") == 1
    assert process.metric("queue_oldest_seconds") == pytest.approx(10, abs=0.5)
    assert process.metric("concurrency_limit") == 8


async def test_nodes_are_counted_by_their_plan_and_policies_by_what_is_true_of_them() -> None:
    process = Process()
    policy = make_policy("pack").sharing(4).object()
    condition = {"reason": "Applied", "lastTransitionTime": "2026-11-30T12:00:00Z"}
    policy["status"] = {
        "conditions": [
            {"type": "Ready", "status": "True", **condition},
            {"type": "Applied", "status": "False", **condition},
        ]
    }
    take_in(
        process.context, policy, make_node("a").object(), make_node("b").object(), make_node("c").skipped().object()
    )
    async with process.watched():
        await asyncio.sleep(1)
        assert process.metric("nodes", state="add") == 2
        assert process.metric("nodes", state="skipped") == 1
        assert process.metric("policies", condition="Ready") == 1
        assert process.metric("policies", condition="Applied") is None
        process.context.cache.drop_policy("pack")
        await asyncio.sleep(6)
        assert process.metric("policies", condition="Ready") is None


async def test_placements_are_counted_by_the_reason_of_ready() -> None:
    process = Process()
    condition = {"type": "Ready", "status": "True", "reason": "Active", "lastTransitionTime": "2026-11-30T12:00:00Z"}
    for name in ("p", "q"):
        take_in(process.context, {**placement_object(name, {}), "status": {"conditions": [condition]}})
    take_in(process.context, placement_object("new", {}))
    async with process.watched():
        await asyncio.sleep(1)
        assert process.metric("placements", reason="Active") == 2


async def test_the_longest_stall_is_told_once() -> None:
    process = Process()
    clock = [0.0]
    health = Health(process.lists, process.stamps, 70, clock=lambda: clock[0], end=process.ended.append)
    watching = asyncio.create_task(health.watch(process.context))
    for seconds in (0.25, 3.25, 1.25):  # what passes while it sleeps for 0.25 s
        await asyncio.sleep(0.2)
        clock[0] += seconds
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.01)
    assert process.metric("loop_lag_seconds") == pytest.approx(3)
    assert process.metric("loop_lag_seconds") == 0
    watching.cancel()
