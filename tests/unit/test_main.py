"""`gpusharing COMMAND`: what is printed where, and the exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpusharing import __version__
from gpusharing.__main__ import USAGE, main

ROOT = Path(__file__).resolve().parents[2]


def ends_with(*arguments: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as done:
        main(arguments)
    code = done.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands_and_is_fine(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(flag) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (USAGE, "")
    for command in ("controller", "cleanup", "remove-stale-resources", "version"):
        assert f"\n  {command} " in USAGE


@pytest.mark.parametrize("command", ["version", "--version"])
def test_the_version_is_printed_alone(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(command) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with() == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", USAGE)


@pytest.mark.parametrize("command", ["run", "Controller", "--verbose"])
def test_an_unknown_command_is_a_usage_error_that_names_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(command) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"unknown command {command!r}\n\n{USAGE}"


@pytest.mark.parametrize("command", ["controller", "cleanup", "remove-stale-resources"])
def test_wrong_input_is_one_line_and_a_hint_on_standard_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(command, "--resyn=5m") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: command line: unknown setting 'resyn'\nhint: did you mean resync?\n"


@pytest.mark.parametrize("command", ["controller", "cleanup", "remove-stale-resources"])
def test_each_command_has_its_own_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(command, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: gpusharing {command}")


# --- as a process


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    what = ["-c", code] if code else ["-m", "gpusharing"]
    return subprocess.run(
        [sys.executable, *what, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": str(ROOT / "operator"), "HOME": "/nonexistent"},
    )


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: c, user: {}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
"""


def test_a_server_that_cannot_be_reached_is_a_failure_not_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    done = run("cleanup", f"--kubeconfig={tmp_path}/config")
    assert done.returncode == 1
    assert done.stderr.startswith("error: get /apis/coordination.k8s.io/")
    assert "Traceback" not in done.stderr


def test_a_kubeconfig_that_is_not_there_is_told_without_a_traceback(tmp_path: Path) -> None:
    done = run("controller", f"--kubeconfig={tmp_path}/none", "--listen=127.0.0.1:0")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: the kubeconfig {tmp_path}/none cannot be used: there is no such file\n"
        "hint: name one with --kubeconfig, and a context with --context\n"
    )


IMPORTED = """
import sys
from gpusharing.__main__ import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_version_help_and_usage_import_neither_kopf_nor_the_client() -> None:
    done = run("version", code=IMPORTED)
    imported = set(done.stdout.splitlines()[-1].split())
    assert "gpusharing" in imported
    assert not {"kopf", "kubernetes", "aiohttp", "prometheus_client", "pydantic_settings", "typer"} & imported
