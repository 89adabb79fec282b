"""`kubectl gpusharing fragmentation`, offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.builders import make_node, make_report
from tests.support.commands import run
from tests.support.controller import ROOT
from tests.support.scattered import save_reports, scattered
from tests.support.worlds import save

from gpusharing.api.fragmentation import FragmentationOverview
from gpusharing.cli.complete import complete

Capsys = pytest.CaptureFixture[str]
TABLE = """\
NODE    GPUS   FREE   POSSIBLE   FILLING
gpu-a   4      1      2          ▆▂▂·
gpu-b   2      -      -          ··

NODE    RESOURCE         FREE SHARES   LARGEST REQUEST
gpu-a   nvidia.com/gpu   11            4

gpu-a: GPU 1 can be freed.
The 2 pods on it fit on other GPUs in use: delete them together.
  kubectl delete pod --wait=false -n team-a web-0 web-1

Free whole GPUs: 1 of 6, possible: 2; not known on 1 of 2 nodes
"""


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A node with two pods that are in the way, and one whose plugin does not know."""
    return save_reports(
        tmp_path,
        make_report("gpu-b").gpus(2).object(),
        scattered("gpu-a", (3, 1, 1, 0), "team-a/web-0", "team-a/web-1"),
    )


def test_nodes_resources_and_restart_sets_are_shown(saved: str, capsys: Capsys) -> None:
    done = run(capsys, "fragmentation", "--from", saved)
    assert done.out == TABLE
    assert done.err.startswith("hint: only pods of a controller come back")
    assert done.code == 0


@pytest.mark.parametrize("words", [["node/gpu-a"], ["node", "gpu-a"]], ids=" ".join)
def test_one_node_is_shown_with_each_of_its_gpus(saved: str, words: list[str], capsys: Capsys) -> None:
    out = run(capsys, "fragmentation", *words, "--from", saved).out.splitlines()
    assert out[3:8] == [
        "GPU   FILLING   IN USE   HEALTHY",
        "0     ███░      3/4      yes",
        "1     █░░░      1/4      yes",
        "2     █░░░      1/4      yes",
        "3     ░░░░      0/4      yes",
    ]
    assert out[-1] == "Free whole GPUs: 1 of 4, possible: 2"


def test_wide_adds_model_and_uuids(saved: str, capsys: Capsys) -> None:
    out = run(capsys, "fragmentation", "node/gpu-a", "--from", saved, "-o", "wide").out.splitlines()
    assert out[1].endswith("A100-SXM4-80GB")
    assert out[4].endswith("GPU-gpu-a-0")


def test_a_node_without_a_report_is_an_error_with_the_nearest_names(saved: str, capsys: Capsys) -> None:
    done = run(capsys, "fragmentation", "node/gpu-c", "--from", saved)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == ['error: there is no node "gpu-c"', "hint: did you mean node/gpu-b or node/gpu-a?"]


def test_data_is_the_documented_model(saved: str, capsys: Capsys) -> None:
    data = json.loads(run(capsys, "fragmentation", "--from", saved, "-o", "json").out)
    assert FragmentationOverview.model_validate(data).to_wire() == data
    assert [node["node"] for node in data["nodes"]] == ["gpu-a", "gpu-b"]
    assert "fragmentation" not in data["nodes"][1]


def test_names_are_those_of_nodes_as_kubectl_takes_them(saved: str, capsys: Capsys) -> None:
    assert run(capsys, "fragmentation", "--from", saved, "-o", "name").out == "node/gpu-a\nnode/gpu-b\n"


def test_the_command_goes_to_the_cluster_that_was_asked(saved: str, capsys: Capsys) -> None:
    out = run(capsys, "fragmentation", "--from", saved, "--context", "my prod").out
    assert "  kubectl --context 'my prod' delete pod --wait=false -n team-a web-0 web-1\n" in out


def test_one_pod_alone_is_deleted_alone(tmp_path: Path, capsys: Capsys) -> None:
    file = save_reports(tmp_path, scattered("gpu-a", (3, 1, 1, 0), "team-a/web-0"))
    out = run(capsys, "fragmentation", "--from", file).out
    assert "The pod on it fits on another GPU in use: delete it.\n  kubectl delete pod" in out


def test_without_all_the_names_there_is_no_command_that_would_free_nothing(tmp_path: Path, capsys: Capsys) -> None:
    pods = [f"team-a/web-{at}" for at in range(10)]
    done = run(
        capsys,
        "fragmentation",
        "--from",
        save_reports(tmp_path, scattered("gpu-a", (8, 9, 0), *pods, shares=9, more=4)),
    )
    assert "The 14 pods on it fit" in done.out
    assert "  team-a/web-9\n  and 4 more, which the report does not name\n" in done.out
    assert "kubectl" not in done.out + done.err


def test_the_file_that_plan_takes_will_do(tmp_path: Path, capsys: Capsys) -> None:
    file = save(tmp_path, nodes=[make_node("gpu-a")], reports=[make_report("gpu-a")])
    assert run(capsys, "fragmentation", "--from", file).out.splitlines()[1].split() == ["gpu-a", "1", "-", "-", "·"]


def test_a_file_without_reports_says_how_to_save_them(tmp_path: Path, capsys: Capsys) -> None:
    done = run(capsys, "fragmentation", "--from", save(tmp_path, nodes=[make_node()]))
    assert done.code == 1
    assert done.err.splitlines()[1] == "hint: save them with: kubectl get gpunodes -o json"


def test_a_report_that_cannot_be_read_says_nothing_and_hides_no_other(tmp_path: Path, capsys: Capsys) -> None:
    bad = make_report("gpu-b").object()
    bad["status"] = {"fragmentation": {"freeWholeGpus": -1}}
    out = run(capsys, "fragmentation", "--from", save_reports(tmp_path, bad, scattered("gpu-a", (1,)))).out
    assert [line.split() for line in out.splitlines()[1:3]] == [["gpu-a", "1", "0", "2", "▂"], ["gpu-b", "0", *"---"]]


def test_where_there_are_no_blocks_it_is_told_in_ascii(saved: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from gpusharing.cli.app import main; main()", "fragmentation", "--from", saved],
        capture_output=True,
        timeout=60,
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator"), "PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout.decode("ascii").splitlines()[1].split() == ["gpu-a", "4", "1", "2", "622."]


def test_nodes_are_completed_from_saved_reports(saved: str) -> None:
    assert complete(["fragmentation", "--from", saved, ""]) == ["node/gpu-a", "node/gpu-b", ":4"]
