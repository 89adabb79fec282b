"""What becomes of a key whose work succeeds, fails, or must not be done any more; and how workers end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.builders import make_node, make_policy
from tests.unit.controller.apidouble import RECORDS, ApiDouble
from tests.unit.controller.making import make_context, take_in

from gpusharing.controller.context import Context
from gpusharing.controller.workers import Workers
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths

pytestmark = pytest.mark.looptime
FOUR = make_policy("four").sharing(4)
LABEL = f"{paths.NODES}/.*"


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def at_work(api: ApiDouble, *nodes: str, workers: int = 4) -> AsyncIterator[Context]:
    """Workers that lead, with these nodes to label."""
    context = make_context(api, workers_max=workers)
    await context.guard.acquire()
    holding = asyncio.create_task(context.guard.hold())
    take_in(context, api.policy(FOUR), *(api.node(make_node(name)) for name in nodes))
    team = Workers(context)
    context.enqueue({("node", name) for name in nodes})
    yield context
    holding.cancel()
    await team.drain(5)


def results(context: Context) -> dict[str, float | None]:
    value = context.metrics.registry.get_sample_value
    return {
        result: value("gpusharing_reconcile_total", {"kind": "node", "result": result}) for result in ("ok", "error")
    }


async def test_every_key_is_worked_on_and_counted() -> None:
    api = ApiDouble()
    async with at_work(api, *"abcdefgh") as context:
        await asyncio.sleep(1)
        assert {name: node.config_label for name, node in context.cache.nodes.items()} == dict.fromkeys(
            "abcdefgh", FOUR.rendered().name
        )
        assert context.queue.idle
        assert results(context) == {"ok": 8, "error": None}


async def test_a_refused_write_is_tried_again_when_the_server_says() -> None:
    api = ApiDouble()
    api.fails(LABEL, ApiError("429", status=429, retry_after=17))
    async with at_work(api, "a") as context:
        await asyncio.sleep(16)
        assert len(api.written(LABEL)) == 1
        await asyncio.sleep(2)
        assert len(api.written(LABEL)) == 2
        assert results(context) == {"ok": 1, "error": 1}


async def test_a_bug_in_one_key_keeps_nobody_from_the_others_and_the_key_comes_back() -> None:
    api = ApiDouble()
    api.fails(f"{RECORDS}/gpusharing-a", RuntimeError("a bug"), times=3)
    async with at_work(api, "a", "b", workers=1) as context:
        await asyncio.sleep(0.01)
        assert context.cache.nodes["b"].config_label != ""
        assert context.cache.nodes["a"].config_label == ""
        await asyncio.sleep(5)
        assert context.cache.nodes["a"].config_label != ""


@pytest.mark.parametrize(
    ("status", "halved"), [(0, True), (429, True), (503, True), (504, True), (500, False), (409, False)]
)
async def test_only_a_server_that_is_overloaded_slows_the_pace(status: int, halved: bool) -> None:
    api = ApiDouble()
    async with at_work(api, "a", workers=16) as context:
        api.fails(f"{RECORDS}/.*", ApiError("no", status=status))
        await asyncio.sleep(0.05)
        assert context.pace.limit == (8 if halved else 16)


async def test_without_the_lease_nothing_is_written_and_the_guard_is_told() -> None:
    api = ApiDouble()
    context = make_context(api, workers_max=4)
    take_in(context, api.policy(FOUR), api.node(make_node("a")), api.node(make_node("b")))
    team = Workers(context)
    context.enqueue({("node", "a"), ("node", "b")})
    await asyncio.sleep(100)
    assert api.written() == []
    assert context.guard.lost.is_set()
    await team.drain(5)


async def test_a_lease_that_is_lost_meanwhile_stops_the_writes() -> None:
    api = ApiDouble()
    async with at_work(api, "a", workers=1) as context:
        api.meanwhile(f"{RECORDS}/.*", context.guard.lost.set)
        await asyncio.sleep(100)
        assert len(api.written()) == 1


async def test_draining_lets_the_write_under_way_end_and_begins_no_other() -> None:
    api = ApiDouble()
    context = make_context(api, workers_max=1)
    await context.guard.acquire()
    take_in(context, api.policy(FOUR), *(api.node(make_node(name)) for name in "ab"))
    team = Workers(context)
    slow = asyncio.create_task(_hold_places(context, 1, seconds=3))
    await asyncio.sleep(0)
    context.enqueue({("node", "a"), ("node", "b")})
    context.queue.add_later(("node", "c"), 2)
    await asyncio.sleep(1)
    began = now()
    await team.drain(5)
    assert 1.9 <= now() - began <= 2.5
    assert {write.path for write in api.written()} == {f"{RECORDS}/gpusharing-a", f"{paths.NODES}/a"}
    await asyncio.sleep(10)
    assert len(context.queue) == 2  # b and the policy; c's appointment is off
    await slow


async def test_draining_waits_no_longer_than_it_is_told() -> None:
    api = ApiDouble()
    context = make_context(api, workers_max=1)
    await context.guard.acquire()
    take_in(context, api.policy(FOUR), api.node(make_node("a")))
    slow = asyncio.create_task(_hold_places(context, 1, seconds=1000))
    team = Workers(context)
    await asyncio.sleep(0)
    context.enqueue({("node", "a")})
    await asyncio.sleep(1)
    began = now()
    await team.drain(5)
    assert now() - began == pytest.approx(5, abs=0.1)
    assert api.written() == []
    slow.cancel()


async def _hold_places(context: Context, count: int, *, seconds: float) -> None:
    """Writes of somebody else that take their time."""
    assert context.pace.limit == count
    async with context.pace:
        await asyncio.sleep(seconds)
