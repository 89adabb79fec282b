"""`kubectl gpusharing explain`, offline."""

import json
from pathlib import Path

import pytest
from tests.support.builders import ago, make_node, make_policy, make_report
from tests.support.commands import run
from tests.support.worlds import configured, save

from gpusharing.api.explanation import Explanation

PACK = make_policy("pack").priority(10).sharing(4)
Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A node that serves one of three policies."""
    node, record, report = configured(make_node("gpu-a").gpus(2), PACK, make_report("gpu-a").gpus(2))
    others = [make_policy("other").selecting({"team": "b"}), make_policy("rest").born(ago(hours=1))]
    return save(
        tmp_path, nodes=[node, make_node("gpu-b")], policies=[PACK, *others], records=[record], reports=[report]
    )


def test_it_says_who_owns_the_node_by_which_rule_and_which_term_failed(saved: str, capsys: Capsys) -> None:
    done = run(capsys, "explain", "node/gpu-a", "--from", saved)
    lines = done.out.splitlines()
    config = PACK.rendered().name
    assert lines[:5] == [
        "Node:     gpu-a   2 × A100-SXM4-80GB",
        "Owner:    pack   (highest priority: 10 before 0 of other)".replace("other", "rest"),
        "State:    Applied",
        f"Label:    {config}",
        f"Served:   {config}",
    ]
    assert "nvidia.com/gpu   8           8            0" in lines
    ranked = [line.split()[0] for line in lines if line.split()[2:3] == ["enforce"]]
    assert ranked == ["pack", "other", "rest"]
    assert "does not match: team in (b) (the node has no such label)" in done.out
    assert f"Config {config}:\n  version: v1\n" in done.out
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("words", [["node/gpu-a"], ["nodes/gpu-a"], ["node", "gpu-a"]], ids=" ".join)
def test_a_node_may_be_named_as_kubectl_takes_names(saved: str, capsys: Capsys, words: list[str]) -> None:
    done = run(capsys, "explain", *words, "--from", saved, "-o", "name")
    assert (done.out, done.code) == ("node/gpu-a\n", 0)


def test_data_is_the_documented_model(saved: str, capsys: Capsys) -> None:
    done = run(capsys, "explain", "node/gpu-a", "--from", saved, "-o", "json")
    data = json.loads(done.out)
    explanation = Explanation.model_validate(data)
    assert explanation.to_wire() == data
    assert (explanation.owner, explanation.state) == ("pack", "Applied")


def test_an_unknown_node_is_an_error_with_the_nearest_names(saved: str, capsys: Capsys) -> None:
    done = run(capsys, "explain", "node/gpu-c", "--from", saved)
    assert done.err == 'error: there is no node "gpu-c"\nhint: did you mean node/gpu-b or node/gpu-a?\n'
    assert (done.out, done.code) == ("", 1)


@pytest.mark.parametrize("words", [["gpu-a"], ["pod/x"], ["node/"], ["node/a", "b"], ["node", "a", "b"]], ids=" ".join)
def test_what_names_no_node_is_an_error_that_shows_how_to(saved: str, capsys: Capsys, words: list[str]) -> None:
    done = run(capsys, "explain", *words, "--from", saved)
    assert "hint: write node/NAME" in done.err
    assert done.code == 1
