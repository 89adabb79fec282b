"""Placements in a cluster: from the API to what nodes are told, by the real process under its own rights."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster.api import CRDS, GPU_NODES, NODES, Api, Object, config_maps, events, placements
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.planning import pool, service
from tests.support.plugin_double import PluginDouble

from gpusharing.api import names
from gpusharing.api.placement import PlacementSpec
from gpusharing.core.placement.demand import demands
from gpusharing.core.placement.resourcenames import resource_name
from gpusharing.core.placement.stored import demand_hash

TEAM_A = placements("default")
RL_EVAL: Object = {
    "pools": [pool("auto", None, maxNodes=4)],
    "lead": "policy",
    "services": [service("judge", 1), service("policy", 2)],
}


def uuid(node: str, index: int) -> str:
    """The GPU at an index of a node, as the plugin double has it."""
    return f"GPU-{node}-{index}"


def resource(name: str, placement: str = "p") -> str:
    return resource_name("default", placement, name)


class Stage:
    """A fleet with placements, and what became of them."""

    def __init__(self, fleet: Fleet, plugins: PluginDouble) -> None:
        self.fleet = fleet
        self.api: Api = fleet.api
        self.plugins = plugins

    def node(self, name: str) -> None:
        """A ready node with four GPUs, none of them shared."""
        self.fleet.node(name, kind="gb200-clique")
        self.ready(name)

    def ready(self, name: str, status: str = "True") -> None:
        """What the node's kubelet says of itself."""
        since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "reason": "Said", "lastTransitionTime": since}
        self.api.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")

    def apply(self, name: str, spec: Object) -> Object:
        """Create a placement, or replace its spec."""
        kinds = {"apiVersion": names.API_VERSION, "kind": names.PLACEMENT_KIND, "metadata": {"name": name}}
        return self.api.apply(TEAM_A, {**kinds, "spec": spec}, field_manager="tester", force=True)

    def delete(self, name: str) -> None:
        self.api.delete(TEAM_A, name)

    def status(self, name: str = "p") -> Object:
        return self.api.get(TEAM_A, name).get("status") or {}

    def becomes(self, status: str, reason: str, name: str = "p", kind: str = "Ready") -> Object:
        """Wait for a condition at the present generation. Returns it."""

        def check() -> Object:
            obj = self.api.get(TEAM_A, name)
            found = {each["type"]: each for each in obj.get("status", {}).get("conditions", [])}.get(kind, {})
            assert (found.get("status"), found.get("reason")) == (status, reason), obj.get("status")
            assert found["observedGeneration"] == obj["metadata"]["generation"], obj
            return found

        return eventually(check, what=f"{kind} of {name} is {status}, {reason}")

    def places(self, name: str = "p") -> dict[str, str]:
        """Service → `node indexes`."""
        return {
            each["name"]: " | ".join(
                f"{place['nodeName']} {','.join(map(str, place['indexes']))}" for place in each["assignments"]
            )
            for each in self.status(name)["services"]
            if each.get("assignments")
        }

    def told(self, node: str) -> dict[str, list[str]] | None:
        """Resource → GPUs of the node's spec; None = it says nothing."""
        found = next((each for each in self.api.list(GPU_NODES) if each["metadata"]["name"] == node), {})
        wanted = (found.get("spec") or {}).get("reservations")
        return None if wanted is None else {each["resource"]: each["gpus"] for each in wanted}

    def is_told(self, node: str, wanted: dict[str, list[str]]) -> None:
        def check() -> None:
            assert self.told(node) == wanted

        eventually(check, what=f"{node} is told {wanted}")

    def reports(self, node: str, **states: str) -> None:
        """Wait until the node's plugin reports these services of placement p, in these states."""

        def check() -> None:
            entries = self.fleet.report(node).get("reservations", [])
            found = {entry["resource"]: entry["state"] for entry in entries}
            assert found == {resource(name): state for name, state in states.items()}, found

        eventually(check, what=f"{node} reports {states}")

    def events(self, reason: str) -> list[Object]:
        return [each for each in self.api.list(events("default")) if each["reason"] == reason]


@pytest.fixture
def stage(fleet: Fleet) -> Iterator[Stage]:
    """A node `a` of four GPUs on which placements may have GPUs, and ideal plugins."""
    with PluginDouble(fleet.cluster.kubeconfig) as plugins:
        stage = Stage(fleet, plugins)
        stage.node("a")
        fleet.policy("open", sharing=None, allowPlacements=True)
        yield stage


def test_a_placement_is_stored_told_reserved_edited_released_and_bound_again(stage: Stage, account: Path) -> None:
    """E01, E02's count, E11, E17: one life of a placement."""
    with Controller(account):
        stage.fleet.becomes("open", "Ready", "True", "Applied")
        stage.apply("p", RL_EVAL)
        stage.becomes("True", "Active")
        assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
        wanted = {resource("judge"): [uuid("a", 0)], resource("policy"): [uuid("a", 1), uuid("a", 2)]}
        assert stage.told("a") == wanted
        assert stage.events("Active")
        stage.fleet.becomes("open", "Ready", "True", "Applied")
        # a pod has them
        stage.plugins.plugin_of("a").held[resource("policy")] = {uuid("a", 1), uuid("a", 2)}

        def in_use() -> None:
            (place,) = stage.status()["services"][1]["assignments"]
            assert (place["inUse"], place.get("idleSince")) == (2, None)

        eventually(in_use, what="what pods hold is counted")
        # an edit that contradicts itself
        pins = [service("judge", visibleDevices="0,1"), service("policy", visibleDevices="1,2")]
        stage.apply("p", {"pools": [pool(1, None)], "services": pins})
        refused = stage.becomes("False", "Invalid")
        assert "services 'judge' and 'policy' both pin GPU 1 of pool 'gpu'" in refused["message"]
        assert stage.told("a") == wanted
        # gone while a pod runs, and created anew with the services in another order
        stage.delete("p")
        stage.is_told("a", {})
        stage.reports("a", policy="Releasing")
        stage.apply("p", {**RL_EVAL, "services": RL_EVAL["services"][::-1]})
        stage.becomes("True", "Active")
        assert stage.places() == {"policy": "a 1,2", "judge": "a 0"}


def test_what_goes_wrong_with_gpus_and_nodes(stage: Stage, account: Path) -> None:
    """E03, E09, E10, E15, E16."""
    a = stage.plugins.plugin_of("a")
    with Controller(account, node_lost_after="1s"):
        stage.fleet.becomes("open", "Ready", "True", "Applied")
        # the namespace may have less
        quota = "/api/v1/namespaces/default/resourcequotas"
        hard = {"hard": {"requests.nvidia.com/gpu": "2"}}
        stage.api.create(quota, {"metadata": {"name": "gpus"}, "spec": hard})
        try:
            stage.apply("p", RL_EVAL)
            said = stage.becomes("False", "QuotaExceeded")["message"]
            assert "namespace default may use 2 GPU(s), this placement needs 3 and others hold 0" in said
            assert stage.told("a") is None
        finally:
            stage.api.delete(quota, "gpus")
        # a pod takes a GPU in the moment in which it is to be reserved
        a.grabbed.add(uuid("a", 1))
        eventually(lambda: _has(stage.events("ReservationConflict")), what="the conflict is told")
        stage.becomes("True", "Active")
        assert stage.places() == {"judge": "a 0", "policy": "a 2,3"}
        # a GPU breaks
        stage.plugins.sick["a"] = {uuid("a", 0)}
        stage.becomes("True", "GpuUnhealthy", kind="Degraded")
        assert stage.places() == {"judge": "a 0", "policy": "a 2,3"}
        stage.plugins.sick.clear()
        stage.becomes("True", "Active")
        # a node is lost; another takes its place
        stage.node("b")
        stage.ready("a", "Unknown")
        stage.becomes("True", "Active")
        eventually(lambda: _equal(stage.places(), {"judge": "b 0", "policy": "b 1,2"}), what="it moves to b")
        stage.becomes("True", "Active")
        # no policy allows placements any more: what is reserved stays, nothing more is
        stage.ready("a")
        a.shared.clear()
        stage.fleet.edit("open", allowPlacements=False)
        stage.apply("q", {"pools": [pool(1, None)], "services": [service("x", 1)]})
        stage.becomes("False", "Unplaceable", name="q")
        stage.becomes("True", "Active")


def _has(found: list[Any]) -> None:
    assert found


def _equal(found: object, wanted: object) -> None:
    assert found == wanted


def test_only_an_empty_list_releases(stage: Stage, account: Path) -> None:
    """E13: a GpuNode that somebody deletes."""
    with Controller(account):
        stage.fleet.becomes("open", "Ready", "True", "Applied")
        stage.apply("p", RL_EVAL)
        stage.becomes("True", "Active")
        told = stage.told("a")
        stage.api.delete(GPU_NODES, "a")
        stage.is_told("a", told or {})
        stage.becomes("True", "Active")
        assert not [each for each in stage.fleet.report("a")["reservations"] if each["state"] != "Active"]


def test_what_a_controller_began_its_next_start_finishes(stage: Stage, account: Path) -> None:
    """E18: ended between the stored plan and the projection; and down while the placement is deleted."""
    with Controller(account):
        stage.fleet.becomes("open", "Ready", "True", "Applied")
    stage.apply("p", RL_EVAL)
    stage.api.patch(TEAM_A, "p", {"status": stored_plan()}, subresource="status")
    with Controller(account):
        stage.becomes("True", "Active")
        assert stage.places() == {"judge": "a 3", "policy": "a 1,2"}
    stage.delete("p")
    with Controller(account):
        stage.is_told("a", {})


def stored_plan() -> Object:
    """A plan as a controller that ended right afterwards has stored it; it would be another one today."""
    indexes = {"judge": [3], "policy": [1, 2]}
    return {
        "observedGeneration": 1,
        "services": [
            {
                "name": demand.name,
                "gpusNeeded": demand.gpus_needed,
                "demandHash": demand_hash(demand),
                "assignments": [
                    {
                        "slot": "gpu/0",
                        "nodeName": "a",
                        "indexes": indexes[demand.name],
                        "uuids": [uuid("a", index) for index in indexes[demand.name]],
                        "resource": resource(demand.name),
                        "count": demand.gpus_needed,
                    }
                ],
            }
            for demand in demands(PlacementSpec.model_validate(RL_EVAL))
        ],
    }


def test_without_the_kind_everything_else_goes_on_until_it_is_there(fleet: Fleet, account: Path) -> None:
    fleet.node("a")
    fleet.api.delete(CRDS, "gpuplacements.gpusharing.io")
    try:
        with Controller(account, resync="1s") as controller:
            fleet.policy("pack")
            fleet.settles("pack", ["a"])
            assert len(controller.logged("placements are not planned")) == 1
            fleet.cluster.kubectl("apply", "-k", "crds")
            assert controller.wait_end() == 0
    finally:
        fleet.cluster.kubectl("apply", "-k", "crds")


def test_reservations_outlive_a_kind_that_is_deleted_and_created_anew(stage: Stage, account: Path) -> None:
    """Deleting a CRD deletes its objects first; whoever deletes placements that way hardly means it.

    The process ends over a watch of a kind that is gone, and begins anew; so here are two.
    """
    with Controller(account) as controller:
        stage.fleet.becomes("open", "Ready", "True", "Applied")
        stage.apply("p", RL_EVAL)
        stage.becomes("True", "Active")
        told = stage.told("a")
        stage.api.delete(CRDS, "gpuplacements.gpusharing.io")
        try:
            eventually(lambda: _has(stage.events("ReleaseHeld")), what="it is told")
            controller.stop()
        finally:
            stage.fleet.cluster.kubectl("apply", "-k", "crds")
    with Controller(account):
        stage.apply("q", {"pools": [pool(1, None)], "services": [service("x", 1)]})
        stage.becomes("False", "Reserving", name="q")
        assert stage.told("a") == told
        stage.apply("p", {**RL_EVAL, "services": RL_EVAL["services"][::-1]})
        stage.becomes("True", "Active")
        assert stage.places() == {"policy": "a 1,2", "judge": "a 0"}
        stage.becomes("True", "Active", name="q")


def test_env_writes_config_maps_where_the_right_is_given(stage: Stage, account: Path) -> None:
    component = ["config/components/placement-env/role.yaml", "config/components/placement-env/fence.yaml"]
    files = [part for path in component for part in ("-f", path)]
    maps = config_maps("default")
    with Controller(account):
        stage.fleet.becomes("open", "Ready", "True", "Applied")
        stage.apply("p", {**RL_EVAL, "enforcement": "env"})
        assert "ConfigMap p.judge cannot be written" in stage.becomes("False", "WriteFailed")["message"]
        stage.fleet.cluster.kubectl("apply", *files)
        try:
            # a change of anything is a reason to look again
            stage.apply("q", {"pools": [pool(1, None)], "services": [service("x", 1)]})
            stage.becomes("True", "Active")
            policy = stage.api.get(maps, "p.policy")
            stage.apply("p", {**RL_EVAL, "enforcement": "env", "lead": "judge", "services": RL_EVAL["services"][:1]})
            stage.becomes("True", "Active")
            left = stage.api.get(maps, "p.policy")
        finally:
            stage.fleet.cluster.kubectl("delete", *files)
    assert stage.places("q") == {"x": "a 3"}
    assert policy["data"]["a"].splitlines()[:2] == ["CUDA_VISIBLE_DEVICES=1,2", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]
    assert policy["metadata"]["ownerReferences"][0]["name"] == "p"
    assert "data" not in left
    assert set(stage.told("a") or {}) == {resource("x", "q")}
