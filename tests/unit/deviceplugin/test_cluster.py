"""What the plugin hears of its `GpuNode` and of the resources that its Node shows. On a fake clock (looptime)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.support.watchedapi import ApiDouble

from gpusharing.core.errors import ApiError
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.reservations import Reservation, Wanted
from gpusharing.deviceplugin.cluster import Cluster, shown_resources
from gpusharing.deviceplugin.settings import Settings
from gpusharing.kube import paths
from gpusharing.observability.pluginmetrics import PluginMetrics

pytestmark = pytest.mark.looptime

POLICY = "place.gpusharing.io/policy.rl-eval.team-a"
ENTRY = {"resource": POLICY, "placement": "team-a/rl-eval", "service": "policy", "gpus": ["GPU-1"], "exclusive": True}


class PluginDouble:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []
        self.shown: list[Mapping[str, str]] = []

    def desire(self, desired: object) -> None:
        """Which config does not matter here."""

    def reserve(self, wanted: Wanted) -> None:
        self.wanted.append(wanted)

    def see_node(self, capacity: Mapping[str, str]) -> None:
        self.shown.append(capacity)


class Api(ApiDouble):
    def __init__(self) -> None:
        super().__init__()
        self.changed: list[str] = []

    async def change(self, path: str, steps: object, *, only_metadata: bool) -> None:
        self.changed.append(path)

    async def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def following(
    api: Api, observed: Observed | None = None, *, has_checkpoint: bool = False, **more: Any
) -> AsyncIterator[PluginDouble]:
    client: Any = api
    plugin: Any = PluginDouble()
    settings = Settings(node_name="gpu-a", report=False, **more)
    cluster = Cluster(settings, client, PluginMetrics(), has_checkpoint=has_checkpoint)
    if observed is not None:
        cluster.report(observed)
    task = asyncio.create_task(cluster.run(plugin))
    try:
        yield plugin
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def gpu_node(generation: int, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "gpu-a", "generation": generation}, "spec": spec}


async def test_the_plugin_hears_of_every_spec_and_that_there_is_none() -> None:
    async with following(api := Api()) as plugin:
        await asyncio.sleep(1)
        assert plugin.wanted == [Wanted()]
        api.put(paths.GPU_NODES, gpu_node(1))
        await asyncio.sleep(1)
        api.put(paths.GPU_NODES, gpu_node(2, reservations=[ENTRY]))
        await asyncio.sleep(1)
        api.put(paths.GPU_NODES, gpu_node(3, reservations=[]))
        await asyncio.sleep(1)
        api.put(paths.GPU_NODES, None)
        await asyncio.sleep(1)
        policy = Reservation(POLICY, POLICY, ("GPU-1",))
        assert plugin.wanted[1:] == [Wanted(1), Wanted(2, (policy,)), Wanted(3, ()), Wanted()]


async def test_while_the_api_is_away_nothing_is_said_and_a_kind_that_is_not_there_is_an_answer() -> None:
    api = Api()
    api.fail()
    async with following(api) as plugin:
        await asyncio.sleep(60)
        assert plugin.wanted == []
        api.heal()
        api.fail(ApiError("no such resource", status=404), collection=paths.GPU_NODES)
        await asyncio.sleep(60)
        assert set(plugin.wanted) == {Wanted()}


async def test_a_spec_that_cannot_be_read_says_nothing() -> None:
    api = Api()
    api.put(paths.GPU_NODES, gpu_node(2, reservations=[{**ENTRY, "gpus": "all"}]))
    async with following(api) as plugin:
        await asyncio.sleep(1)
        assert plugin.wanted == [Wanted()]


async def test_what_the_node_shows_is_told_at_each_change() -> None:
    async with following(api := Api()) as plugin:
        status = {"capacity": {POLICY: "2", "cpu": "8"}, "allocatable": {POLICY: "0"}}
        api.put(paths.NODES, {"metadata": {"name": "gpu-a", "uid": "u"}, "status": status})
        await asyncio.sleep(1)
        assert plugin.shown[-1] == {POLICY: "2", "cpu": "8"}


@pytest.mark.parametrize("on", [True, False])
async def test_a_name_without_devices_is_taken_from_the_node_only_where_a_setting_says_so(on: bool) -> None:
    api, status = Api(), {"capacity": {POLICY: "0"}, "allocatable": {POLICY: "0"}}
    api.put(paths.NODES, {"metadata": {"name": "gpu-a", "uid": "u"}, "status": status})
    async with following(api, Observed(), remove_stale_names=on):
        await asyncio.sleep(610)
        assert api.changed == ([f"{paths.NODES}/gpu-a/status"] if on else [])


@pytest.mark.parametrize(
    ("capacity", "allocatable", "shown"),
    [("0", "0", "0"), ("2", "0", "2"), ("0", "2", "2"), ("2", "1", "1")],
)
def test_a_resource_counts_as_0_only_where_neither_capacity_nor_allocatable_has_any(
    capacity: str, allocatable: str, shown: str
) -> None:
    node = {"status": {"capacity": {POLICY: capacity}, "allocatable": {POLICY: allocatable}}}
    assert shown_resources(node) == {POLICY: shown}
    assert shown_resources(None) == {}
