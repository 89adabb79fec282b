"""The node's report on a real API server, under the plugin's own rights and fences."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.support.cluster import ControlPlane
from tests.support.cluster.api import GPU_NODES, NODES, Object
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.hardware import gpu_uuid, make_config, make_hardware
from tests.support.plugintokens import token_of_node

from gpusharing.api import names
from gpusharing.core.fragmentation import Restart, fragmentation
from gpusharing.core.listing import Listing, advance
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.resources import resources_of
from gpusharing.deviceplugin.node_report import NodeReporter, ReportTimes
from gpusharing.kube import paths
from gpusharing.kube.client import Call, connect
from gpusharing.kube.objectwatch import watch_object

T = TypeVar("T")
QUICK = ReportTimes(spacing=0.1, occupancy=0.5, jitter=0.1, start=0.1, first_pause=0.1, longest_pause=0.5)
GPU = names.GPU_RESOURCE
HARDWARE = make_hardware(2).mig(1, "1g.10gb", "3g.40gb").build()
SERVED = make_config("packed-4x-12345678").mig("mixed").shared(4).build()
LISTING = advance(Listing(), resources_of(SERVED, HARDWARE), SERVED, sick={}, held={}, calls_open=frozenset(), now=0.0)
CONFIRMED = {name: frozenset(entries) for name, entries in LISTING.lists.items()}
WELL = Observed(
    inventory=HARDWARE,
    listing=LISTING,
    served=SERVED,
    desired=SERVED.name,
    last_good=SERVED.name,
    policy="pack",
    confirmed=CONFIRMED,
)


@asynccontextmanager
async def reporting(fleet: Fleet, calls: list[Call], node: str = "gpu-a") -> AsyncIterator[NodeReporter]:
    """The reporter of a node at work, with a token that names that node."""
    kubeconfig = await asyncio.to_thread(token_of_node, fleet, node)
    client = await connect(str(kubeconfig), on_call=calls.append)
    reporter = NodeReporter(client, node, times=QUICK)

    async def follow() -> None:
        async for seen in watch_object(client, paths.NODES, node, first_pause=0.1, longest_pause=0.5):
            reporter.see_node(seen)

    async def follow_gpu_node() -> None:
        async for found in watch_object(client, paths.GPU_NODES, node, first_pause=0.1, longest_pause=0.5):
            reporter.see_gpu_node(found)

    tasks = [asyncio.create_task(each) for each in (follow(), follow_gpu_node(), reporter.run())]
    try:
        yield reporter
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await client.close()


async def becomes(check: Callable[[], T], what: str) -> T:
    """Wait in a thread, so that the reporter goes on."""
    return await asyncio.to_thread(eventually, check, what=what)


def condition(fleet: Fleet, node: str = "gpu-a") -> Object:
    found = fleet.api.get(NODES, node)["status"].get("conditions", [])
    assert [said["type"] for said in found] == ["GpuSharingReady"], found
    return dict(found[0])


def served(fleet: Fleet, want: str) -> Object:
    assert "gpu-a" in [item["metadata"]["name"] for item in fleet.api.list(GPU_NODES)]
    report = fleet.report("gpu-a")
    assert report.get("config", {}).get("served") == want, report
    return report


def writes(calls: list[Call]) -> list[str]:
    return [call.path.rpartition("/v1")[2] for call in calls if call.verb == "apply" and call.code in {200, 201}]


async def test_the_report_is_the_nodes_own_and_complete_and_the_node_says_that_it_is_ready(fleet: Fleet) -> None:
    node, calls = fleet.node("gpu-a"), list[Call]()
    pods = (PodDevices("team-a", "web", "main", GPU, (f"{gpu_uuid(0)}::0",)),)
    async with reporting(fleet, calls) as reporter:
        found = fragmentation(LISTING, pods, HARDWARE)
        reporter.report(
            replace(WELL, pods=pods, fragmentation=replace(found, restart=Restart("GPU-x", ("team-a/web",))))
        )
        said = await becomes(lambda: condition(fleet), "the node is ready")
    assert (said["status"], said["reason"]) == ("True", "Serving")
    gpu_node = fleet.api.get(GPU_NODES, "gpu-a")
    [owner] = gpu_node["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
    status = gpu_node["status"]
    assert [(gpu["index"], gpu["migMode"]) for gpu in status["gpus"]] == [(0, False), (1, True)]
    assert status["config"]["served"] == SERVED.name
    assert {row["name"]: (row["devices"], row["advertised"], row["predicted"]) for row in status["resources"]} == {
        GPU: (4, 4, 4),
        "nvidia.com/mig-1g.10gb": (1, 1, 1),
        "nvidia.com/mig-3g.40gb": (1, 1, 1),
    }
    assert [(row["gpu"], row["shares"], row["inUse"]) for row in status["occupancy"]] == [
        (gpu_uuid(0), 4, 1),
        (gpu_uuid(1), 2, 0),
    ]
    assert status["fragmentation"] == {
        "freeWholeGpus": 1,
        "possibleWholeGpus": 1,
        "resources": [
            {"name": GPU, "freeShares": 3, "largestRequest": 3},
            {"name": "nvidia.com/mig-1g.10gb", "freeShares": 1, "largestRequest": 1},
            {"name": "nvidia.com/mig-3g.40gb", "freeShares": 1, "largestRequest": 1},
        ],
        "restart": {"gpu": "GPU-x", "pods": ["team-a/web"], "more": 0},
    }
    assert [(change["from"], change["to"], change["policy"]) for change in status["history"]] == [
        ("", SERVED.name, "pack")
    ]
    assert {entry["manager"] for entry in gpu_node["metadata"]["managedFields"]} == {names.PLUGIN}
    assert names.PLUGIN in fleet.managers("gpu-a")
    assert all(call.code in {0, 200, 201, 404} for call in calls)
    shown = fleet.cluster.kubectl("get", "gn", "gpu-a").stdout
    assert SERVED.name in shown


async def test_nothing_is_written_when_nothing_changed_not_even_after_a_restart(fleet: Fleet) -> None:
    fleet.node("gpu-a")
    first, second = list[Call](), list[Call]()
    async with reporting(fleet, first) as reporter:
        reporter.report(WELL)
        await becomes(lambda: condition(fleet), "the node is ready")
        before = fleet.api.get(GPU_NODES, "gpu-a")
        for _ in range(5):
            reporter.report(replace(WELL))
            await asyncio.sleep(0.2)  # more than the spacing: a write that is due would be made
    async with reporting(fleet, second) as restarted:
        restarted.report(WELL)
        await becomes(lambda: _is_true(any(call.verb == "get" for call in second)), "the report is read")
        await asyncio.sleep(0.5)
    assert len(writes(first)) == 3
    assert writes(second) == []
    assert fleet.api.get(GPU_NODES, "gpu-a") == before


@pytest.mark.fault("F18")
async def test_a_refused_config_shows_in_report_node_and_event_in_the_same_words(fleet: Fleet) -> None:
    fleet.node("gpu-a")
    async with reporting(fleet, []) as reporter:
        reporter.report(WELL)
        await becomes(lambda: condition(fleet), "the node is ready")
        refused = replace(WELL, desired="new", config_error="sharing: not a map\n\x1b[2J")
        reporter.report(refused)

        def is_refused() -> Object:
            said = condition(fleet)
            assert said["reason"] == "InvalidConfig", said
            return said

        said = await becomes(is_refused, "the node says why")
        event = await becomes(lambda: fleet.has_event("gpu-a", "InvalidConfig"), "an Event says why")
        reporter.report(replace(refused, overruled="nvidia.com/gpu: the kubelet gave a container B0"))
        ignored = await becomes(lambda: fleet.has_event("gpu-a", "PreferenceIgnored"), "advice was not taken")
    words = r"sharing: not a map \x1b[2J"
    assert (said["status"], said["message"]) == ("False", f"{words}; config '{SERVED.name}' stays served.")
    assert event["message"] == said["message"]
    assert event["source"] == {"component": names.PLUGIN}
    assert ignored["message"] == "nvidia.com/gpu: the kubelet gave a container B0"
    report = fleet.report("gpu-a")
    assert (report["config"]["desired"], report["config"]["served"]) == ("new", SERVED.name)
    assert report["config"]["error"] == words
    assert report["history"][-1]["result"] == "Refused"


@pytest.mark.fault("F36")
async def test_a_node_that_is_created_anew_gets_a_report_of_its_own(fleet: Fleet) -> None:
    fleet.node("gpu-a")
    async with reporting(fleet, []) as reporter:
        reporter.report(WELL)
        await becomes(lambda: condition(fleet), "the node is ready")
        fleet.api.delete(NODES, "gpu-a")
        anew = fleet.node("gpu-a")["metadata"]["uid"]
        # the token was bound to the old Node and died with it: as on a real node, the pod comes back with another
    async with reporting(fleet, []) as reporter:
        reporter.report(WELL)
        await becomes(lambda: condition(fleet), "the new node is ready")

        def is_owned() -> None:
            [owner] = fleet.api.get(GPU_NODES, "gpu-a")["metadata"]["ownerReferences"]
            assert owner["uid"] == anew

        await becomes(is_owned, "the report belongs to the new node")
    assert len(fleet.report("gpu-a")["history"]) == 1


@pytest.mark.fault("F53")
async def test_a_report_that_was_deleted_by_hand_is_there_again_with_its_history(fleet: Fleet) -> None:
    fleet.node("gpu-a")
    async with reporting(fleet, []) as reporter:
        reporter.report(WELL)
        await becomes(lambda: condition(fleet), "the node is ready")
        before = fleet.report("gpu-a")
        fleet.api.delete(GPU_NODES, "gpu-a")
        assert await becomes(lambda: served(fleet, SERVED.name), "the report is there again") == before


@pytest.mark.fault("F29")
async def test_an_api_server_that_was_away_is_told_the_state_of_now(control_plane: ControlPlane, fleet: Fleet) -> None:
    fleet.node("gpu-a")
    other = make_config("other").mig("mixed").shared(2).build()
    async with reporting(fleet, []) as reporter:
        reporter.report(WELL)
        await becomes(lambda: condition(fleet), "the node is ready")
        await asyncio.to_thread(control_plane.stop_api)
        reporter.report(replace(WELL, desired="passing", config_error="passing"))
        reporter.report(replace(WELL, served=other, desired=other.name))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(control_plane.start_api)
        report = await becomes(lambda: served(fleet, "other"), "the report is up to date")
    assert report["config"]["error"] == ""
    assert [change["to"] for change in report["history"]] == [SERVED.name, "other"]


@pytest.mark.fault("F51")
async def test_names_that_the_kubelet_keeps_are_reported_and_left_alone(fleet: Fleet) -> None:
    fleet.node("gpu-a")
    capacity = {"cpu": "8", GPU: "4", "nvidia.com/gpu.shared": "0", "nvidia.com/mig-1g.5gb": "0"}
    fleet.api.patch(NODES, "gpu-a", {"status": {"capacity": capacity}}, subresource="status")
    async with reporting(fleet, []) as reporter:
        reporter.report(WELL)
        report: Any = await becomes(lambda: served(fleet, SERVED.name), "the report is written")
    assert report["staleResources"] == ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"]
    assert fleet.api.get(NODES, "gpu-a")["status"]["capacity"] == capacity


def _is_true(value: bool) -> None:
    assert value
