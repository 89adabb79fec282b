"""What is ours, what is somebody else's, and what happens where the two meet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.cluster.api import CRDS, NODES
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.fleet import RECORDS, Fleet, sharing
from tests.support.install import install, rules_are_out_of_force

from gpusharing.api import names


def test_a_label_set_by_hand_is_left_alone_and_reported(fleet: Fleet, account: Path) -> None:
    fleet.node("by-hand", **{names.CONFIG_LABEL: "my-config"})
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        fleet.settles("pack", ["gpu-a"])
        event = fleet.has_event("by-hand", "ManuallyConfigured")
    assert fleet.label("by-hand") == "my-config"
    assert fleet.record("by-hand") is None
    assert fleet.counts("pack")["skipped"] == 1
    assert "spec.adoptManual: true" in event["message"]


def test_every_node_set_by_hand_stalls_the_policy(fleet: Fleet, account: Path) -> None:
    fleet.node("by-hand", **{names.CONFIG_LABEL: "my-config"})
    fleet.policy("pack")
    with Controller(account):
        fleet.becomes("pack", "Stalled", "True", "AllNodesSkipped")
        fleet.becomes("pack", "Ready", "False", "AllNodesSkipped")


def test_an_adopted_label_is_recorded_and_put_back_when_the_policy_goes(fleet: Fleet, account: Path) -> None:
    fleet.node("by-hand", **{names.CONFIG_LABEL: "my-config"})
    with Controller(account):
        fleet.policy("pack", adoptManual=True)
        fleet.settles("pack", ["by-hand"])
        record = fleet.record("by-hand")
        fleet.drop("pack")

        def restored() -> None:
            assert fleet.label("by-hand") == "my-config"
            assert fleet.record("by-hand") is None

        eventually(restored, what="the former value is back")
    assert record is not None
    assert record["metadata"]["annotations"][names.PREVIOUS_LABEL_ANNOTATION] == "my-config"
    with Controller(account, resync="0.5s") as controller:  # and it is not taken for one of ours afterwards
        eventually(lambda: _two_resyncs(controller), what="two resyncs")
    assert fleet.label("by-hand") == "my-config"


def _two_resyncs(controller: Controller) -> None:
    assert len(controller.logged("resync")) >= 2


def test_a_skipped_node_is_left_exactly_as_it_is(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    with Controller(account):
        fleet.policy("pack")
        first = fleet.settles("pack", nodes)
        fleet.set_labels("gpu-a", **{names.SKIP_LABEL: "true"})
        fleet.edit("pack", sharing=sharing(8))
        second = fleet.settles("pack", ["gpu-b"])
        fleet.drop("pack")
        fleet.released(["gpu-b"])
    assert first != second
    assert fleet.label("gpu-a") == first
    assert fleet.record("gpu-a") is not None


@pytest.mark.fault("F37")
def test_the_label_removed_by_hand_comes_back_with_an_event(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
        fleet.set_config_label("gpu-a", None)
        _comes_back(fleet, "gpu-a", config)
        event = fleet.has_event("gpu-a", "DriftRepaired")
    assert config in event["message"]


@pytest.mark.fault("F37")
def test_the_label_changed_by_hand_comes_back_and_the_event_names_who_changed_it(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
        fleet.set_config_label("gpu-a", "something-else")
        _comes_back(fleet, "gpu-a", config)
        event = fleet.has_event("gpu-a", "DriftRepaired")
    assert "gpusharing-tests" in event["message"]


def _comes_back(fleet: Fleet, node: str, config: str) -> None:
    def check() -> None:
        assert fleet.label(node) == config

    eventually(check, what=f"{config} is back on {node}")


@pytest.mark.parametrize("harm", ["edited", "emptied", "deleted", "annotation"])
def test_a_record_harmed_by_hand_is_repaired_at_the_next_resync_with_an_event(
    fleet: Fleet, account: Path, harm: str
) -> None:
    fleet.node("gpu-a")
    with Controller(account, resync="0.5s"):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
        whole = fleet.record("gpu-a")
        assert whole is not None
        name = whole["metadata"]["name"]
        match harm:
            case "edited":
                fleet.api.patch(RECORDS, name, {"data": {config: "version: v1"}})
            case "emptied":
                fleet.api.patch(RECORDS, name, {"data": None})
            case "annotation":
                fleet.api.patch(RECORDS, name, {"metadata": {"annotations": {names.CONFIG_ANNOTATION: None}}})
            case _:
                fleet.api.delete(RECORDS, name)

        def repaired() -> None:
            record = fleet.record("gpu-a")
            assert record is not None
            assert record.get("data") == whole["data"]
            assert record["metadata"]["annotations"] == whole["metadata"]["annotations"]

        eventually(repaired, what="the record is whole again")
        fleet.has_event("gpu-a", "DriftRepaired")
    assert fleet.label("gpu-a") == config


def test_a_foreign_configmap_under_a_records_name_is_refused_never_forced(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpusharing-gpu-a"}, "data": {"a": "b"}}
    fleet.api.create(RECORDS, foreign)
    fleet.policy("pack")
    with Controller(account):
        fleet.becomes("pack", "Degraded", "True", "ForeignConfigMap")
    record = fleet.record("gpu-a")
    assert record is not None
    assert record["data"] == {"a": "b"}
    assert fleet.label("gpu-a") == ""


def test_a_manager_that_fights_back_is_named_and_answered_ever_more_slowly(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account) as controller:
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
        for _ in range(4):
            fleet.set_config_label("gpu-a", "mine")
            _comes_back(fleet, "gpu-a", config)
        contested = fleet.becomes("pack", "Degraded", "True", "LabelContested")
        fleet.has_event("gpu-a", "LabelContested")
        repairs = controller.logged("node written", change="repair")
    assert "gpusharing-tests" in contested["message"]
    assert len(repairs) == 4  # one for each foreign write: no hot loop


def test_a_dry_run_policy_plans_in_its_status_and_touches_nothing(fleet: Fleet, account: Path) -> None:
    fleet.nodes("gpu-a", "gpu-b")
    fleet.policy("try", mode="dry-run")
    with Controller(account):
        fleet.becomes("try", "Ready", "True", "DryRun")
        plan = fleet.status("try")["plan"]
    assert fleet.labels() == {"gpu-a": "", "gpu-b": ""}
    assert fleet.records() == []
    assert (plan["add"], plan["change"], plan["release"]) == (2, 0, 0)
    assert [sample["node"] for sample in plan["sample"]] == ["gpu-a", "gpu-b"]


def test_nodes_of_a_policy_that_turns_dry_run_stay_as_they_are(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        config = fleet.settles("pack", nodes)
        fleet.edit("pack", mode="dry-run", sharing=sharing(8))
        fleet.becomes("pack", "Ready", "True", "DryRun")
        plan = fleet.status("pack")["plan"]
        fleet.policy("other", priority=1000, sharing=sharing(2))
        stalled = fleet.becomes("other", "Stalled", "True", "AllNodesSkipped")
    assert "gpu-a (kept as it is by pack)" in stalled["message"]
    assert fleet.label("gpu-a") == config
    assert plan["sample"][0]["from"] == config
    assert "-8x-" in plan["sample"][0]["to"]


@pytest.mark.fault("F40")
def test_the_older_of_two_equal_policies_owns_the_node(fleet: Fleet, account: Path) -> None:
    fleet.nodes("gpu-a", "gpu-b")
    older = fleet.policy("z-older")
    eventually(lambda: _second_passed(fleet, older), what="another second of creation time")
    fleet.policy("a-younger", sharing=sharing(8))
    with Controller(account):
        fleet.settles("z-older", ["gpu-a", "gpu-b"])
        lost = fleet.becomes("a-younger", "Conflicted", "True", "ConflictingPolicies")
        fleet.becomes("a-younger", "Stalled", "True", "ConflictingPolicies")
    assert "gpu-a (owned by z-older)" in lost["message"]
    assert fleet.counts("a-younger")["conflicting"] == 2


def _second_passed(fleet: Fleet, older: dict[str, object]) -> None:
    """Creation times have whole seconds: wait until the server's clock shows another one."""
    probe = fleet.policy("probe")
    fleet.drop("probe")
    assert probe["metadata"]["creationTimestamp"] != older["metadata"]["creationTimestamp"]  # type: ignore[index]


def test_equal_policies_that_want_the_same_config_do_not_conflict(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    fleet.policy("first")
    fleet.policy("second")
    with Controller(account):
        fleet.settles("first", ["gpu-a"])
        fleet.becomes("second", "Ready", "True", "Superseded")
    assert "Conflicted" not in fleet.conditions("second")


@pytest.mark.fault("X05")
def test_an_invalid_policy_that_bypassed_the_schema_stalls_and_its_nodes_stay(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
        with without_cel(fleet):
            fleet.edit("pack", sharing=sharing(1))
            stalled = fleet.becomes("pack", "Stalled", "True", "InvalidSpec")
    assert "1: replicas must be from 2 to 2048" in stalled["message"]
    assert fleet.label("gpu-a") == config


@contextmanager
def without_cel(fleet: Fleet) -> Iterator[None]:
    """The policies' CRD as an older release had it: without a rule."""

    def strip(schema: object) -> object:
        if isinstance(schema, dict):
            return {key: strip(value) for key, value in schema.items() if key != "x-kubernetes-validations"}
        return [strip(value) for value in schema] if isinstance(schema, list) else schema

    crd = fleet.api.get(CRDS, names.POLICIES_CRD)
    fleet.api.replace(CRDS, {**crd, "spec": strip(crd["spec"])})
    try:
        rules_are_out_of_force(fleet.api)
        yield
    finally:
        install(fleet.cluster, again=True)


def test_a_label_owned_by_another_manager_too_survives_our_release(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "gpu-a", "labels": {names.CONFIG_LABEL: config}},
        }
        fleet.api.apply(NODES, body, field_manager="argocd")
        fleet.drop("pack")

        def record_gone() -> None:
            assert fleet.record("gpu-a") is None

        eventually(record_gone, what="the node is released")
    assert fleet.label("gpu-a") == config
    assert "argocd" in fleet.managers("gpu-a")
