"""What kubectl offers on the tab key: commands, flags, values, names; nothing when there is nothing to offer."""

from pathlib import Path

import pytest
from tests.support.builders import make_node, make_policy
from tests.support.worlds import save

from gpusharing.cli import commands
from gpusharing.cli.complete import complete


def candidates(*words: str) -> list[str]:
    """What is offered, without descriptions; the directive must say that nothing else is."""
    *lines, directive = complete(words)
    assert directive == ":4", lines
    return [line.partition("\t")[0] for line in lines]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return save(
        tmp_path,
        nodes=[make_node("gpu-a"), make_node("gpu-b"), make_node("cpu")],
        policies=[make_policy("pack"), make_policy("spread")],
    )


def test_every_command_is_offered_with_its_first_sentence() -> None:
    assert candidates("") == candidates() == [name for name, _ in commands.modules()]
    assert "plan\tShow what applying policies would do to every node." in complete([""])


def test_a_command_is_completed_by_its_beginning() -> None:
    assert candidates("pl") == ["place", "plan"]
    assert candidates("nothing-like-it") == []


@pytest.mark.parametrize("name", [name for name, _ in commands.modules()])
def test_every_flag_of_a_command_is_offered(name: str) -> None:
    offered = candidates(name, "--")
    forms = set() if name == "prefer" else {"--output"}  # prefer prints lines of JSON, and nothing else
    assert forms | {"--help", "--debug"} <= set(offered)
    assert offered == sorted(offered)


def test_flags_have_the_spellings_that_the_command_takes() -> None:
    assert {"--filename", "--delete", "--all", "--from", "--layout"} <= set(candidates("plan", "--"))
    assert {"-f", "-o", "-n"} <= set(candidates("plan", "-"))


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["plan", "-o", "j"], ["json"]),
        (["plan", "--output", ""], ["json", "name", "table", "wide", "yaml"]),
        (["plan", "--output=y"], ["--output=yaml"]),
        (["plan", "--all", "--layout", "s"], ["shared"]),
        (["plan", "--context", ""], []),
        (["place", "--from", ""], ["gym"]),
        (["place", "--workload", "d"], ["deployment"]),
    ],
    ids=" ".join,
)
def test_values_of_a_flag_are_offered_after_it(words: list[str], want: list[str]) -> None:
    assert candidates(*words) == want


@pytest.mark.parametrize(
    "words",
    [["plan", "-f", ""], ["plan", "-f", "x", "--from", "s"], ["place", "--out", ""]],
    ids=["-f", "--from", "--out"],
)
def test_for_files_the_shell_is_asked(words: list[str]) -> None:
    assert complete(words) == [":0"]


def test_nodes_are_offered_in_both_forms(saved: str) -> None:
    assert candidates("explain", "--from", saved, "node/g") == ["node/gpu-a", "node/gpu-b"]
    assert candidates("explain", "--from", saved, "node", "c") == ["cpu"]
    assert candidates("explain", f"--from={saved}", "") == ["node/cpu", "node/gpu-a", "node/gpu-b"]


def test_no_second_node_is_offered(saved: str) -> None:
    assert candidates("explain", "--from", saved, "node/gpu-a", "") == []
    assert candidates("explain", "--from", saved, "node", "gpu-a", "") == []


def test_policies_are_offered_for_deletion(saved: str) -> None:
    assert candidates("plan", "--from", saved, "--delete", "p") == ["pack"]
    assert candidates("plan", "--from", saved, "--delete=s") == ["--delete=spread"]


def test_behind_an_unknown_command_nothing_is_offered() -> None:
    assert candidates("nonsense", "") == []
