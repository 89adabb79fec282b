"""What commands print: columns, colours, data, and nothing that moves a terminal's cursor."""

import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.controller import ROOT

from gpusharing.cli.output import Column, print_data, print_fields, print_names, print_table, printable

COLUMNS = (Column("NAME"), Column("READY"), Column("CONFIG", wide=True))
ROWS = [("a", "True", "packed-1"), ("longer", "False", "x")]


def test_a_table_is_aligned_and_never_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS)
    assert capsys.readouterr().out == "NAME     READY\na        True\nlonger   False\n"
    print_table((Column("NAME"),), [("x" * 300,)])
    assert f"{'x' * 300}\n" in capsys.readouterr().out


def test_wide_shows_the_wide_columns_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS, wide=True)
    assert capsys.readouterr().out.splitlines()[0] == "NAME     READY   CONFIG"


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [])
    assert capsys.readouterr().out == "NAME   READY\n"


def test_json_and_yaml_keep_the_order_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    print_data({"b": 1, "a": [True]}, "json")
    print_data({"b": 1, "a": [True]}, "yaml")
    assert capsys.readouterr().out == '{\n  "b": 1,\n  "a": [\n    true\n  ]\n}\nb: 1\na:\n- true\n'


def test_names_are_what_kubectl_takes(capsys: pytest.CaptureFixture[str]) -> None:
    print_names("node", ["a", "b"])
    assert capsys.readouterr().out == "node/a\nnode/b\n"


def test_fields_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("Node", "a"), ("Policy", "b")])
    assert capsys.readouterr().out == "Node:     a\nPolicy:   b\n"


@pytest.mark.parametrize(
    ("text", "want"), [("ä 4×", "ä 4×"), ("a\x1b[2J", "a\\x1b[2J"), ("a\nb\tc", "a\\nb\\tc"), ("\x9b", "\\x9b")]
)
def test_what_could_move_the_cursor_is_escaped(text: str, want: str) -> None:
    assert printable(text) == want


@given(st.text(st.characters()))
def test_anything_is_printable_afterwards(text: str) -> None:
    assert printable(text).isprintable()


def on_a_terminal(**environment: str) -> str:
    """What `lint` prints on a terminal of its own about a file with one error."""
    reader, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", "from gpusharing.cli.app import main; main()", "lint", "-"],
        input=b"version: v2\n",
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator"), **environment},
    )
    os.close(terminal)
    printed = os.read(reader, 65536).decode()
    os.close(reader)
    assert done.returncode == 1
    return printed


def test_a_terminal_gets_colours_unless_it_wants_none() -> None:
    assert "\x1b[1;31m" in on_a_terminal(TERM="xterm-256color")
    for environment in ({"TERM": "xterm-256color", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        printed = on_a_terminal(**environment)
        assert "-:1: error: version: " in printed
        assert "\x1b" not in printed
