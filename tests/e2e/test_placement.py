"""GpuPlacement on a real node: each service has the planned GPUs and no other, as its containers tell."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster.api import ApiStatusError, Object, placements, pods
from tests.support.cluster.node import GPU
from tests.support.eventually import eventually
from tests.support.gpunode import GPUS, GpuNode, gpu_uuid
from tests.support.pods import Pod, pod_object

from gpusharing.core.devices import base_of

SHARES = 4
PLACEMENTS = placements("default")
NAMESPACES = "/api/v1/namespaces"
THREE = [
    {"name": "judge", "gpus": 1},
    {"name": "policy", "parallelism": {"tensor": 2}},
    {"name": "embed", "shareWith": "judge"},
]


def _resource(service: str, placement: str = "rl-eval") -> str:
    return f"place.gpusharing.io/{service}.{placement}.default"


def _place(node: GpuNode, *services: Object, name: str = "rl-eval") -> None:
    """Apply a placement on one node; does not wait."""
    body = {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuPlacement",
        "metadata": {"name": name},
        "spec": {"pools": [{"name": "gpu"}], "services": list(services)},
    }
    node.api.apply(PLACEMENTS, body, field_manager="e2e", force=True)


def _status(node: GpuNode, name: str = "rl-eval") -> Object:
    status: Object = node.api.get(PLACEMENTS, name).get("status") or {}
    return status


def _says(node: GpuNode, status: str, reason: str, name: str = "rl-eval") -> Object:
    """Wait until the placement's present generation is Ready in this way. Returns the condition."""

    def check() -> Object:
        node.assert_alive()
        obj = node.api.get(PLACEMENTS, name)
        ready = {each["type"]: each for each in obj.get("status", {}).get("conditions", [])}.get("Ready", {})
        assert ready.get("observedGeneration") == obj["metadata"]["generation"], obj.get("status")
        assert (ready["status"], ready["reason"]) == (status, reason), (obj["status"], node.report())
        return ready

    return eventually(check, within=90, what=f"placement {name} is {status}, {reason}")


def _planned(node: GpuNode, service: str, name: str = "rl-eval") -> set[str]:
    """The GPUs that the stored plan gives to a service."""
    rows = {row["name"]: row for row in _status(node, name)["services"]}
    return {uuid for assignment in rows[service].get("assignments", []) for uuid in assignment["uuids"]}


def _ask(node: GpuNode, service: str, count: int) -> Pod:
    """A pod that asks for the GPUs of a service; does not wait."""
    return node.create(service, {_resource(service): count})


def _has(node: GpuNode, pod: Pod, gpus: set[str]) -> None:
    """What the container was told, which device nodes it sees, and what the kubelet says are these GPUs."""
    service = pod.name
    assert node.seen(pod) == gpus
    assert {path for path in pod.devices() if path[-1].isdigit()} == {f"/dev/nvidia{int(uuid[-12:])}" for uuid in gpus}
    assert all(pod.devices().values())
    assert set(node.taken(service, resource=_resource(service))) == gpus
    assert pod.env()["GPU_PLACEMENT_COUNT"] == str(len(gpus))


@pytest.fixture
def packed(gpu_node: GpuNode) -> Iterator[GpuNode]:
    """The node under a policy that packs shares and lets placements take GPUs; afterwards nothing is reserved."""
    yield from _allowing(gpu_node, "packed")


@pytest.fixture
def distributed(gpu_node: GpuNode) -> Iterator[GpuNode]:
    """The same, with shares that are spread over all GPUs."""
    yield from _allowing(gpu_node, "distributed")


def _allowing(node: GpuNode, policy: str) -> Iterator[GpuNode]:
    node.policy(SHARES, allocation={"policy": policy}, allowPlacements=True)
    node.offers(SHARES * GPUS)
    yield node
    node.repair()
    node.api.delete_collection(PLACEMENTS)
    node.offers(SHARES * GPUS)
    node.eventually(lambda: _nothing_reserved(node), "the plugin says that nothing is reserved any more")


def _nothing_reserved(node: GpuNode) -> None:
    assert not node.report().get("reservations")


def test_three_services_have_exactly_their_gpus_and_the_shared_resource_has_the_rest(packed: GpuNode) -> None:
    _place(packed, *THREE)
    early = _ask(packed, "policy", 2)  # before anything is reserved: it waits
    _says(packed, "True", "Active")

    counts = {"judge": 1, "policy": 2, "embed": 1}
    running = {"policy": early.runs()} | {name: _ask(packed, name, counts[name]).runs() for name in ("judge", "embed")}

    planned = {name: _planned(packed, name) for name in counts}
    assert {name: len(gpus) for name, gpus in planned.items()} == counts
    assert planned["embed"] == planned["judge"]
    assert not planned["judge"] & planned["policy"]
    [left] = {gpu_uuid(index) for index in range(GPUS)} - planned["judge"] - planned["policy"]
    for name, pod in running.items():
        _has(packed, pod, planned[name])
    packed.offers(SHARES)
    packed.applied()  # a policy is in force although GPUs are reserved

    greedy, modest = packed.create("greedy", {GPU: SHARES + 1}), packed.pod("modest", SHARES)
    assert packed.seen(modest) == {left}
    _cannot_be_scheduled(packed, greedy)


def _cannot_be_scheduled(node: GpuNode, pod: Pod) -> None:
    def check() -> None:
        conditions = {each["type"]: each for each in pod.object()["status"].get("conditions", [])}
        assert conditions.get("PodScheduled", {}).get("reason") == "Unschedulable", conditions

    node.eventually(check, f"{pod.name} is Pending for want of GPUs")
    assert pod.phase() == "Pending"


def test_pods_of_another_namespace_cannot_ask_for_the_name(packed: GpuNode) -> None:
    packed.api.apply(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}}, field_manager="e2e"
    )

    def refused() -> None:
        with pytest.raises(ApiStatusError) as refusal:
            packed.api.raw("POST", pods("team-b"), _core(pod_object("thief", {_resource("policy"): 2})), dryRun="All")
        assert "place.gpusharing.io" in str(refusal.value)
        assert refusal.value.status in {403, 422}

    packed.eventually(refused, "the rule is in force")


def _core(pod: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def test_a_plugin_that_dies_goes_on_with_a_reservation_and_a_deleted_one_waits_for_its_pods(packed: GpuNode) -> None:
    _place(packed, {"name": "policy", "gpus": 2})
    packed.eventually(lambda: _states(packed, {"Withdrawing"}), "the reservation is under way")
    packed.plugin.restart()
    _says(packed, "True", "Active")
    packed.plugin.kill()
    packed.eventually(lambda: _offered(packed, 0), "the kubelet has seen the plugin end")
    packed.plugin.start()
    packed.eventually(lambda: _offered(packed, 2), "the kubelet has the reserved GPUs again")
    shared, all_gpus = {base_of(share) for share in packed.healthy_ids()}, {gpu_uuid(index) for index in range(GPUS)}
    assert shared == all_gpus - _planned(packed, "policy")

    pod = _ask(packed, "policy", 2).runs()
    _has(packed, pod, _planned(packed, "policy"))
    held = packed.ids("policy", _resource("policy"))
    packed.api.raw("DELETE", f"{PLACEMENTS}/rl-eval")
    packed.eventually(lambda: _states(packed, {"Releasing"}), "the reservation is being released")
    packed.kubelet.restart()
    packed.becomes_ready()
    packed.holds("policy", held, _resource("policy"))
    assert pod.phase() == "Running"
    packed.offers(SHARES * (GPUS - 2))

    packed.drop_pods("policy")
    packed.offers(SHARES * GPUS)
    packed.offers(0, _resource("policy"))


def _states(node: GpuNode, expected: set[str]) -> None:
    rows: list[Any] = node.report().get("reservations", [])
    assert rows
    assert {row["state"] for row in rows} <= expected, rows


def _offered(node: GpuNode, count: int) -> None:
    assert len(node.healthy_ids(_resource("policy"))) == count


def test_packed_keeps_gpus_empty_so_that_a_placement_fits(packed: GpuNode) -> None:
    packed.hold({f"share-{number}": {GPU: 1} for number in range(4)})
    _place(packed, {"name": "policy", "gpus": 3})
    _says(packed, "True", "Active")
    assert not _planned(packed, "policy") & set(packed.taken(*(f"share-{number}" for number in range(4))))


def test_distributed_leaves_no_gpu_for_a_placement_and_it_says_so(distributed: GpuNode) -> None:
    distributed.hold({f"share-{number}": {GPU: 1} for number in range(4)})
    _place(distributed, {"name": "policy", "gpus": 3})

    def said() -> None:
        assert "0 free of 4 usable" in _says(distributed, "False", "Unplaceable")["message"]
        assert "4 replicas in use touch 4 GPUs; the packed policy would hold them on 1" in str(_status(distributed))

    distributed.eventually(said, "the placement says which policy would have left room")
