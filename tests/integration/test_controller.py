"""From a policy to labels and records, by the real process under its own rights."""

from pathlib import Path

import pytest
from tests.support.cluster.api import NODES, POLICIES
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, sharing
from tests.support.plugin_double import PluginDouble

from gpusharing.api import names
from gpusharing.core.records import read_record


def test_a_policy_reaches_every_gpu_node_and_becomes_ready(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b", kind="rtx-a6000")
    fleet.node("cpu-only", kind="", **{"kubernetes.io/os": "linux"})
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        fleet.policy("pack")
        config = fleet.settles("pack", nodes)
        fleet.becomes("pack", "Ready", "True", "Applied")
        fleet.cluster.kubectl("wait", "--for=condition=Ready", "gsp/pack", "--timeout=30s")
    assert fleet.labels() == {"gpu-a": config, "gpu-b": config, "cpu-only": ""}
    assert fleet.counts("pack") == {
        "matched": 2,
        "owned": 2,
        "updated": 2,
        "applied": 2,
        "conflicting": 0,
        "skipped": 0,
        "failed": 0,
    }


@pytest.mark.fault("F39")
def test_nothing_but_our_label_is_written_on_a_node_and_nothing_of_kopf_anywhere(fleet: Fleet, account: Path) -> None:
    before = fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
    after, policy = fleet.api.get(NODES, "gpu-a"), fleet.api.get(POLICIES, "pack")
    assert after["metadata"]["labels"] == {**before["metadata"]["labels"], names.CONFIG_LABEL: config}
    for part in ("annotations", "finalizers", "ownerReferences"):
        assert after["metadata"].get(part) == before["metadata"].get(part)
        assert part not in policy["metadata"]
    assert after["spec"] == before["spec"]


def test_an_edit_is_a_new_name_and_the_record_keeps_the_config_before(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        first = fleet.settles("pack", ["gpu-a"])
        fleet.edit("pack", sharing=sharing(8))
        fleet.becomes("pack", "Ready", "Unknown", "AwaitingReport")
        second = fleet.settles("pack", ["gpu-a"])
    record = fleet.record("gpu-a")
    assert second != first
    assert record is not None
    assert set(record["data"]) == {first, second}


def test_a_resync_with_nothing_to_do_writes_nothing(fleet: Fleet, account: Path) -> None:
    fleet.nodes("gpu-a", "gpu-b")
    with Controller(account, resync="0.5s") as controller, PluginDouble(fleet.cluster.kubeconfig):
        fleet.policy("pack")
        fleet.becomes("pack", "Ready", "True", "Applied")
        versions = _versions(fleet)
        before = len(controller.logged("resync"))
        _resyncs(controller, before + 2)
    assert _versions(fleet) == versions


def _versions(fleet: Fleet) -> dict[str, str]:
    objects = [*fleet.api.list(NODES), *fleet.api.list(POLICIES)]
    objects += [record for node in ("gpu-a", "gpu-b") if (record := fleet.record(node))]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in objects}


def _resyncs(controller: Controller, count: int) -> None:

    def check() -> None:
        assert len(controller.logged("resync")) >= count

    eventually(check, what=f"{count} resyncs")


def test_a_deleted_policy_hands_its_nodes_to_the_next_match(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a")
    with Controller(account):
        fleet.policy("fallback", sharing=sharing(2))
        fleet.policy("pack", priority=10)
        fleet.settles("pack", nodes)
        fleet.becomes("fallback", "Ready", "True", "Superseded")
        fleet.drop("pack")
        fleet.settles("fallback", nodes)


def test_a_deleted_policy_without_a_next_match_leaves_nothing_behind(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    with Controller(account):
        fleet.policy("pack")
        fleet.settles("pack", nodes)
        fleet.drop("pack")
        fleet.released(nodes)
        event = fleet.has_event("gpu-a", "Released")
    assert "removed" in event["message"]


@pytest.mark.fault("F38")
def test_a_policy_deleted_while_the_controller_is_down_is_swept_at_start(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    with Controller(account):
        fleet.policy("pack")
        fleet.settles("pack", nodes)
    fleet.drop("pack")
    with Controller(account):
        fleet.released(nodes)


def test_a_policy_deleted_and_created_again_under_its_name_moves_no_label(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
    fleet.drop("pack")
    uid = fleet.policy("pack")["metadata"]["uid"]
    moved = fleet.api.get(NODES, "gpu-a")["metadata"]["resourceVersion"]
    with Controller(account):
        fleet.settles("pack", ["gpu-a"])
        record = fleet.record("gpu-a")
    assert record is not None
    assert read_record(record).policy_uid == uid
    assert fleet.label("gpu-a") == config
    assert fleet.api.get(NODES, "gpu-a")["metadata"]["resourceVersion"] == moved


@pytest.mark.fault("F36")
def test_a_node_created_again_under_its_name_gets_label_and_record_anew(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        fleet.settles("pack", ["gpu-a"])
        fleet.api.delete(NODES, "gpu-a")
        uid = fleet.node("gpu-a")["metadata"]["uid"]
        fleet.settles("pack", ["gpu-a"])

        def owned_by_the_new_one() -> None:
            record = fleet.record("gpu-a")
            assert record is not None
            assert read_record(record).node_uid == uid

        eventually(owned_by_the_new_one, what="the record is owned by the new node")


def test_the_record_of_a_deleted_node_goes(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account):
        fleet.policy("pack")
        fleet.settles("pack", ["gpu-a"])
        fleet.api.delete(NODES, "gpu-a")

        def gone() -> None:
            assert fleet.record("gpu-a") is None

        eventually(gone, what="the record is gone")
        fleet.becomes("pack", "Ready", "True", "NoMatchingNodes")


def test_a_node_named_with_253_characters_gets_a_record_of_a_cut_name(fleet: Fleet, account: Path) -> None:
    name = ".".join(["n" * 62] * 4)[:251] + ".z"
    fleet.node(name)
    with Controller(account):
        fleet.policy("pack")
        fleet.settles("pack", [name])
    assert len(name) == 253
    assert all(len(record) <= 253 for record in fleet.records())


def test_a_product_selector_survives_the_suffixes_that_sharing_adds(fleet: Fleet, account: Path) -> None:
    selector = {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-RTX-A6000"}}
    fleet.node("gpu-a", "rtx-a6000")
    with Controller(account):
        fleet.policy("pack", nodeSelector=selector)
        config = fleet.settles("pack", ["gpu-a"])
        fleet.set_labels("gpu-a", **{"nvidia.com/gpu.product": "NVIDIA-RTX-A6000-SHARED"})
        fleet.node("gpu-b", "rtx-a6000")
        fleet.settles("pack", ["gpu-b"])
    assert fleet.label("gpu-a") == config


@pytest.mark.fault("F55")
def test_no_matching_node_at_all_is_ready_and_a_node_that_comes_later_is_written(fleet: Fleet, account: Path) -> None:
    fleet.policy("pack")
    with Controller(account):
        fleet.becomes("pack", "Ready", "True", "NoMatchingNodes")
        fleet.node("gpu-a")
        fleet.settles("pack", ["gpu-a"])


def test_300_policies_that_match_one_node_have_one_owner(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    for number in range(300):
        fleet.policy(f"policy-{number:03}", priority=number, sharing=sharing(2 + number))
    with Controller(account):
        fleet.settles("policy-299", ["gpu-a"])
        fleet.becomes("policy-000", "Ready", "True", "Superseded")


def test_a_policy_edited_100_times_in_a_second_ends_at_the_last_edit(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        fleet.policy("pack")
        for replicas in range(2, 102):
            fleet.edit("pack", sharing=sharing(replicas))
        fleet.becomes("pack", "Ready", "True", "Applied")
        config = fleet.config("pack")
    assert "-101x-" in config
    assert fleet.label("gpu-a") == config
