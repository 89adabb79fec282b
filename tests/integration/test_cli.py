"""`kubectl gpusharing` on a real API server: what it says is what the controller does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import commands
from tests.support.cluster import Cluster
from tests.support.cluster.api import GPU_NODES, POLICIES, Api
from tests.support.commands import Done
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, policy_object, sharing
from tests.support.install import install
from tests.support.kubectlplugin import kubectl
from tests.support.plugin_double import PluginDouble
from tests.support.scattered import scattered

from gpusharing.api import names
from gpusharing.api.explanation import Explanation
from gpusharing.api.fragmentation import FragmentationOverview
from gpusharing.api.overview import StatusReport
from gpusharing.api.plan import PlanReport
from gpusharing.core.records import read_record

SAVE = ("get", "nodes,gsp,gpunodes,cm", "-n", names.NAMESPACE, "-o", "json")
Run = Callable[..., Done]


@pytest.fixture
def run(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `kubectl gpusharing` in this process against the cluster, as its administrator unless told otherwise."""

    def run(command: str, *arguments: str, kubeconfig: Path = fleet.cluster.kubeconfig) -> Done:
        return commands.run(capsys, command, "--kubeconfig", str(kubeconfig), *arguments)

    return run


def plan(run: Run, *arguments: str) -> PlanReport:
    """A plan of every node, read through its model."""
    done = run("plan", "--all", "-o", "json", *arguments)
    assert done.code in {0, 2}, done.err
    return PlanReport.model_validate_json(done.out)


def write(folder: Path, *policies: dict[str, Any]) -> str:
    file = folder / "policies.yaml"
    file.write_text(yaml.safe_dump_all(policies))
    return str(file)


def mixed_fleet(fleet: Fleet) -> list[str]:
    """Nodes of three models; one is to be left alone, one was configured by hand. Returns those that may be had."""
    a6000 = fleet.nodes("a6000-1", "a6000-2", kind="rtx-a6000")
    l40s = fleet.nodes("l40s-1", "l40s-2")
    fleet.node("off", **{names.SKIP_LABEL: "true"})
    fleet.node("byhand")
    fleet.set_config_label("byhand", "theirs")
    fleet.node("cpu", kind="", **{"kubernetes.io/os": "linux"})
    return [*a6000, *l40s]


def cluster_agrees(fleet: Fleet, report: PlanReport) -> None:
    """Labels, records and reported devices are what the plan printed for after."""
    for planned in report.nodes:
        record = fleet.record(planned.node)
        assert fleet.label(planned.node) == planned.config.after, planned
        assert (read_record(record).policy if record else "") == planned.owner.after, planned
        if planned.change in {"add", "change", "release"}:
            rows = fleet.api.get(GPU_NODES, planned.node)["status"].get("resources", [])
            reported = {row["name"]: row["devices"] for row in rows}
            assert reported == {each.resource: each.after for each in planned.devices if each.after}, planned


def test_what_plan_prints_is_what_the_controller_then_writes(
    fleet: Fleet, account: Path, run: Run, tmp_path: Path
) -> None:
    free = mixed_fleet(fleet)
    product = fleet.api.get("/api/v1/nodes", "a6000-1")["metadata"]["labels"]["nvidia.com/gpu.product"]
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        fleet.policy("everywhere")
        fleet.settles("everywhere", free)
        fleet.becomes("everywhere", "Ready", "True", "Applied")
        file = write(
            tmp_path,
            policy_object("everywhere", sharing=sharing(8)),
            policy_object(
                "a6000",
                priority=10,
                nodeSelector={"matchLabels": {"nvidia.com/gpu.product": product}},
                allocation={"policy": "packed"},
                sharing={**sharing(6), "renameByDefault": True},
            ),
        )
        report = plan(run, "-f", file)
        changes = {node.node: node.change for node in report.nodes}
        assert changes == {
            **dict.fromkeys(free, "change"),
            "off": "skipped",
            "byhand": "manual",
        }
        assert {node.owner.after for node in report.nodes if node.node.startswith("a6000")} == {"a6000"}
        fleet.cluster.kubectl("apply", "-f", file)
        eventually(lambda: cluster_agrees(fleet, report), what="the cluster is as planned")
        done = run("plan", "-f", file)
        assert (done.code, done.out.splitlines()[-1]) == (
            0,
            "0 to add, 0 to change, 0 to release, 4 unchanged, 2 skipped",
        )

        report = plan(run, "--delete", "a6000", "--delete", "everywhere")
        assert [node.change for node in report.nodes if node.node in free] == ["release"] * 4
        fleet.cluster.kubectl("delete", "gsp", "a6000", "everywhere")
        eventually(lambda: cluster_agrees(fleet, report), what="the cluster is as planned")


def test_a_saved_cluster_is_planned_explained_and_shown_as_the_cluster_itself(
    fleet: Fleet, account: Path, run: Run, tmp_path: Path
) -> None:
    free = mixed_fleet(fleet)
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        fleet.policy("everywhere")
        fleet.settles("everywhere", free)
        fleet.becomes("everywhere", "Ready", "True", "Applied")
    saved = tmp_path / "saved.json"
    saved.write_text(fleet.cluster.kubectl(*SAVE).stdout)
    file = write(tmp_path, policy_object("everywhere", sharing=sharing(8)), policy_object("new", mode="dry-run"))
    for command in (
        ["plan", "-f", file, "--all"],
        ["plan", "--delete", "everywhere", "--all", "-o", "json"],
        ["explain", "node/byhand", "-o", "yaml"],
        ["status", "--nodes", "-o", "json"],
    ):
        online, offline = run(*command), run(*command, "--from", str(saved), "--kubeconfig", "/nowhere")
        assert offline.out == online.out, command
        assert (offline.code, offline.err) == (online.code, online.err), command
        assert online.out, online.err
    piped = kubectl("gpusharing", "explain", "node/l40s-1", "--from", "-", stdin=saved.read_text())
    assert (piped.returncode, piped.stdout) == (0, run("explain", "node/l40s-1").out)


def test_without_configmaps_a_saved_label_is_nobodys(fleet: Fleet, account: Path, run: Run, tmp_path: Path) -> None:
    fleet.nodes("l40s-1", "l40s-2")
    with Controller(account):
        fleet.policy("everywhere")
        fleet.settles("everywhere", ["l40s-1", "l40s-2"])
    saved = tmp_path / "saved.json"
    saved.write_text(fleet.cluster.kubectl("get", "nodes,gsp", "-o", "json").stdout)
    report = plan(run, "-f", write(tmp_path, policy_object("everywhere", sharing=sharing(8))), "--from", str(saved))
    assert {node.change for node in report.nodes} == {"manual?"}


def test_layout_shared_is_known_by_its_records_and_planned_as_such(fleet: Fleet, run: Run, tmp_path: Path) -> None:
    fleet.nodes("l40s-1", "l40s-2")
    file = write(tmp_path, policy_object("pack", sharing=sharing(8)))
    # as administrator: which rights layout shared needs is a test of its own
    with Controller(fleet.cluster.kubeconfig, layout="shared", shared_sync_delay="0.5s", shared_debounce="0.1s"):
        fleet.policy("pack")
        fleet.settles("pack", ["l40s-1", "l40s-2"])
        assert StatusReport.model_validate_json(run("status", "-o", "json").out).layout == "shared"
        report = plan(run, "-f", file)
        assert {node.change for node in report.nodes} == {"change"}
        fleet.cluster.kubectl("apply", "-f", file)
        fleet.settles("pack", ["l40s-1", "l40s-2"])
    assert {fleet.label(name) for name in ("l40s-1", "l40s-2")} == {node.config.after for node in report.nodes}


def test_plan_before_anything_is_installed_says_what_to_install(fleet: Fleet, run: Run, tmp_path: Path) -> None:
    fleet.cluster.kubectl("delete", "crd", "gpusharingpolicies.gpusharing.io", "gpunodes.gpusharing.io")
    try:
        for command in (["status"], ["explain", "node/x"], ["plan", "-f", write(tmp_path, policy_object("p"))]):
            done = run(*command)
            assert "the CRDs are not installed" in done.err
            assert "hint: install everything with: kubectl apply -k config/default" in done.err
            assert (done.code, done.out) == (1, "")
    finally:
        install(fleet.cluster, again=True)


def test_explain_names_the_term_that_fails_and_the_rule_that_decides(fleet: Fleet, run: Run) -> None:
    fleet.node("l40s-1", team="red")
    fleet.policy("blue", nodeSelector={"matchLabels": {"team": "blue"}}, priority=50)
    fleet.policy("low")
    fleet.policy("high", priority=10)
    done = run("explain", "node/l40s-1")
    assert "high   (highest priority: 10 before 0 of low)" in done.out
    assert "does not match: team in (blue) (the node has red)" in done.out
    it = Explanation.model_validate_json(run("explain", "node", "l40s-1", "-o", "json").out)
    assert [policy.policy for policy in it.considered] == ["blue", "high", "low"]
    assert (it.owner, it.state) == ("high", "Pending")


def test_status_follows_the_controller_from_pending_to_applied(fleet: Fleet, account: Path, run: Run) -> None:
    fleet.nodes("l40s-1", "l40s-2")
    fleet.policy("pack")
    before = StatusReport.model_validate_json(run("status", "-o", "json").out)
    assert (before.states, before.policies[0].ready) == ({"Pending": 2}, "Unknown")
    assert "is it running?" in run("status").out
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig, short_of={"l40s-2": 3}):
        fleet.becomes("pack", "Ready", "False", "CapacityMismatch")
    after = StatusReport.model_validate_json(run("status", "-o", "json").out)
    assert after.states == {"Applied": 1, "CapacityMismatch": 1}
    assert (after.policies[0].ready, after.policies[0].reason) == ("False", "CapacityMismatch")
    assert [problem.reason for problem in after.problems] == ["CapacityMismatch"]
    assert after.policies[0].nodes.to_wire() == fleet.counts("pack")


def test_fragmentation_is_what_the_plugins_report(fleet: Fleet, run: Run) -> None:
    reported = scattered("gpu-a", (3, 1, 1, 0), "team-a/web-0")
    gpu_node = {**reported, "metadata": {"name": "gpu-a"}}
    status = gpu_node.pop("status")
    fleet.api.apply(GPU_NODES, gpu_node, field_manager="test")
    fleet.api.apply(GPU_NODES, {**gpu_node, "status": status}, field_manager="test", subresource="status")
    got = FragmentationOverview.model_validate_json(run("fragmentation", "-o", "json").out)
    assert (got.gpus, got.free_whole_gpus, got.possible_whole_gpus) == (4, 1, 2)
    assert got.nodes[0].command.endswith("delete pod --wait=false -n team-a web-0")
    assert str(fleet.cluster.kubeconfig) in got.nodes[0].command


def test_an_empty_cluster_is_no_error(fleet: Fleet, run: Run) -> None:
    done = run("status")
    assert (done.code, done.out) == (0, "0 GPU nodes, 0 GPUs\n")
    assert "hint: no policies yet" in done.err


def _reader(fleet: Fleet, *, configmaps: bool) -> Path:
    """A kubeconfig of an account that may list what the commands read, or all but ConfigMaps."""
    account = "reader" if configmaps else "half-a-reader"
    listed = ["nodes", "gpusharingpolicies", "gpunodes", *(["configmaps"] if configmaps else [])]
    role = {"apiGroups": ["", names.GROUP], "resources": listed, "verbs": ["list"]}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": account}}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": "default"}},
        {**kind, "kind": "ClusterRole", "rules": [role]},
        {
            **kind,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account},
            "subjects": [subject],
        },
    ]
    fleet.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    return fleet.cluster.kubeconfig_for(account, "default")


def test_the_right_to_list_is_enough(fleet: Fleet, run: Run, tmp_path: Path) -> None:
    fleet.node("l40s-1")
    reader = _reader(fleet, configmaps=True)
    policies = write(tmp_path, policy_object("p"))
    for command in (["status"], ["fragmentation"], ["explain", "node/l40s-1"], ["plan", "-f", policies]):
        done = run(*command, kubeconfig=reader)
        assert done.code in {0, 2}, done.err


def test_a_missing_right_is_named(fleet: Fleet, run: Run) -> None:
    done = run("status", kubeconfig=_reader(fleet, configmaps=False))
    error, hint = done.err.splitlines()
    assert error.startswith("error: this account lacks a right: configmaps is forbidden")
    assert hint.startswith("hint: reading needs `list` on nodes")
    assert (done.code, done.out) == (1, "")


def test_an_api_server_that_is_not_there_is_one_line_and_a_hint(fleet: Fleet, run: Run) -> None:
    nowhere = fleet.cluster.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE, server="https://127.0.0.1:1")
    done = run("status", kubeconfig=nowhere)
    error, hint = done.err.splitlines()
    assert error.startswith("error: the API server https://127.0.0.1:1 cannot be reached")
    assert "--from" in hint
    assert (done.code, done.out) == (1, "")


def test_a_kubeconfig_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = commands.run(capsys, "status", "--kubeconfig", str(tmp_path / "none"))
    assert f"the kubeconfig {tmp_path / 'none'} cannot be used" in done.err
    assert (done.code, len(done.err.splitlines())) == (1, 2)


def test_kubectl_finds_the_plugin_and_passes_everything_on() -> None:
    listed = kubectl("plugin", "list")
    assert "kubectl-gpusharing" in listed.stdout
    assert "warning" not in (listed.stdout + listed.stderr).lower()
    assert kubectl("gpusharing", "plan", "-h").stdout.startswith("Usage: kubectl gpusharing plan")
    assert kubectl("gpusharing", "plan", "--nonsense").returncode == 1
    assert kubectl("gpusharing", "status", "--nonsense").returncode == 2


def test_kubectl_completes_commands_and_names(cluster: Cluster, fleet: Fleet, api: Api) -> None:
    fleet.nodes("l40s-1", "l40s-2")
    api.create(POLICIES, policy_object("pack"))

    def complete(*words: str, kubeconfig: Path = cluster.kubeconfig) -> list[str]:
        done = kubectl("__complete", "gpusharing", *words, kubeconfig=kubeconfig)
        *lines, directive = done.stdout.splitlines()
        assert directive == ":4", done
        return [line.partition("\t")[0] for line in lines]

    assert complete("ex") == ["explain"]
    assert complete("explain", "node/") == ["node/l40s-1", "node/l40s-2"]
    assert complete("plan", "--delete", "") == ["pack"]
    nowhere = cluster.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE, server="https://127.0.0.1:1")
    assert complete("explain", "node/", kubeconfig=nowhere) == []


def test_data_is_on_stdout_alone(fleet: Fleet, run: Run) -> None:
    fleet.node("l40s-1")
    done = run("status", "-o", "json")
    assert json.loads(done.out)["gpuNodes"] == 1
