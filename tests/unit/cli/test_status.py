"""`kubectl gpusharing status`, offline."""

import json
from pathlib import Path

import pytest
from tests.support.builders import make_node, make_policy, make_report
from tests.support.commands import run
from tests.support.worlds import configured, save

from gpusharing.api.overview import StatusReport

PACK = make_policy("pack").sharing(4)
Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """Two nodes of one policy: one serves its config, one is to be left alone."""
    node, record, report = configured(make_node("gpu-a").gpus(2), PACK, make_report("gpu-a").gpus(2))
    nodes = [node, make_node("gpu-b").gpus(2).skipped()]
    return save(tmp_path, nodes=nodes, policies=[PACK], records=[record], reports=[report])


def test_policies_groups_problems_and_totals_are_shown(saved: str, capsys: Capsys) -> None:
    done = run(capsys, "status", "--from", saved)
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["POLICY", "ALLOCATION", "SHARING", "MIG", "NODES", "OWNED", "APPLIED", "READY", "REASON"]
    assert rows[1] == ["pack", "distributed", "4x", "time-slicing", "none", "2", "1", "1", "Unknown", "-"]
    assert rows[3] == ["MODEL", "OWNER", "STATE", "NODES", "GPUS"]
    assert rows[4:6] == [["A100-SXM4-80GB", "-", "Skipped", "1", "2"], ["A100-SXM4-80GB", "pack", "Applied", "1", "2"]]
    assert "pack: Skipped on 1 node: gpu-b (gpusharing.io/skip)" in done.out
    assert done.out.splitlines()[-1] == "2 GPU nodes, 4 GPUs: 1 Applied, 1 Skipped"
    assert (done.code, done.err) == (0, "")


def test_nodes_are_listed_on_request(saved: str, capsys: Capsys) -> None:
    assert "gpu-a " not in run(capsys, "status", "--from", saved).out
    listed = run(capsys, "status", "--from", saved, "--nodes").out
    assert f"gpu-a   A100-SXM4-80GB   pack    Applied   {PACK.rendered().name}" in listed


def test_wide_adds_priority_mode_and_config(saved: str, capsys: Capsys) -> None:
    rows = [line.split() for line in run(capsys, "status", "--from", saved, "-o", "wide").out.splitlines()]
    assert rows[0][-3:] == ["PRIORITY", "MODE", "CONFIG"]
    assert rows[1][-3:] == ["0", "enforce", PACK.rendered().name]


@pytest.mark.parametrize("more", [[], ["--nodes"]], ids=["groups", "nodes"])
def test_data_is_the_documented_model(saved: str, capsys: Capsys, more: list[str]) -> None:
    data = json.loads(run(capsys, "status", "--from", saved, "-o", "json", *more).out)
    report = StatusReport.model_validate(data)
    assert report.to_wire() == data
    assert (report.nodes is not None) == bool(more)


def test_names_are_those_of_policies_as_kubectl_takes_them(saved: str, capsys: Capsys) -> None:
    assert run(capsys, "status", "--from", saved, "-o", "name").out == "gpusharingpolicy.gpusharing.io/pack\n"


def test_without_policies_it_says_how_to_begin(tmp_path: Path, capsys: Capsys) -> None:
    done = run(capsys, "status", "--from", save(tmp_path, nodes=[make_node().gpus(1)]))
    assert done.out.splitlines()[-1] == "1 GPU node, 1 GPU: 1 Unclaimed"
    assert "hint: no policies yet" in done.err
    assert done.code == 0


def test_without_gpu_nodes_it_says_what_may_be_missing(tmp_path: Path, capsys: Capsys) -> None:
    cpu = make_node().without("nvidia.com/gpu.product")
    done = run(capsys, "status", "--from", save(tmp_path, nodes=[cpu], policies=[PACK]))
    assert done.out.splitlines()[-1] == "0 GPU nodes, 0 GPUs"
    assert "hint: no GPU nodes" in done.err


def test_what_many_policies_have_in_common_is_said_once(tmp_path: Path, capsys: Capsys) -> None:
    policies = [make_policy(name) for name in "abcde"]
    out = run(capsys, "status", "--from", save(tmp_path, nodes=[make_node()], policies=policies)).out
    assert out.count("is it running?") == 1
    assert "a, b, c and 2 more: the controller" in out
