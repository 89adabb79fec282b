"""`kubectl gpusharing prefer` as a user runs it."""

import json
from pathlib import Path

import pytest
from tests.support.commands import run

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
CASE = {
    "policy": "packed",
    "replicas": {"A": 4, "B": 4},
    "available": {"A": 3, "B": 1},
    "size": 2,
    "keepTogether": "preferred",
}
Capsys = pytest.CaptureFixture[str]


def _saved(folder: Path, *cases: dict[str, object]) -> str:
    file = folder / "requests.json"
    file.write_text(json.dumps({"cases": cases}))
    return str(file)


@pytest.mark.parametrize("name", ["greedy", "aligned"])
def test_the_recorded_decisions_check_out(capsys: Capsys, name: str) -> None:
    done = run(capsys, "prefer", str(VECTORS / f"{name}.json"), "--check")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["case"] for line in lines] == list(range(len(lines)))
    assert done.err == f"{len(lines)} cases, 0 different\n"
    assert done.code == 0


def test_one_line_of_json_for_each_case(capsys: Capsys, tmp_path: Path) -> None:
    done = run(capsys, "prefer", _saved(tmp_path, CASE, {**CASE, "size": 5}))
    assert done.out == (
        '{"case": 0, "counts": {"A": 2}}\n'
        '{"case": 1, "counts": {}, "error": "fewer are free than are asked for"}\n'
    )  # fmt: skip
    assert (done.err, done.code) == ("", 0)


def test_explain_adds_why(capsys: Capsys, tmp_path: Path) -> None:
    (line,) = run(capsys, "prefer", _saved(tmp_path, CASE), "--explain").out.splitlines()
    assert json.loads(line)["explain"][-2:] == ["only on GPU 0", "chosen: 2 on GPU 0"]


def test_a_difference_is_told_and_ends_with_1(capsys: Capsys, tmp_path: Path) -> None:
    file = _saved(tmp_path, {**CASE, "outcomes": [{"A": 2}]}, {**CASE, "outcomes": [{"A": 1, "B": 1}]})
    done = run(capsys, "prefer", file, "--check")
    assert done.err == "case 1: {'A': 2}, recorded are [{'A': 1, 'B': 1}]\n2 cases, 1 different\n"
    assert done.code == 1
    assert run(capsys, "prefer", file).code == 0


def test_what_is_no_file_of_requests_is_one_sentence_and_a_hint(capsys: Capsys, tmp_path: Path) -> None:
    done = run(capsys, "prefer", _saved(tmp_path, {**CASE, "size": "two"}))
    assert done.err.startswith("error: ")
    assert "cases[0].size" in done.err
    assert done.err.endswith("hint: docs/reference/cli.md, section prefer, has the format\n")
    assert (done.out, done.code) == ("", 1)


def test_what_never_ends_is_not_read_to_its_end(capsys: Capsys) -> None:
    done = run(capsys, "prefer", "/dev/zero")
    assert (done.code, "characters" in done.err) == (1, True)


def test_no_file_is_a_usage_error(capsys: Capsys) -> None:
    assert run(capsys, "prefer").code == 2
