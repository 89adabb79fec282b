"""What the real API server cannot be made to do at the right moment: things that happen while an answer is under way.

The ordinary course of reconciling is tested against the real server (tests/integration).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import NodeBuilder, PolicyBuilder, make_node, make_policy, make_record
from tests.unit.controller.apidouble import CRD, RECORDS, ApiDouble
from tests.unit.controller.making import make_context, take_in

from gpusharing.api import names
from gpusharing.api.policy import PolicyStatus
from gpusharing.controller.cache import Cache
from gpusharing.controller.context import Context
from gpusharing.controller.keys import SHARED_KEY
from gpusharing.controller.workers import Workers
from gpusharing.core.errors import ApiError
from gpusharing.core.plan import Change
from gpusharing.core.records import record_object
from gpusharing.core.status import NodeState
from gpusharing.kube import paths

pytestmark = pytest.mark.looptime
FOUR = make_policy("four").sharing(4)
EIGHT = make_policy("eight").sharing(8)
NODE_A = f"{paths.NODES}/a"
RECORD_A = f"{RECORDS}/gpusharing-a"
STATUS = f"{paths.POLICIES}/four/status"
UID = ("FieldValueInvalid", "metadata.uid", "field is immutable")
NODE_GONE = [
    ApiError("uid mismatch: the provided object specified uid u, and no existing object was found", status=409),
    ApiError("invalid", status=422, causes=(UID,)),
]
TAKEN = ApiError("conflict", status=409, causes=(("FieldManagerConflict", ".f", 'conflict with "kubectl-label"'),))


def assigned(policy: PolicyBuilder, name: str = "a") -> NodeBuilder:
    return make_node(name).config(policy.rendered().name)


def record_of(policy: PolicyBuilder, node: NodeBuilder) -> dict[str, Any]:
    return record_object(make_record(node.build(), policy), names.NAMESPACE)


class Scene:
    """A controller at work on a double of the API server."""

    def __init__(self, cache: Cache | None = None, **settings: Any) -> None:
        self.api = ApiDouble()
        self.context = make_context(self.api, workers_max=4, **settings)
        if cache is not None:
            self.context = replace(self.context, cache=cache)

    @property
    def cache(self) -> Any:
        return self.context.cache

    def has(self, *things: NodeBuilder | PolicyBuilder | dict[str, Any]) -> None:
        """These are in the cluster and in the cache."""
        for thing in things:
            match thing:
                case NodeBuilder():
                    take_in(self.context, self.api.node(thing))
                case PolicyBuilder():
                    take_in(self.context, self.api.policy(thing))
                case _:
                    take_in(self.context, thing)

    @asynccontextmanager
    async def played(self, seconds: float = 1.0) -> AsyncIterator[Context]:
        """Everything that is due is worked on, for so long; then the end."""
        await self.context.guard.acquire()
        holding = asyncio.create_task(self.context.guard.hold())
        team = Workers(self.context)
        self.context.enqueue({("node", name) for name in self.cache.nodes})
        self.context.enqueue({("policy", name) for name in self.cache.policies})
        await asyncio.sleep(seconds)
        yield self.context
        holding.cancel()
        await team.drain(5)

    def errors(self) -> float:
        """How often a reconcile failed."""
        value = self.context.metrics.registry.get_sample_value
        kinds = ("node", "policy", "shared")
        counts = (value("gpusharing_reconcile_total", {"kind": kind, "result": "error"}) for kind in kinds)
        return sum(count or 0 for count in counts)

    def status(self) -> PolicyStatus:
        """The status of policy `four` as the server has it."""
        return PolicyStatus.model_validate(self.api.policies["four"].get("status", {}))


# --- a node that is gone


@pytest.mark.parametrize("answer", NODE_GONE, ids=["gone", "created-anew"])
async def test_a_node_that_is_gone_when_its_label_is_written_is_no_longer_counted(answer: ApiError) -> None:
    """The event of its deletion comes later, and finds nothing to do."""
    scene = Scene()
    scene.has(FOUR, make_node("a"), make_node("b"))
    scene.api.fails(NODE_A, answer)
    async with scene.played(10) as context:
        context.enqueue(scene.cache.bury("node", make_node("a").object()["metadata"]))
        await asyncio.sleep(10)
    assert scene.status().nodes.matched == 1
    assert scene.errors() == 0
    assert scene.cache.records.keys() == {"b"}


@pytest.mark.parametrize("answer", NODE_GONE, ids=["gone", "created-anew"])
async def test_a_node_that_is_gone_when_it_is_released_is_released(answer: ApiError) -> None:
    scene = Scene()
    node = assigned(FOUR)
    scene.has(node, record_of(FOUR, node))
    scene.api.fails(NODE_A, answer)
    async with scene.played(10):
        pass
    assert [write.verb for write in scene.api.written(RECORD_A)] == ["delete"]
    assert scene.cache.states == {}
    assert scene.errors() == 0


async def test_a_node_created_anew_is_written_although_its_news_came_before_the_answer_about_the_former() -> None:
    scene = Scene()
    scene.has(FOUR, make_node("a"))
    anew = make_node("a").uid("uid-of-the-next")

    def created_anew() -> None:
        scene.context.enqueue(scene.cache.put_node(scene.api.node(anew)))

    scene.api.meanwhile(RECORD_A, created_anew)
    scene.api.fails(NODE_A, NODE_GONE[1])
    async with scene.played(10):
        pass
    assert scene.cache.nodes["a"].config_label == FOUR.rendered().name
    assert scene.cache.records["a"].node_uid == "uid-of-the-next"
    assert scene.errors() == 0


async def test_a_node_deleted_while_an_event_about_it_is_posted_is_no_error() -> None:
    scene = Scene()
    node = assigned(FOUR)
    scene.has(node, record_of(FOUR, node))

    def deleted() -> None:
        scene.context.enqueue(scene.cache.drop_node("a"))

    scene.api.meanwhile(paths.EVENTS, deleted)
    async with scene.played(10):
        pass
    assert scene.cache.states == {}
    assert scene.errors() == 0


async def test_a_node_deleted_while_its_write_is_refused_is_no_error_but_the_refusal() -> None:
    scene = Scene()
    scene.has(FOUR, make_node("a"))
    scene.api.meanwhile(RECORD_A, lambda: scene.context.enqueue(scene.cache.drop_node("a")))
    scene.api.fails(NODE_A, ApiError("403", status=403))
    async with scene.played(10):
        pass
    assert scene.errors() == 1
    assert scene.cache.states == {}
    assert scene.cache.write_errors.keys() <= {"a"}


# --- a label of somebody else's


async def test_a_conflict_is_looked_at_as_it_is_now_and_decided_anew() -> None:
    scene = Scene()
    scene.has(FOUR, make_node("a"))

    def labelled_by_hand() -> None:
        scene.api.node(make_node("a").manual("theirs"))

    scene.api.meanwhile(RECORD_A, labelled_by_hand)
    scene.api.fails(NODE_A, TAKEN)
    async with scene.played(10):
        pass
    assert [write.body["metadata"]["labels"] for write in scene.api.written(NODE_A)] == [
        {names.CONFIG_LABEL: FOUR.rendered().name}
    ] * 2
    assert scene.api.events.count("DriftRepaired") == 1  # the record was ours already
    assert scene.cache.nodes["a"].config_label == FOUR.rendered().name


async def test_a_node_that_is_gone_when_a_conflict_is_looked_at_is_dropped() -> None:
    scene = Scene()
    scene.has(FOUR, make_node("a"))
    scene.api.meanwhile(RECORD_A, scene.api.nodes.clear)
    scene.api.fails(NODE_A, TAKEN)
    async with scene.played(10):
        pass
    assert scene.cache.nodes == {}
    assert scene.cache.states == {}


async def test_a_contest_is_over_after_ten_quiet_minutes_though_nothing_happens() -> None:
    scene = Scene()
    scene.has(FOUR, assigned(FOUR), record_of(FOUR, assigned(FOUR)))
    async with scene.played(1) as context:
        for _ in range(3):
            context.enqueue(scene.cache.put_node(scene.api.node(make_node("a").manual("theirs"))))
            await asyncio.sleep(10)
        assert "LabelContested" in [condition.reason for condition in scene.status().conditions]
        await asyncio.sleep(650)
        assert "LabelContested" not in [condition.reason for condition in scene.status().conditions]
    assert scene.api.events.count("LabelContested") >= 1


# --- a release


@pytest.mark.parametrize(
    "crd", [None, {"metadata": {"creationTimestamp": "2999-01-01T00:00:00Z"}}], ids=["gone", "younger"]
)
async def test_a_release_waits_for_a_crd_that_can_be_trusted_and_says_so_once(crd: dict[str, Any] | None) -> None:
    scene = Scene()
    node = assigned(FOUR)
    record = record_of(FOUR, node)
    record["metadata"]["managedFields"] = [
        {"manager": names.FIELD_MANAGER, "operation": "Apply", "time": "2026-11-30T12:00:00Z"}
    ]
    scene.has(node, record)
    if crd is None:
        del scene.api.objects[CRD]
    else:
        scene.api.objects[CRD] = crd
    async with scene.played(1) as context:
        for _ in range(3):
            context.enqueue({("node", "a")})
            await asyncio.sleep(400)
        assert scene.api.written() == []
        assert scene.cache.held == {"a"}
        scene.api.objects[CRD] = {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}
        context.enqueue({("node", "a")})
        await asyncio.sleep(1)
        assert scene.cache.nodes["a"].config_label == ""
    assert scene.api.events == ["ReleaseHeld", "Released"]
    assert scene.api.merged == []


async def test_a_crd_that_cannot_be_read_releases_nothing_and_is_asked_again() -> None:
    scene = Scene()
    node = assigned(FOUR)
    scene.has(node, record_of(FOUR, node))
    scene.api.fails(CRD, ApiError("403", status=403), times=2)
    async with scene.played(10):
        pass
    assert scene.errors() == 2
    assert scene.cache.nodes["a"].config_label == ""


async def test_a_node_that_a_policy_no_longer_names_is_released_without_asking_for_the_crd() -> None:
    scene = Scene()
    node = assigned(FOUR)
    scene.has(node, record_of(FOUR, node), FOUR.selecting({"team": "x"}))
    del scene.api.objects[CRD]
    async with scene.played(1):
        pass
    assert scene.cache.nodes["a"].config_label == ""


async def test_a_node_that_leaves_the_node_selector_is_released() -> None:
    scene = Scene(node_selector="pool=gpu")
    node = assigned(FOUR)
    scene.has(FOUR, node, record_of(FOUR, node))
    async with scene.played(1) as context:
        context.enqueue(scene.cache.bury("node", node.object()["metadata"]))
        await asyncio.sleep(1)
    assert scene.api.nodes["a"].labels.get(names.CONFIG_LABEL) is None
    assert [write.verb for write in scene.api.written(RECORD_A)] == ["delete"]


async def test_a_foreign_configmap_under_the_name_of_a_record_outlives_the_node() -> None:
    scene = Scene()
    foreign = record_of(FOUR, make_node("a"))
    foreign["metadata"]["labels"] = {}
    scene.has(foreign, make_node("a"))
    async with scene.played(1) as context:
        context.enqueue(scene.cache.drop_node("a"))
        await asyncio.sleep(1)
    assert scene.api.written() == []


# --- a status


class InterruptedCache(Cache):
    """Counting 10,000 nodes takes turns; something else happens in the first of them."""

    def __init__(self) -> None:
        super().__init__("per-node", sync_delay=timedelta(), plugin_gone_after=30)
        self.happens: list[Callable[[], object]] = []

    def states_of(self, policy: str) -> Iterator[NodeState]:
        states = list(super().states_of(policy))
        while self.happens:
            self.happens.pop()()
        yield from states


@pytest.mark.parametrize("labels", [{}, {"team": "x"}], ids=["echo", "label"])
async def test_a_status_is_written_although_the_policy_was_seen_again_while_it_was_made(labels: dict[str, str]) -> None:
    scene = Scene(InterruptedCache())
    scene.has(FOUR, assigned(FOUR))
    scene.api.policies["four"]["metadata"]["labels"] = labels
    scene.cache.happens.append(lambda: scene.cache.put_policy(scene.api.again("four")))
    async with scene.played(10):
        pass
    assert scene.cache.happens == []
    assert scene.status().nodes.owned == 1


async def test_a_status_of_a_former_spec_is_not_written() -> None:
    scene = Scene(InterruptedCache())
    scene.has(FOUR, assigned(FOUR))
    edited = FOUR.sharing(8).generation(2)
    scene.cache.happens.append(lambda: scene.context.enqueue(scene.cache.put_policy(scene.api.policy(edited))))
    async with scene.played(10):
        pass
    assert {write.body["status"]["observedGeneration"] for write in scene.api.written(STATUS)} == {2}


async def test_a_status_that_somebody_emptied_is_written_again() -> None:
    scene = Scene()
    scene.has(FOUR, assigned(FOUR), record_of(FOUR, assigned(FOUR)))
    async with scene.played(10) as context:
        before = scene.status()
        del scene.api.policies["four"]["status"]
        context.enqueue(scene.cache.put_policy(scene.api.again("four")))
        await asyncio.sleep(10)
    assert before.nodes.owned == 1
    assert scene.status().nodes == before.nodes


async def test_a_status_is_written_once_at_most_in_its_pace_and_the_last_word_is_kept() -> None:
    scene = Scene(status_pace=2.0)
    scene.has(FOUR)
    async with scene.played(5) as context:
        first = len(scene.api.written(STATUS))
        for number in range(20):
            context.enqueue(scene.cache.put_node(scene.api.node(make_node(f"n{number}"))))
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert len(scene.api.written(STATUS)) - first <= 2
        await asyncio.sleep(10)
        assert scene.status().nodes.updated == 20


async def test_a_status_on_an_older_version_is_made_again_on_the_newer() -> None:
    scene = Scene()
    scene.has(FOUR)
    scene.api.fails(STATUS, ApiError("the object has been modified", status=409))
    async with scene.played(10):
        pass
    assert len(scene.api.written(STATUS)) == 2
    assert scene.status().observed_generation == 1


async def test_a_policy_that_is_gone_when_its_status_is_written_is_no_error() -> None:
    scene = Scene()
    scene.has(FOUR)
    scene.api.fails(STATUS, ApiError("not found", status=404))
    async with scene.played(10):
        pass
    assert scene.errors() == 0
    assert len(scene.api.written(STATUS)) == 1


async def test_a_status_with_nothing_new_is_not_written() -> None:
    scene = Scene()
    scene.has(FOUR)
    async with scene.played(10) as context:
        count = len(scene.api.written(STATUS))
        for _ in range(5):
            context.enqueue({("policy", "four")})
            await asyncio.sleep(5)
        assert len(scene.api.written(STATUS)) == count == 1


# --- refusals


async def test_a_refusal_for_good_is_shown_until_the_write_is_no_longer_needed() -> None:
    scene = Scene()
    node = assigned(FOUR)
    scene.has(FOUR, node, record_of(FOUR, node))
    scene.api.fails(RECORD_A, ApiError("403 Forbidden", status=403), times=5)
    async with scene.played(1) as context:
        context.enqueue(scene.cache.put_policy(scene.api.policy(EIGHT.priority(5))))
        await asyncio.sleep(3)
        assert scene.cache.states["a"].write_error == "403 Forbidden"
        context.enqueue(scene.cache.drop_policy("eight"))
        await asyncio.sleep(3)
        assert scene.cache.states["a"].write_error == ""
        assert scene.cache.states["a"].plan.change is Change.UNCHANGED


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_a_refusal_that_may_pass_is_not_shown(status: int) -> None:
    scene = Scene()
    scene.has(FOUR, make_node("a"))
    scene.api.fails(RECORD_A, ApiError("later", status=status), times=3)
    async with scene.played(0.3):
        assert scene.cache.states["a"].write_error == ""


# --- the shared ConfigMap


async def test_changes_of_the_shared_configmap_are_collected_for_a_while() -> None:
    scene = Scene(layout="shared", shared_debounce=1.0)
    scene.has(FOUR, *(make_node(f"n{number}") for number in range(5)))
    shared = f"{RECORDS}/{names.SHARED_CONFIGMAP}"
    async with scene.played(0) as context:
        for _ in range(5):
            context.enqueue({SHARED_KEY})
            await asyncio.sleep(0.15)
        assert scene.api.written(shared) == []
        await asyncio.sleep(0.5)
        assert len(scene.api.written(shared)) == 1
        await asyncio.sleep(100)
        assert len(scene.api.written(shared)) == 1
