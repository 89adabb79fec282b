"""`kubectl gpusharing lint` as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.commands import run
from tests.support.controller import ROOT

CONFIGS = Path(__file__).resolve().parents[2] / "vectors" / "configs"


def _path(name: str) -> str:
    return str(next(CONFIGS.glob(f"{name}-*")))


def test_errors_end_with_1_and_stand_with_file_line_config_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", _path("24"))
    assert done.code == 1
    assert f"{_path('24')}:" in done.out
    assert ": error: [config.yaml] sharing.timeSlicing.resources[0].replicas: 1, must be at least 2" in done.out
    assert "  hint: to not share it leave it out" in done.out
    assert done.err == "1 file: 1 error, 0 warnings, 1 hint\n"


def test_warnings_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", _path("22"))
    assert done.code == 0
    assert ": warning: " in done.out
    assert ": error: " not in done.out


def test_nothing_to_say_is_nothing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", _path("01"))
    assert (done.code, done.out) == (0, "")
    assert done.err == "1 file: 0 errors, 0 warnings, 0 hints\n"


def test_json_is_a_list_of_findings(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", "-o", "json", _path("24"), _path("01"))
    findings = json.loads(done.out)
    assert done.code == 1
    assert set(findings[0]) == {"file", "line", "config", "path", "severity", "message", "hint"}
    assert {finding["severity"] for finding in findings} == {"error", "hint"}


def test_a_file_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", "/no/such/file.yaml")
    assert done.code == 1
    assert done.err == "error: /no/such/file.yaml cannot be read: No such file or directory\n"


def test_no_file_at_all_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "lint").code == 2


def test_several_files_are_looked_at_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", _path("45"), _path("22"), _path("10"))
    named = [line.split(":")[0] for line in done.out.splitlines() if not line.startswith("  hint: ")]
    assert named == [_path("45"), _path("22"), _path("22"), _path("10")]
    assert done.err == "3 files: 1 error, 3 warnings, 0 hints\n"


def test_yaml_says_what_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    in_yaml = yaml.safe_load(run(capsys, "lint", "-o", "yaml", _path("37")).out)
    assert in_yaml == json.loads(run(capsys, "lint", "-o", "json", _path("37")).out)


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "a.yaml"
    config.write_text('"\\e[2J\\x9b\\n": 1\n')
    assert ': "' not in run(capsys, "lint", str(config)).out
    assert ":1: warning: \\x1b[2J\\x9b\\n: unknown key, ignored" in run(capsys, "lint", str(config)).out


def test_what_never_ends_is_not_read_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", "/dev/zero")
    assert (done.code, done.out.count("more than 1048576")) == (1, 1)


def test_text_in_another_encoding_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    config.write_bytes("version: vé".encode("latin-1"))
    assert "is not UTF-8 text" in run(capsys, "lint", str(config)).err


@pytest.mark.parametrize("columns", ["80", "120"])
def test_a_finding_is_one_line_at_any_width(columns: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from gpusharing.cli.app import main; main()", "lint", _path("05")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator"), "COLUMNS": columns},
    )
    assert done.returncode == 1
    assert [line[:2] for line in done.stdout.splitlines()] == [_path("05")[:2], "  "] * 2
    assert "\x1b" not in done.stdout + done.stderr


def test_layout_shared_warns_of_what_nvidias_plugin_ignores(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: gpusharing.io/v1alpha1\nkind: GpuSharingPolicy\nmetadata: {name: a}\n"
        "spec: {nodeSelector: {}, allocation: {policy: spread},\n"
        "  sharing: {strategy: time-slicing, resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
    )
    assert ": warning: " not in run(capsys, "lint", str(policy)).out
    assert ": warning: [a] spec.allocation.policy" in run(capsys, "lint", "--layout", "shared", str(policy)).out


def test_lint_reads_standard_input_and_imports_no_client() -> None:
    code = (
        "import sys; from gpusharing.cli.app import command_line\n"
        "try: command_line()(['lint', '-'])\n"
        "finally: print(sorted({'kubernetes', 'kopf'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="version: v1\nflagz: {}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator"), "NO_COLOR": "1"},
    )
    assert done.stdout.startswith("-:2: warning: flagz: unknown key, ignored\n  hint: did you mean flags?\n")
    assert done.stderr.endswith("[]\n")
