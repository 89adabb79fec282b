"""Lists that overlap with life, that fail, and when they are tried again; time is virtual."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.builders import NodeBuilder, make_node, make_policy, make_record, make_report
from tests.unit.controller.apidouble import RECORDS, ApiDouble
from tests.unit.controller.making import make_context

from gpusharing.api import names
from gpusharing.controller.context import Context
from gpusharing.controller.keys import SHARED_KEY, Key
from gpusharing.controller.resync import UNREAD_MOST, ListState, fill, resync, resync_forever
from gpusharing.core.errors import ApiError
from gpusharing.core.records import record_object
from gpusharing.kube import paths

pytestmark = pytest.mark.looptime
FOUR = make_policy("four").sharing(4)
FORBIDDEN = ApiError("list: 403 Forbidden", status=403, hint="check the rights")


def now() -> float:
    return asyncio.get_running_loop().time()


def at(version: int, obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def in_full(node: NodeBuilder) -> dict[str, Any]:
    return {**node.object(), "spec": {}, "status": {}}


async def queued(context: Context) -> set[Key]:
    """Every key that waits for a worker; it waits no longer."""
    await asyncio.sleep(2)  # what is collected for a while
    keys = set()
    while len(context.queue):
        key = await context.queue.get()
        keys.add(key)
        context.queue.done(key)
    return keys


def cluster_of_one(api: ApiDouble) -> None:
    """A node with a policy, a record and a report."""
    node = make_node("a")
    api.lists[paths.NODES] = [at(1, node.object())]
    api.lists[paths.POLICIES] = [at(2, FOUR.object())]
    api.lists[RECORDS] = [at(3, record_object(make_record(node.build(), FOUR), names.NAMESPACE))]
    api.lists[paths.GPU_NODES] = [at(4, make_report("a").object())]


async def test_the_first_one_fills_the_cache_decides_and_says_what_there_is_to_do() -> None:
    api, lists = ApiDouble(), ListState()
    context = make_context(api)
    cluster_of_one(api)
    assert await resync(context, lists) == 2
    cache = context.cache
    assert (set(cache.nodes), set(cache.policies), set(cache.records), set(cache.reports)) == (
        {"a"},
        {"four"},
        {"a"},
        {"a"},
    )
    assert cache.states["a"].owner == "four"
    assert await queued(context) == {("node", "a"), ("policy", "four")}
    assert lists.problem == ""


async def test_the_next_one_finds_nothing_to_do_in_a_cluster_that_is_as_it_should_be() -> None:
    api = ApiDouble()
    context = make_context(api)
    cluster_of_one(api)
    await resync(context, ListState())
    api.lists[paths.NODES] = [at(9, make_node("a").config(FOUR.rendered().name).object())]
    await resync(context, ListState())
    assert await resync(context, ListState()) == 0


async def test_what_a_whole_list_lacks_is_gone() -> None:
    api = ApiDouble()
    context = make_context(api)
    cluster_of_one(api)
    await resync(context, ListState())
    for path in api.lists:
        api.lists[path] = []
    await resync(context, ListState())
    cache = context.cache
    assert (cache.nodes, cache.policies, cache.records, cache.reports) == ({}, {}, {}, {})
    assert ("node", "a") in await queued(context)


@pytest.mark.parametrize("failing", [paths.NODES, paths.POLICIES, paths.GPU_NODES, RECORDS])
async def test_of_a_list_that_fails_nothing_is_gone_and_it_says_which(failing: str) -> None:
    api, lists = ApiDouble(), ListState()
    context = make_context(api)
    cluster_of_one(api)
    await resync(context, lists)
    api.lists[failing] = []
    api.fails(rf"{failing}\?.*", FORBIDDEN)
    with pytest.raises(ApiError):
        await resync(context, lists)
    cache = context.cache
    assert all((cache.nodes, cache.policies, cache.records, cache.reports))
    assert lists.problem == "list: 403 Forbidden. hint: check the rights"
    await resync(context, lists)
    assert lists.problem == ""
    assert not all((cache.nodes, cache.policies, cache.records, cache.reports))


async def test_what_was_seen_before_a_list_failed_is_a_fact_all_the_same() -> None:
    api = ApiDouble()
    context = make_context(api)
    cluster_of_one(api)
    await resync(context, ListState())
    api.lists[paths.NODES] = [at(9, make_node("a").label("team", "x").object())]
    api.fails(rf"{paths.POLICIES}\?.*", FORBIDDEN)
    with pytest.raises(ApiError):
        await resync(context, ListState())
    assert context.cache.nodes["a"].labels["team"] == "x"


async def test_a_foreign_configmap_of_another_name_is_none_of_ours() -> None:
    api = ApiDouble()
    context = make_context(api)
    api.lists[RECORDS] = [{"metadata": {"name": "kube-root-ca.crt", "namespace": names.NAMESPACE}}]
    await resync(context, ListState())
    assert context.cache.records == {}


async def test_a_record_without_a_node_is_looked_at_each_time_until_it_is_gone() -> None:
    api = ApiDouble()
    context = make_context(api)
    cluster_of_one(api)
    api.lists[paths.NODES] = []
    for _ in range(2):
        await resync(context, ListState())
        assert ("node", "a") in await queued(context)


async def test_a_release_that_was_held_is_looked_at_each_time() -> None:
    api = ApiDouble()
    context = make_context(api)
    cluster_of_one(api)
    label = make_node("a").config(FOUR.rendered().name)
    api.lists[paths.NODES] = [at(9, label.object())]
    api.lists[paths.POLICIES] = []
    for _ in range(2):
        await resync(context, ListState())
        assert await queued(context) == {("node", "a")}


async def test_after_an_etcd_was_set_back_what_it_shows_is_believed() -> None:
    api = ApiDouble()
    context = make_context(api)
    cluster_of_one(api)
    context.cache.put_node(at(999, make_node("a").label("team", "x").object()))
    context.cache.put_node(at(998, make_node("b").object()))
    api.version = 500
    await resync(context, ListState())
    assert context.cache.nodes == {"a": make_node("a").build()}


async def test_nodes_are_read_in_full_once_and_then_those_that_no_watch_has_shown() -> None:
    api = ApiDouble()
    context = make_context(api)
    api.lists[paths.NODES] = [at(1, in_full(make_node(name))) for name in "abc"]
    await resync(context, ListState())
    context.enqueue(context.cache.put_node(at(9, in_full(make_node("b").label("team", "x")))))
    labelled = {name: in_full(make_node(name).label("team", "x")) for name in "bc"}
    api.lists[paths.NODES] = [at(1, in_full(make_node("a"))), at(9, labelled["b"]), at(9, labelled["c"])]
    api.in_full.clear()
    await resync(context, ListState())
    assert [each for each in api.in_full if each.startswith(paths.NODES)] == [f"{paths.NODES}?metadata.name=c"]
    assert {name for name, node in context.cache.nodes.items() if node.labels.get("team")} == {"b", "c"}


async def test_many_nodes_that_no_watch_has_shown_are_read_by_one_list() -> None:
    api = ApiDouble()
    context = make_context(api)
    count = UNREAD_MOST + 1
    api.lists[paths.NODES] = [at(1, in_full(make_node(f"n{number}"))) for number in range(count)]
    await resync(context, ListState())
    moved = [in_full(make_node(f"n{number}").label("team", "x")) for number in range(count)]
    api.lists[paths.NODES] = [at(9, node) for node in moved]
    api.in_full.clear()
    await resync(context, ListState())
    assert [each for each in api.in_full if each.startswith(paths.NODES)] == [f"{paths.NODES}?"]
    assert all(node.labels["team"] == "x" for node in context.cache.nodes.values())


# --- with a node selector


async def test_a_node_that_the_selector_leaves_out_is_seen_where_it_has_a_config_label() -> None:
    api = ApiDouble()
    context = make_context(api, node_selector="pool=gpu")
    orphan = make_node("orphan").config(FOUR.rendered().name)
    api.lists[paths.POLICIES] = [at(1, FOUR.object())]
    api.meanwhile(rf"{paths.NODES}\?pool=gpu", lambda: api.lists[paths.NODES].append(at(2, orphan.object())))
    await resync(context, ListState())
    assert not context.cache.nodes["orphan"].in_scope
    assert context.cache.states["orphan"].owner == ""
    assert ("node", "orphan") in await queued(context)


async def test_a_node_of_the_selector_with_a_config_label_stays_in_scope() -> None:
    api = ApiDouble()
    context = make_context(api, node_selector="pool=gpu")
    api.lists[paths.NODES] = [at(1, make_node("a").config("x").object())]
    await resync(context, ListState())
    assert context.cache.nodes["a"].in_scope


async def test_a_node_born_between_the_two_lists_of_nodes_is_not_taken_for_gone() -> None:
    """It is in neither: too young for the first, and without a label for the second."""
    api = ApiDouble()
    context = make_context(api, node_selector="pool=gpu")
    await resync(context, ListState())

    def a_node_is_born() -> None:
        api.version += 1
        context.enqueue(context.cache.put_node(at(api.version, make_node("a").object())))
        api.version += 1

    api.meanwhile(rf"{paths.NODES}\?pool=gpu", a_node_is_born)
    await resync(context, ListState())
    assert set(context.cache.nodes) == {"a"}


# --- in layout shared


async def test_in_layout_shared_the_shared_configmap_is_read_and_brought_up_each_time() -> None:
    api = ApiDouble()
    context = make_context(api, layout="shared")
    api.objects[f"{RECORDS}/{names.SHARED_CONFIGMAP}"] = {"metadata": {"name": "x"}, "data": {"x": "y"}}
    await resync(context, ListState())
    assert context.cache.shared.data == {"x": "y"}
    assert await queued(context) == {SHARED_KEY}


# --- start


async def test_filling_is_tried_again_ever_more_slowly_until_every_list_works() -> None:
    api, lists = ApiDouble(), ListState()
    context = make_context(api)
    cluster_of_one(api)
    api.fails(rf"{paths.POLICIES}\?.*", ApiError("404", status=404), times=9)
    began = now()
    await fill(context, lists)
    assert set(context.cache.policies) == {"four"}
    most = [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5]
    assert sum(most) / 2 <= now() - began <= sum(most)


# --- later


@dataclass
class Resyncs:
    """When the server was asked for a list of records, which each resync begins with."""

    api: ApiDouble = field(default_factory=ApiDouble)

    @property
    def moments(self) -> list[float]:
        return [moment for path, moment in self.api.listed if path == RECORDS]

    @asynccontextmanager
    async def running(self, period: float = 480.0, **settings: Any) -> AsyncIterator[asyncio.Event]:
        self.lists = ListState("")
        trigger = asyncio.Event()
        context = make_context(self.api, resync=period, **settings)
        task = asyncio.create_task(resync_forever(context, self.lists, trigger))
        yield trigger
        assert not task.done()
        task.cancel()


async def test_everything_is_listed_each_period_give_or_take_a_tenth() -> None:
    resyncs = Resyncs()
    async with resyncs.running(period=100):
        await asyncio.sleep(1000)
    gaps = [later - earlier for earlier, later in zip([0.0, *resyncs.moments], resyncs.moments, strict=False)]
    assert 9 <= len(gaps) <= 11
    assert all(90 <= gap <= 110 for gap in gaps)
    assert len(set(gaps)) > 1


async def test_a_watch_that_listed_anew_is_followed_by_a_resync_at_once() -> None:
    resyncs = Resyncs()
    async with resyncs.running() as relisted:
        await asyncio.sleep(7)
        relisted.set()
        await asyncio.sleep(1)
        assert resyncs.moments == [pytest.approx(7)]
        assert not relisted.is_set()


async def test_one_that_fails_is_tried_again_soon_and_ever_more_slowly() -> None:
    resyncs = Resyncs()
    resyncs.api.fails(rf"{paths.NODES}\?.*", FORBIDDEN, times=12)
    async with resyncs.running() as relisted:
        relisted.set()
        await asyncio.sleep(300)
    gaps = [later - earlier for earlier, later in zip(resyncs.moments, resyncs.moments[1:], strict=False)]
    assert len(gaps) == 12
    for number, gap in enumerate(gaps):
        most = min(30.0, 0.2 * 2**number)
        assert most / 2 - 1e-6 <= gap <= most + 1e-6
    assert resyncs.lists.problem == ""


async def test_the_server_says_when_to_come_back() -> None:
    resyncs = Resyncs()
    resyncs.api.fails(rf"{paths.NODES}\?.*", ApiError("429", status=429, retry_after=20))
    async with resyncs.running() as relisted:
        relisted.set()
        await asyncio.sleep(100)
    assert resyncs.moments == [pytest.approx(0), pytest.approx(20)]


async def test_an_object_that_nobody_foresaw_fails_it_aloud_and_the_next_one_goes_on() -> None:
    resyncs = Resyncs()
    resyncs.api.lists[paths.NODES] = [{"metadata": {}}]
    async with resyncs.running() as relisted:
        relisted.set()
        await asyncio.sleep(10)
        assert resyncs.lists.problem != ""
        resyncs.api.lists[paths.NODES] = []
        await asyncio.sleep(60)
        assert resyncs.lists.problem == ""
