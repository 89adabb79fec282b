"""Conditions and counts as reports come in; `Ready` and `Applied` say the truth."""

from pathlib import Path

from tests.support.cluster.api import GPU_NODES, POLICIES
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, sharing
from tests.support.plugin_double import PluginDouble


def test_a_policy_waits_for_the_report_of_every_node(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig, silent={"gpu-b"}) as plugins:
        fleet.policy("pack")
        fleet.settles("pack", nodes)
        waiting = fleet.becomes("pack", "Applied", "Unknown", "AwaitingReport")
        fleet.becomes("pack", "Reconciling", "True", "AwaitingReport")
        assert "gpu-b" in waiting["message"]
        plugins.silent.clear()
        fleet.becomes("pack", "Ready", "True", "Applied")
        assert "Reconciling" not in fleet.conditions("pack")


def test_a_refused_config_is_told_with_the_plugins_own_words(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    refusing = {"gpu-a": "the MIG device of GPU 0 is gone"}
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig, refusing=refusing):
        fleet.policy("pack")
        refused = fleet.becomes("pack", "Applied", "False", "ConfigRefused")
        fleet.becomes("pack", "Ready", "False", "ConfigRefused")
        fleet.becomes("pack", "Degraded", "True", "ConfigRefused")
        assert fleet.counts("pack")["failed"] == 1
    assert "the MIG device of GPU 0 is gone" in refused["message"]


def test_a_kubelet_that_confirms_too_few_devices_is_a_mismatch_with_both_numbers(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig, short_of={"gpu-a": 2}):
        fleet.policy("pack")
        mismatch = fleet.becomes("pack", "Applied", "False", "CapacityMismatch")
    assert "nvidia.com/gpu: 30 advertised, 32 predicted" in mismatch["message"]


def test_ready_once_reached_is_kept_until_a_new_generation(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig, silent={"gpu-b"}) as plugins:
        fleet.policy("pack")
        since = fleet.becomes("pack", "Ready", "True", "Applied")["lastTransitionTime"]
        fleet.node("gpu-b")
        fleet.settles("pack", ["gpu-a", "gpu-b"])
        fleet.becomes("pack", "Applied", "Unknown", "AwaitingReport")
        kept = fleet.conditions("pack")["Ready"]
        assert (kept["status"], kept["lastTransitionTime"]) == ("True", since)
        plugins.silent.add("gpu-a")
        fleet.edit("pack", sharing=sharing(8))
        fleet.becomes("pack", "Ready", "Unknown", "AwaitingReport")


def test_a_mig_resource_that_the_model_cannot_make_is_degraded(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    mig = {"strategy": "time-slicing", "resources": [{"name": "nvidia.com/mig-1g.10gb", "replicas": 2}]}
    fleet.policy("mig", migStrategy="mixed", sharing=mig)
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        degraded = fleet.becomes("mig", "Degraded", "True", "UnsupportedByNodes")
    assert "gpu-a (nvidia.com/mig-1g.10gb)" in degraded["message"]


def test_a_deleted_report_makes_its_node_wait_again(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig) as plugins:
        fleet.policy("pack")
        fleet.becomes("pack", "Ready", "True", "Applied")
        plugins.silent.add("gpu-a")
        fleet.api.delete(GPU_NODES, "gpu-a")
        fleet.becomes("pack", "Applied", "Unknown", "AwaitingReport")


def test_a_recreated_policy_never_gets_the_status_of_the_one_before(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        for replicas in (4, 8, 2, 16):
            fleet.policy("pack", sharing=sharing(replicas))
            fleet.becomes("pack", "Ready", "True", "Applied")
            assert f"-{replicas}x-" in fleet.config("pack")
            fleet.drop("pack")


def test_describe_shows_the_few_events_of_a_policy(fleet: Fleet, account: Path) -> None:
    fleet.nodes("gpu-a", "gpu-b", "gpu-c")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        fleet.policy("pack")
        fleet.becomes("pack", "Ready", "True", "Applied")

        def shown() -> str:
            text = fleet.cluster.kubectl("describe", "gsp", "pack").stdout
            assert "is written to 3 nodes" in text
            assert "3 of 3 nodes serve the config" in text
            return text

        eventually(shown, what="describe shows the Events")
        about_nodes = [event for node in ("gpu-a", "gpu-b", "gpu-c") for event in fleet.events(node, "Assigned")]
    assert about_nodes == []


def test_kubectl_get_shows_what_became_of_a_policy(fleet: Fleet, account: Path) -> None:
    fleet.nodes("gpu-a", "gpu-b")
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        fleet.policy("pack", allocation={"policy": "packed"})
        fleet.becomes("pack", "Ready", "True", "Applied")
        head, line = fleet.cluster.kubectl("get", "gsp").stdout.splitlines()
    assert head.split() == ["NAME", "ALLOCATION", "SHARING", "MIG", "NODES", "APPLIED", "READY", "STATUS", "AGE"]
    assert line.split()[:9] == ["pack", "packed", "4x", "time-slicing", "none", "2", "2", "True", "Applied"]


def test_the_probes_and_metrics_of_a_leader(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account) as controller:
        fleet.policy("pack")
        fleet.settles("pack", ["gpu-a"])
        assert controller.http("/livez") == (200, "ok\n")
        assert controller.http("/readyz") == (200, "ok\n")
        assert controller.metric("gpusharing_leader") == 1
        assert controller.metric('gpusharing_reconcile_total{kind="node",result="ok"}') >= 1
        assert "gpu-a" not in controller.http("/metrics")[1]
    assert fleet.api.get(POLICIES, "pack")["status"]["observedGeneration"] == 1
