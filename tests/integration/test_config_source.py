"""What a node's plugin learns from the real API server, with its own account's rights, in whatever order."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.cluster import ControlPlane
from tests.support.cluster.api import NODES, config_maps
from tests.support.controller import Controller
from tests.support.faultproxy import FaultProxy
from tests.support.faults import OpenWatch
from tests.support.fleet import RECORDS, Fleet, sharing

from gpusharing.api import names
from gpusharing.core.configtext import read_rendered
from gpusharing.core.records import Record, record_name, record_object
from gpusharing.deviceplugin.cluster_source import ClusterSource
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.kube.client import connect

NODE, ONE, TWO = "gpu-a", "version: v1\n", "version: v1\nflags: {migStrategy: single}\n"
TEXTS = {"one": ONE, "two": TWO}
# a guard against hanging, never a measurement
HANG = 60.0


class Told:
    """What a source has told so far; it can be waited for."""

    def __init__(self) -> None:
        self.all: list[Desired] = []
        self._news = asyncio.Event()

    def take(self, desired: Desired) -> None:
        self.all.append(desired)
        self._news.set()

    async def becomes(self, check: Callable[[Desired], bool]) -> Desired:
        """Wait until what was told last passes the check. Returns it."""
        try:
            async with asyncio.timeout(HANG):
                while not (self.all and check(self.all[-1])):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"not within {HANG:g} s; told last: {self.all[-1:]}") from None
        return self.all[-1]


@asynccontextmanager
async def followed(kubeconfig: Path, **options: str) -> AsyncIterator[Told]:
    """A source on the API server."""
    client, told = await connect(str(kubeconfig)), Told()
    source = ClusterSource(client, NODE, first_pause=0.1, longest_pause=0.5, **options)  # type: ignore[arg-type]
    task = asyncio.create_task(source.follow(told.take))
    try:
        yield told
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


@pytest.fixture
def plugin(fleet: Fleet) -> Path:
    """A kubeconfig with a token of the plugins' ServiceAccount: exactly its rights."""
    return fleet.cluster.kubeconfig_for("gpu-sharing-device-plugin", names.NAMESPACE)


def put_record(fleet: Fleet, *keys: str, config: str = "") -> None:
    """Write the node's record as the controller does; without keys there is none."""
    if not keys:
        if fleet.record(NODE):
            fleet.api.delete(RECORDS, record_name(NODE))
        return
    uid = fleet.api.get(NODES, NODE)["metadata"]["uid"]
    record = Record(NODE, uid, "pack", "p-1", config or keys[0], data={key: TEXTS[key] for key in keys})
    fleet.api.apply(RECORDS, record_object(record, names.NAMESPACE), field_manager=names.FIELD_MANAGER, force=True)


# --- every order of label and record (F20)

STATES = [(label, keys) for label in ("", "one") for keys in ((), ("one",), ("two",))]


def fits(label: str, keys: tuple[str, ...], desired: Desired) -> bool:
    """Whether what is told is right for a label and the keys of the record."""
    if (desired.name, bool(desired.node_uid)) != (label, True):
        return False
    found = label in keys
    return desired.text == (TEXTS[label] if found else None) and bool(desired.missing) == (label != "" and not found)


async def bring_about(fleet: Fleet, told: Told, label: str, keys: tuple[str, ...], *, label_first: bool) -> None:
    """Set label and record, one after the other, and wait until that is told."""
    if label_first:
        fleet.set_config_label(NODE, label or None)
    put_record(fleet, *keys)
    if not label_first:
        fleet.set_config_label(NODE, label or None)
    await told.becomes(lambda desired: fits(label, keys, desired))


@pytest.mark.fault("F20")
async def test_label_and_record_come_go_and_change_in_every_order(fleet: Fleet, plugin: Path) -> None:
    fleet.node(NODE)
    order = random.Random(20)
    steps = list(itertools.permutations(STATES, 2))
    order.shuffle(steps)
    async with followed(plugin) as told:
        for state in itertools.chain.from_iterable(steps):
            await bring_about(fleet, told, *state, label_first=order.random() < 0.5)
    assert {desired.rendered for desired in told.all if desired.text} == {True}
    assert {desired.policy for desired in told.all if desired.text} == {"pack"}
    assert {desired.missing for desired in told.all if desired.missing} == {
        f"ConfigMap {names.NAMESPACE}/gpusharing-{NODE} is not there",
        f"ConfigMap {names.NAMESPACE}/gpusharing-{NODE} has no key one",
    }


async def flip_the_label(kubeconfig: Path, *, times: int) -> None:
    """Set the label to one and the other in turn, two writers at once."""
    client, flips = await connect(str(kubeconfig)), iter(range(times))

    async def writer() -> None:
        for flip in flips:
            labels = {names.CONFIG_LABEL: "two" if flip % 2 else "one"}
            await client.merge(f"{NODES}/{NODE}", {"metadata": {"labels": labels}})

    try:
        await asyncio.gather(writer(), writer())
    finally:
        await client.close()


@pytest.mark.fault("F21")
async def test_200_flips_of_the_label_end_in_the_last(fleet: Fleet, plugin: Path) -> None:
    fleet.node(NODE)
    put_record(fleet, "one", "two")
    async with followed(plugin) as told:
        await flip_the_label(fleet.cluster.kubeconfig, times=200)
        fleet.set_config_label(NODE, "one")
        fleet.set_config_label(NODE, "two")
        await told.becomes(lambda desired: desired.name == "two")
        fleet.set_config_label(NODE, None)
        await told.becomes(lambda desired: desired.name == "")
    assert [desired.text for desired in told.all[-2:]] == [TWO, None]


@pytest.mark.fault("F36")
async def test_a_node_that_is_deleted_and_comes_back_is_another_one(fleet: Fleet, plugin: Path) -> None:
    first = fleet.node(NODE)["metadata"]["uid"]
    async with followed(plugin) as told:
        await told.becomes(lambda desired: desired.node_uid == first)
        fleet.api.delete(NODES, NODE)
        await told.becomes(lambda desired: desired.missing == f"Node {NODE} is not there")
        second = fleet.node(NODE)["metadata"]["uid"]
        await told.becomes(lambda desired: desired.node_uid == second)


# --- our controller


async def test_what_the_controller_assigns_is_told_as_rendered_and_with_its_policy(
    fleet: Fleet, account: Path, plugin: Path
) -> None:
    fleet.node(NODE)
    with Controller(account):
        async with followed(plugin) as told:
            await told.becomes(lambda desired: desired.name == "")
            for replicas in (4, 8):
                fleet.policy("pack") if replicas == 4 else fleet.edit("pack", sharing=sharing(8))
                config = await asyncio.to_thread(fleet.settles, "pack", [NODE])
                desired = await told.becomes(lambda desired: desired.name == config)  # noqa: B023
                assert (desired.rendered, desired.policy, desired.missing) == (True, "pack", "")
                assert desired.text is not None
                assert read_rendered(desired.text).digest()[:8] == config[-8:]
            fleet.drop("pack")
            bare = await told.becomes(lambda desired: desired.name == "")
            assert (bare.text, bare.missing) == (None, "")
    # the label moves once for each: nobody is told that something is missing in between
    assert [desired.missing for desired in told.all] == [""] * 4


# --- a hand-written ConfigMap


async def test_a_hand_written_configmap_is_told_as_such(fleet: Fleet) -> None:
    fleet.node(NODE, **{names.CONFIG_LABEL: "one"})
    api, configs = fleet.api, config_maps("default")
    async with followed(fleet.cluster.kubeconfig, config_map="default/configs") as told:
        await told.becomes(lambda desired: desired.missing == "ConfigMap default/configs is not there")
        try:
            api.create(configs, {"metadata": {"name": "configs"}, "data": {"one": ONE}})
            found = await told.becomes(lambda desired: desired.text == ONE)
            assert (found.rendered, found.policy) == (False, "")
            api.patch(configs, "configs", {"data": {"one": TWO}})
            await told.becomes(lambda desired: desired.text == TWO)
        finally:
            api.delete(configs, "configs")


async def test_a_configmap_that_the_account_may_not_read_is_said_with_the_servers_words(
    fleet: Fleet, plugin: Path
) -> None:
    fleet.node(NODE, **{names.CONFIG_LABEL: "one"})
    async with followed(plugin, config_map="default/configs") as told:
        refused = await told.becomes(lambda desired: "cannot be read" in desired.missing)
    assert refused.missing.startswith("ConfigMap default/configs cannot be read: list /api/v1/namespaces/default/")
    assert "403" in refused.missing


# --- an API server that is away (F29), and watches that break (F31)


@pytest.mark.fault("F29")
async def test_what_is_known_stands_while_the_server_is_away_and_what_changed_is_told_after(
    fleet: Fleet, plugin: Path, control_plane: ControlPlane
) -> None:
    fleet.node(NODE, **{names.CONFIG_LABEL: "one"})
    put_record(fleet, "one", "two")
    async with followed(plugin) as told:
        known = await told.becomes(lambda desired: desired.text == ONE)
        control_plane.stop_api()
        await asyncio.sleep(1)  # some attempts fail
        assert told.all[-1] == known
        await asyncio.to_thread(control_plane.start_api)
        fleet.set_config_label(NODE, "two")
        await told.becomes(lambda desired: desired.text == TWO)


@pytest.mark.fault("F29")
async def test_a_server_that_is_away_at_the_start_is_said_and_waited_for(
    fleet: Fleet, plugin: Path, control_plane: ControlPlane
) -> None:
    fleet.node(NODE)
    control_plane.stop_api()
    async with followed(plugin) as told:
        await told.becomes(lambda desired: desired.missing.startswith(f"Node {NODE} cannot be read: "))
        await asyncio.to_thread(control_plane.start_api)
        await told.becomes(lambda desired: desired.node_uid != "" and not desired.missing)


@pytest.mark.fault("F31")
@pytest.mark.parametrize("how", ["cut", "end", "expired"])
async def test_nothing_is_missed_over_a_watch_that_breaks(fleet: Fleet, how: str) -> None:
    fleet.node(NODE, **{names.CONFIG_LABEL: "one"})
    put_record(fleet, "one", "two")
    with FaultProxy(fleet.cluster) as proxy:
        kubeconfig = proxy.kubeconfig_for("gpu-sharing-device-plugin", names.NAMESPACE)
        async with followed(kubeconfig) as told:
            await told.becomes(lambda desired: desired.text == ONE)
            for text in (TWO, ONE, TWO):
                for watch in await both_watches(proxy):
                    {"cut": watch.cut, "end": watch.end, "expired": watch.send_error}[how]()
                fleet.set_config_label(NODE, "one" if text == ONE else "two")
                await told.becomes(lambda desired: desired.text == text)  # noqa: B023


async def both_watches(proxy: FaultProxy) -> list[OpenWatch]:
    """The watches of Node and ConfigMap, once both are open."""
    end = time.monotonic() + HANG
    while len(watches := proxy.watches()) != 2:
        assert time.monotonic() < end, watches
        await asyncio.sleep(0.02)
    return list(watches)
