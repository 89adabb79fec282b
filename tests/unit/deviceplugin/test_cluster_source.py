"""Label and ConfigMap of a node, in whatever order they come and go. On a fake clock (looptime)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.watchedapi import ApiDouble

from gpusharing.api import names
from gpusharing.core.errors import ApiError
from gpusharing.core.records import Record, record_name, record_object
from gpusharing.deviceplugin.cluster_source import ClusterSource
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.kube import paths

pytestmark = pytest.mark.looptime
RECORDS = paths.configmaps(names.NAMESPACE)
RUNTIME = "containerd://2.1.4"
TEXTS = {"one": "version: v1\n", "two": "version: v1\nflags: {}\n"}


def node(label: str = "", uid: str = "uid-1") -> dict[str, Any]:
    labels = {names.CONFIG_LABEL: label} if label else {"other": "x"}
    return {
        "metadata": {"name": "gpu-a", "uid": uid, "labels": labels},
        "status": {"nodeInfo": {"containerRuntimeVersion": RUNTIME}},
    }


def record(*keys: str, config: str = "one", policy: str = "pack") -> dict[str, Any]:
    data = {key: TEXTS[key] for key in keys}
    return record_object(Record("gpu-a", "uid-1", policy, "p-1", config, data=data), names.NAMESPACE)


def by_hand(*keys: str, name: str = "configs") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {key: TEXTS[key] for key in keys}}


class Followed:
    """A source on an API double, and what it has told."""

    def __init__(self, **options: Any) -> None:
        self.api = ApiDouble()
        self.told: list[Desired] = []
        self.nodes: list[Any] = []
        client: Any = self.api
        self.source = ClusterSource(client, "gpu-a", on_node=self.nodes.append, **options)

    async def after(self, seconds: float = 0.1) -> Desired:
        await asyncio.sleep(seconds)
        return self.told[-1]


@asynccontextmanager
async def followed(**options: Any) -> AsyncIterator[Followed]:
    made = Followed(**options)
    task = asyncio.create_task(made.source.follow(made.told.append))
    try:
        yield made
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def wanted(name: str = "one", **more: Any) -> Desired:
    options = {"text": TEXTS[name], "rendered": True, "policy": "pack", "node_uid": "uid-1", "runtime_version": RUNTIME}
    return Desired(name, **{**options, **more})


BARE = Desired(node_uid="uid-1", runtime_version=RUNTIME)
NO_RECORD = f"ConfigMap {names.NAMESPACE}/gpusharing-gpu-a"


async def test_label_and_record_together_are_one_thing_told_once() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        it.api.put(RECORDS, record("one"))
        await it.after()
    assert it.told == [wanted()]


async def test_a_node_without_a_label_asks_for_the_defaults_and_for_no_configmap() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node())
        await it.after()
    assert it.told == [BARE]


@pytest.mark.fault("F20")
async def test_a_label_without_its_configmap_or_key_is_missing_until_it_appears() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        assert await it.after() == wanted(text=None, rendered=False, policy="", missing=f"{NO_RECORD} is not there")
        it.api.put(RECORDS, record("two"))
        assert (await it.after()).missing == f"{NO_RECORD} has no key one"
        it.api.put(RECORDS, record("one", "two"))
        assert await it.after() == wanted()
        it.api.put(RECORDS, None)
        assert (await it.after()).missing == f"{NO_RECORD} is not there"
        it.api.put(paths.NODES, node())
        assert await it.after() == BARE


async def test_a_change_by_the_controller_is_told_once_when_the_label_moves() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        it.api.put(RECORDS, record("one"))
        await it.after()
        it.api.put(RECORDS, record("one", "two", config="two", policy="spread"))
        await it.after()
        it.api.put(paths.NODES, node("two"))
        await it.after()
    assert it.told == [wanted(), wanted("two", policy="spread")]


async def test_a_new_text_of_the_same_key_is_told() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        it.api.put(RECORDS, record("one"))
        await it.after()
        harmed = record("one")
        harmed["data"]["one"] = "version: v2\n"
        it.api.put(RECORDS, harmed)
        assert await it.after() == wanted(text="version: v2\n")


@pytest.mark.fault("F36")
async def test_a_node_that_goes_and_comes_back_is_another_one() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        it.api.put(RECORDS, record("one"))
        await it.after()
        it.api.put(paths.NODES, None)
        assert await it.after() == Desired(missing="Node gpu-a is not there")
        it.api.put(paths.NODES, node("one", uid="uid-2"))
        assert await it.after() == wanted(node_uid="uid-2")
    assert [seen and seen["metadata"]["uid"] for seen in it.nodes] == ["uid-1", None, "uid-2"]


async def test_a_heartbeat_is_not_told_but_handed_on() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node())
        await it.after()
        it.api.put(paths.NODES, {**node(), "spec": {"taints": []}})
        await it.after()
    assert len(it.told) == 1
    assert len(it.nodes) == 2


# --- whose ConfigMap


async def test_a_hand_written_configmap_is_read_as_such_and_may_be_anywhere() -> None:
    async with followed(config_map="gpu-operator/configs") as it:
        it.api.put(paths.NODES, node("two"))
        it.api.put(paths.configmaps("gpu-operator"), by_hand("one", "two"))
        assert await it.after() == wanted("two", rendered=False, policy="")
        it.api.put(paths.NODES, node("three"))
        assert (await it.after()).missing == "ConfigMap gpu-operator/configs has no key three"


async def test_a_hand_written_configmap_named_like_a_record_is_not_taken_for_one() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        it.api.put(RECORDS, by_hand("one", name=record_name("gpu-a")))
        assert await it.after() == wanted(rendered=False, policy="")


async def test_the_label_may_be_another_one() -> None:
    async with followed(label="other") as it:
        it.api.put(paths.NODES, node())
        assert (await it.after()).name == "x"


# --- an API server that is away


@pytest.mark.fault("F29")
async def test_what_is_known_stands_while_the_api_is_away_and_what_is_new_is_told_when_it_is_back() -> None:
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        it.api.put(RECORDS, record("one"))
        await it.after()
        it.api.fail()
        await asyncio.sleep(1)
        before = len(it.api.lists)
        await asyncio.sleep(3600)
        assert it.told == [wanted()]
        assert len(it.api.lists) - before <= 3600
        it.api.put(paths.NODES, node())
        it.api.heal()
        assert await it.after(60) == BARE


@pytest.mark.fault("F29")
async def test_what_was_never_known_is_missing_with_the_reason() -> None:
    forbidden = ApiError("list /api/v1/nodes: 403", status=403, hint="check the rights")
    async with followed() as it:
        it.api.put(paths.NODES, node("one"))
        it.api.put(RECORDS, record("one"))
        it.api.fail(forbidden)
        assert await it.after() == Desired(missing=f"Node gpu-a cannot be read: {forbidden}")
        it.api.heal()
        assert await it.after(60) == wanted()


async def test_a_configmap_that_may_not_be_read_is_missing_only_where_it_is_needed() -> None:
    async with followed(config_map="secret/configs") as it:
        it.api.fail(ApiError("403", status=403), collection=paths.configmaps("secret"))
        it.api.put(paths.NODES, node())
        assert await it.after() == BARE
        it.api.put(paths.NODES, node("one"))
        assert (await it.after()).missing == "ConfigMap secret/configs cannot be read: 403"


@pytest.mark.fault("F49")
@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
async def test_the_first_request_is_made_at_a_drawn_moment(drawn: float) -> None:
    async with followed(start_within=5.0, draw=lambda: drawn) as it:
        it.api.put(paths.NODES, node())
        await asyncio.sleep(6)
    assert it.api.lists[0] == pytest.approx(5 * drawn, abs=0.01)


@pytest.mark.fault("F49")
async def test_a_server_that_asks_for_patience_is_given_it() -> None:
    async with followed() as it:
        it.api.fail(ApiError("429", status=429, retry_after=20.0))
        await asyncio.sleep(19)
    assert len(it.api.lists) == 2  # one of each


# --- every order of everything

STEPS = [
    ("label", ""), ("label", "one"), ("label", "two"), ("node", "gone"),
    ("record", ()), ("record", ("one",)), ("record", ("two",)), ("record", ("one", "two")),
    ("api", "down"), ("api", "up"), ("wait", ""),
]  # fmt: skip


@given(st.lists(st.sampled_from(STEPS), max_size=20))
@settings(deadline=None, max_examples=80)
@pytest.mark.fault("F20")
def test_whatever_happened_in_between_the_last_state_is_what_is_told(steps: list[tuple[str, Any]]) -> None:
    async def play() -> None:
        async with followed() as it:
            label, keys, there = "", (), True
            it.api.put(paths.NODES, node())
            for kind, value in [*steps, ("api", "up"), ("wait", "")]:
                match kind:
                    case "label":
                        label, there = value, True
                    case "node":
                        there = False
                    case "record":
                        keys = value
                    case "api":
                        it.api.fail() if value == "down" else it.api.heal()
                    case _:
                        await asyncio.sleep(120)
                it.api.put(paths.NODES, node(label) if there else None)
                it.api.put(RECORDS, record(*keys, config=label) if keys else None)
            last = await it.after(0)
            assert (last.name, last.node_uid) == ((label, "uid-1") if there else ("", ""))
            assert last.text == (TEXTS[label] if there and label in keys else None)
            assert bool(last.missing) == (not there or (label != "" and label not in keys))
            assert all(one != other for one, other in pairwise(it.told))

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop()) as runner:
        runner.run(play())


@pytest.mark.fault("F21")
async def test_a_thousand_flips_end_in_the_last() -> None:
    async with followed() as it:
        it.api.put(RECORDS, record("one", "two"))
        for flip in range(1_000):
            it.api.put(paths.NODES, node("two" if flip % 2 else "one"))
            await asyncio.sleep(0)
        assert (await it.after()).name == "two"
