"""Planning in the controller: what is looked at when, what is written, and what failed lists and writes do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.builders import make_node, make_policy
from tests.support.planning import pool, service
from tests.support.stage import placement_object
from tests.unit.controller.apidouble import ApiDouble
from tests.unit.controller.making import make_context, take_in

from gpusharing.api import names
from gpusharing.controller.context import Context
from gpusharing.controller.keys import PLACEMENTS_KEY, Key
from gpusharing.controller.resync import ListState, resync
from gpusharing.controller.workers import Workers
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths

pytestmark = pytest.mark.looptime
Object = dict[str, Any]
P = placement_object("p", {"pools": [pool(1, None)], "services": [service("judge", 1), service("policy", 2)]})
Q = placement_object("q", {"pools": [pool(1, None)], "services": [service("x", 1)]}, age=1)
STATUS = f"{paths.placements('team-a')}/p/status"
GPU_NODE = f"{paths.GPU_NODES}/a"
OPEN = make_policy("open").with_spec(allowPlacements=True)
FORBIDDEN = ApiError("list: 403 Forbidden", status=403)
STALE = ApiError("conflict", status=409)
BROKEN = ApiError("internal error", status=500)


def node_object(name: str = "a", *, ready: bool = True, **spec: Any) -> Object:
    """A Node in full."""
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-11-30T12:00:00Z"}
    return {**make_node(name).object(), "spec": spec, "status": {"conditions": [condition]}}


def gpu_node_object(name: str = "a", *, generation: int = 1, **status: Any) -> Object:
    """A GpuNode of four free GPUs whose plugin serves what it should."""
    gpus = [{"index": index, "uuid": f"GPU-{name}{index}", "model": "L4"} for index in range(4)]
    condition = {
        "type": "GpuSharingReady",
        "status": "True",
        "reason": "Serving",
        "lastTransitionTime": "2026-11-30T12:00:00Z",
    }
    return {
        "kind": names.NODE_KIND,
        "metadata": {"name": name, "uid": f"uid-gpu-node-{name}", "generation": generation},
        "status": {"gpus": gpus, "conditions": [condition], **status},
    }


class Cluster:
    """A controller at work on a double of the API server that answers writes of placements and reservations."""

    def __init__(self, **settings: Any) -> None:
        self.api = Api()
        self.context = make_context(self.api, workers_max=4, **settings)
        self.placing.listed(known=True)
        self.api.nodes["a"], self.api.policies["open"] = make_node("a"), OPEN.object()
        for obj in (node_object(), OPEN.object(), gpu_node_object()):
            take_in(self.context, self.api.has(obj))

    @property
    def placing(self) -> Any:
        return self.context.cache.placing

    def put(self, obj: Object) -> set[Key]:
        keys: set[Key] = self.placing.put_placement(self.api.has(obj))
        return keys

    @asynccontextmanager
    async def played(self, seconds: float = 1.0) -> AsyncIterator[Context]:
        """Placements are worked on, for so long; then the end."""
        await self.context.guard.acquire()
        holding = asyncio.create_task(self.context.guard.hold())
        team = Workers(self.context)
        self.context.enqueue({PLACEMENTS_KEY})
        await asyncio.sleep(seconds)
        yield self.context
        holding.cancel()
        await team.drain(5)

    def condition(self, name: str = "p") -> tuple[str, str]:
        (ready,) = [
            each for each in self.placing.placements[f"team-a/{name}"].status.conditions if each.type == "Ready"
        ]
        return ready.status, ready.reason


class Api(ApiDouble):
    """Keeps placements and GpuNodes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Object] = {}

    def heal(self) -> None:
        """Nothing fails any more."""
        self._failures.clear()

    def has(self, obj: Object) -> Object:
        if obj["kind"] in {names.PLACEMENT_KIND, names.NODE_KIND}:
            self.kept[self._path(obj)] = obj
        return self._seen(obj)

    @staticmethod
    def _path(obj: Object) -> str:
        kind, metadata = obj["kind"], obj["metadata"]
        inside = paths.placements(metadata.get("namespace", "")) if kind == names.PLACEMENT_KIND else paths.GPU_NODES
        return f"{inside}/{metadata['name']}"

    def _applied(self, path: str, body: Object, manager: str) -> Object:
        at = path.removesuffix("/status")
        if at not in self.kept:
            return super()._applied(path, body, manager)
        kept = self.kept[at]
        if "spec" in body:
            metadata = {**kept["metadata"], "generation": kept["metadata"]["generation"] + 1}
            kept = {**kept, "metadata": metadata, "spec": body["spec"]}
        else:
            kept = {**kept, "status": body["status"]}
        self.kept[at] = kept
        return kept


# --- what is written, in which order


async def test_a_plan_is_stored_before_the_node_is_told() -> None:
    cluster = Cluster()
    cluster.put(P)
    async with cluster.played():
        pass
    assert [write.path for write in cluster.api.written() if "leases" not in write.path][:2] == [STATUS, GPU_NODE]
    told = cluster.api.kept[GPU_NODE]["spec"]["reservations"]
    assert [(each["service"], each["gpus"]) for each in told] == [
        ("judge", ["GPU-a0"]),
        ("policy", ["GPU-a1", "GPU-a2"]),
    ]
    assert cluster.condition() == ("False", "Reserving")


async def test_a_status_that_says_nothing_new_is_not_written() -> None:
    cluster = Cluster()
    cluster.put(P)
    async with cluster.played(5):
        before = len(cluster.api.written())
        cluster.context.enqueue({PLACEMENTS_KEY})
        await asyncio.sleep(5)
        assert len(cluster.api.written()) == before


async def test_the_status_of_a_placement_is_written_at_most_once_in_the_pace() -> None:
    cluster = Cluster(status_pace=10)
    cluster.put(P)
    async with cluster.played(1):
        cluster.context.enqueue(cluster.put({**P, "metadata": {**P["metadata"], "generation": 2}, "spec": Q["spec"]}))
        await asyncio.sleep(5)
        assert len(cluster.api.written(STATUS)) == 1
        await asyncio.sleep(10)
        assert len(cluster.api.written(STATUS)) == 2


@pytest.mark.parametrize("error", [STALE, BROKEN, FORBIDDEN], ids=["stale", "broken", "forbidden"])
async def test_a_status_that_cannot_be_written_holds_no_other_placement_up_and_is_tried_again(error: ApiError) -> None:
    cluster = Cluster()
    cluster.put(P)
    cluster.put(Q)
    cluster.api.fails(STATUS, error)
    async with cluster.played(5):
        pass
    assert cluster.condition("q") == ("False", "Reserving")
    assert cluster.condition() == ("False", "Reserving")
    assert len(cluster.api.written(STATUS)) >= 2


async def test_a_placement_that_is_gone_when_its_status_is_written_is_not_told_of() -> None:
    cluster = Cluster()
    cluster.put(P)
    cluster.api.fails(STATUS, ApiError("not found", status=404))
    async with cluster.played(0.3) as context:
        context.enqueue(cluster.placing.bury("placement", {**P["metadata"], "resourceVersion": "9999"}))
        await asyncio.sleep(3)
    assert cluster.api.written(GPU_NODE) == []
    assert cluster.api.events == []


SHARING = placement_object(
    "p", {"pools": P["spec"]["pools"], "services": [service("x", 1), service("y", shareWith="x")]}
)


async def test_that_services_share_gpus_is_told_once_also_by_the_next_controller() -> None:
    cluster = Cluster()
    cluster.put(SHARING)
    async with cluster.played(2):
        cluster.context.enqueue({PLACEMENTS_KEY})
        await asyncio.sleep(2)
    assert cluster.api.events.count("SharedNoIsolation") == 1
    later = Cluster()
    stored = cluster.api.kept[STATUS.removesuffix("/status")]
    later.put({**stored, "metadata": {**stored["metadata"], "generation": 2}})
    async with later.played(2):
        pass
    assert later.api.written(STATUS)
    assert "SharedNoIsolation" not in later.api.events


async def test_another_service_that_shares_gpus_is_told_anew() -> None:
    cluster = Cluster(status_pace=1)
    cluster.put(SHARING)
    async with cluster.played(2):
        more = [*SHARING["spec"]["services"], service("z", shareWith="x")]
        cluster.context.enqueue(cluster.put(edited(cluster, 2, services=more)))
        await asyncio.sleep(3)
    assert cluster.api.events.count("SharedNoIsolation") == 1
    assert [path.startswith(paths.events("team-a")) for path in cluster.api.merged] == [True]


async def test_a_gpu_node_that_is_gone_when_it_is_told_is_told_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.put(P)
    cluster.api.fails(GPU_NODE, ApiError("uid mismatch: no existing object was found", status=409), times=9)
    async with cluster.played(1) as context:
        assert "spec" not in cluster.api.kept[GPU_NODE]
        context.enqueue(context.cache.bury("report", {"name": "a", "resourceVersion": "5000"}))
        cluster.api.version = 6000
        cluster.api.heal()
        context.enqueue(context.cache.put_report(cluster.api.has(gpu_node_object())))
        await asyncio.sleep(2)
    assert len(cluster.api.kept[GPU_NODE]["spec"]["reservations"]) == 2


async def test_without_a_whole_list_of_placements_nothing_is_planned_and_no_node_is_told() -> None:
    cluster = Cluster()
    cluster.put(P)
    cluster.placing.listed(known=False)
    async with cluster.played(3):
        pass
    assert cluster.api.written(f"{STATUS}|{GPU_NODE}") == []


async def test_reservations_stay_while_the_crd_of_placements_is_gone() -> None:
    cluster = Cluster()
    cluster.put(P)
    async with cluster.played(1) as context:
        told = cluster.api.kept[GPU_NODE]["spec"]
        context.enqueue(cluster.placing.bury("placement", {**P["metadata"], "resourceVersion": "9999"}))
        await asyncio.sleep(3)
        assert cluster.api.kept[GPU_NODE]["spec"] == told
        cluster.api.objects[f"{paths.CRDS}/{names.PLACEMENTS_CRD}"] = {
            "metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}
        }
        context.enqueue({("node", "a")})
        await asyncio.sleep(3)
    assert cluster.api.kept[GPU_NODE]["spec"] == {"reservations": []}
    assert "ReleaseHeld" in cluster.api.events


# --- ConfigMaps of `enforcement: env`

ENV = placement_object("p", {**P["spec"], "enforcement": "env"})
OF_POLICY = f"{paths.configmaps('team-a')}/p.policy"


def edited(cluster: Cluster, generation: int, **spec: Any) -> Object:
    """The placement as the server has it, after an edit of its spec."""
    kept = cluster.api.kept[STATUS.removesuffix("/status")]
    return {
        **kept,
        "metadata": {**kept["metadata"], "generation": generation},
        "spec": {**kept["spec"], **spec},
    }


@pytest.mark.parametrize("error", [None, FORBIDDEN], ids=["allowed", "forbidden"])
async def test_the_config_map_of_a_service_that_leaves_is_emptied_before_the_new_plan_is_stored(
    error: ApiError | None,
) -> None:
    cluster = Cluster(status_pace=1)
    cluster.put(ENV)
    async with cluster.played(2) as context:
        before = len(cluster.api.written())
        if error is not None:
            cluster.api.fails(OF_POLICY, error)
        context.enqueue(cluster.put(edited(cluster, 2, services=[service("judge", 1)])))
        await asyncio.sleep(3)
    first, second, *_ = cluster.api.written()[before:]
    assert (first.path, first.body["data"]) == (OF_POLICY, {})
    assert second.path == STATUS
    assert [each["name"] for each in second.body["status"]["services"]] == ["judge"]


async def test_a_placement_that_is_reserved_for_a_while_has_its_config_maps_emptied_and_written_anew() -> None:
    cluster = Cluster(status_pace=1)
    cluster.put(ENV)
    async with cluster.played(2) as context:
        for generation, enforcement in ((2, "reserve"), (3, "env")):
            context.enqueue(cluster.put(edited(cluster, generation, enforcement=enforcement)))
            await asyncio.sleep(3)
    written = [list(write.body["data"]) for write in cluster.api.written(OF_POLICY)]
    assert written == [["a"], [], ["a"]]


# --- lists


@pytest.mark.parametrize("failing", [paths.placements(), paths.QUOTAS])
@pytest.mark.parametrize("status", [403, 404])
async def test_without_the_kind_or_the_right_the_rest_goes_on(failing: str, status: int) -> None:
    api, lists = ApiDouble(), ListState()
    context = make_context(api)
    api.lists[paths.POLICIES] = [{**OPEN.object(), "metadata": {**OPEN.object()["metadata"], "resourceVersion": "1"}}]
    api.fails(rf"{failing}\?.*", ApiError("no", status=status), times=2)
    for _ in range(2):
        await resync(context, lists)
        assert lists.problem == ""
        assert not context.cache.placing.known
    assert set(context.cache.policies) == {"open"}
    await resync(context, lists)
    assert context.cache.placing.known


async def test_a_list_of_placements_that_breaks_off_takes_nothing_away() -> None:
    api, lists = ApiDouble(), ListState()
    context = make_context(api)
    api.lists[paths.placements()] = [{**P, "metadata": {**P["metadata"], "resourceVersion": "1"}}]
    await resync(context, lists)
    api.lists[paths.placements()] = []
    api.fails(rf"{paths.placements()}\?.*", BROKEN)
    with pytest.raises(ApiError):
        await resync(context, lists)
    assert not context.cache.placing.known
    assert set(context.cache.placing.placements) == {"team-a/p"}
    await resync(context, lists)
    assert context.cache.placing.placements == {}


async def test_where_the_kind_comes_after_the_start_the_process_ends_to_watch_it() -> None:
    api = ApiDouble()
    context = make_context(api)
    context.cache.placing.watched = False
    await resync(context, ListState())
    assert context.outdated.is_set()


async def test_with_placement_off_nothing_of_it_is_listed() -> None:
    api = ApiDouble()
    context = make_context(api, placement=False)
    await resync(context, ListState())
    assert {path for path, _ in api.listed}.isdisjoint({paths.placements(), paths.QUOTAS})
    assert not context.cache.full_nodes


# --- what is looked at


async def test_everything_that_plans_depend_on_brings_placements_up() -> None:
    cluster = Cluster()
    cache = cluster.context.cache
    assert PLACEMENTS_KEY in cluster.put(P)
    assert PLACEMENTS_KEY in cache.put_node(cluster.api.has(node_object(unschedulable=True)))
    assert PLACEMENTS_KEY in cache.put_node(cluster.api.has(node_object(ready=False)))
    assert PLACEMENTS_KEY in cache.put_node(cluster.api.has(node_object("b")))
    assert PLACEMENTS_KEY in cache.drop_node("b")
    assert PLACEMENTS_KEY in cache.put_report(cluster.api.has(gpu_node_object(reservationsObservedGeneration=1)))
    quota = {"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "team-a"}}
    quota["spec"] = {"hard": {"requests.nvidia.com/gpu": "4"}}  # type: ignore[assignment]
    assert PLACEMENTS_KEY in cluster.placing.put_quota(cluster.api.has(quota))
    cluster.placing.bury("quota", {**quota["metadata"], "resourceVersion": "9000"})  # type: ignore[dict-item]
    assert cluster.placing.quotas == {}
    closed = make_policy("open").generation(2)
    cache.put_policy(cluster.api.has(closed.object()))
    assert PLACEMENTS_KEY in cache.evaluate("a", 0.0)


async def test_what_changes_no_plan_brings_nothing_up() -> None:
    cluster = Cluster()
    cluster.put(P)
    cache = cluster.context.cache
    assert cache.put_node(cluster.api.has(node_object())) == set()
    assert cache.put_report(cluster.api.has(gpu_node_object(driverVersion="1"))) == set()
    assert cluster.put(P) == set()


async def test_without_placements_nothing_brings_them_up() -> None:
    cluster = Cluster()
    cache = cluster.context.cache
    assert cache.put_node(cluster.api.has(node_object(ready=False))) == {("node", "a")}


async def test_the_answer_to_a_write_takes_nothing_away_of_a_node_that_was_seen_in_full() -> None:
    cluster = Cluster()
    cache = cluster.context.cache
    cache.put_node(cluster.api.has(make_node("a").label("team", "x").object()))
    assert (cache.nodes["a"].labels["team"], cache.nodes["a"].ready, cache.nodes["a"].schedulable) == ("x", True, True)


async def test_placements_of_one_name_in_two_namespaces_are_two() -> None:
    cluster = Cluster()
    cluster.put(P)
    cluster.put(placement_object("p", P["spec"], namespace="team-b"))
    cluster.placing.bury("placement", {**P["metadata"], "resourceVersion": "9000"})
    assert set(cluster.placing.placements) == {"team-b/p"}
