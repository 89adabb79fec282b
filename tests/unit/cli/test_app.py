"""The frame of the command line: help, version, errors and exit codes."""

import os
import subprocess
import sys

import pytest
import typer
from tests.support.commands import run
from tests.support.controller import ROOT

from gpusharing import __version__
from gpusharing.cli import commands
from gpusharing.cli.app import command_line
from gpusharing.core.errors import InvalidInput

COMMANDS = [name for name, _ in commands.modules()]


def test_help_is_kubectls_and_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["-h"], ["--help"]):
        done = run(capsys, *arguments)
        assert done.code == 0
        assert done.out.startswith("Usage: kubectl gpusharing [OPTIONS] COMMAND")
        assert all(f"\n  {name} " in done.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help_has_two_examples_and_help_for_every_option(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    done = run(capsys, command, "-h")
    assert done.code == 0
    assert done.out.startswith(f"Usage: kubectl gpusharing {command}")
    assert done.out.count(f"  kubectl gpusharing {command}") + done.out.count(f"| kubectl gpusharing {command}") >= 2
    options = typer.main.get_group(command_line()).commands[command].params
    assert [option.name for option in options if not getattr(option, "help", "")] == []


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "--version")
    assert (done.code, done.out) == (0, f"kubectl gpusharing {__version__}\n")


def test_a_wrong_command_line_is_two_lines_on_stderr_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", "--layot", "shared", "x")
    assert (done.code, done.out) == (2, "")
    error, hint = done.err.splitlines()
    assert error.startswith("error: No such option: --layot")
    assert hint == "hint: kubectl gpusharing lint -h says how it is used"


def test_a_wrong_command_is_named_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lnt")
    assert done.code == 2
    assert "Did you mean 'lint'?" in done.err


def test_a_command_that_gives_2_a_meaning_ends_with_1_on_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "plan", "--no-such-option").code == 1
    assert run(capsys, "lint", "--no-such-option").code == 2


def app_with(error: Exception) -> typer.Typer:
    """The real command line, whose command `lint` fails with this error."""

    def lint() -> None:
        raise error

    app = command_line()
    app.registered_commands = []
    app.command("lint")(lint)
    return app


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (InvalidInput("a.yaml is no file", hint="name one"), "error: a.yaml is no file\nhint: name one\n"),
        (InvalidInput("a.yaml is no file"), "error: a.yaml is no file\n"),
        (
            ValueError("a\nb"),
            "error: ValueError: a\\nb\nhint: this is a bug: please report it with what --debug shows\n",
        ),
    ],
    ids=["with a hint", "without", "a bug"],
)
def test_an_error_is_one_line_a_hint_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], error: Exception, want: str
) -> None:
    with pytest.raises(SystemExit) as end:
        app_with(error)(["lint"])
    assert (end.value.code, capsys.readouterr().err) == (1, want)


def test_debug_shows_the_traceback_before_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "lint", "--debug", "/no/such/file")
    assert done.code == 1
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert done.err.splitlines()[-1].startswith("error: /no/such/file")
    assert "Traceback" not in run(capsys, "lint", "/no/such/file").err


def process(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from gpusharing.cli.app import main; main()", *arguments]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}


def test_a_reader_that_goes_away_is_no_error() -> None:
    text = "".join(f"flagz{number}: 1\n" for number in range(90)) * 10
    linting = subprocess.Popen(
        process("lint", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    assert linting.stdin
    assert linting.stdout
    assert linting.stderr
    linting.stdout.close()
    linting.stdin.write(text.encode())
    linting.stdin.close()
    said = linting.stderr.read().decode()
    linting.stderr.close()
    assert linting.wait(timeout=60) == 1
    assert "Traceback" not in said
    assert "BrokenPipe" not in said


def test_help_imports_no_client_and_no_tables() -> None:
    code = (
        "import sys; from gpusharing.cli.app import command_line\n"
        "try: command_line()(['lint', '-h'])\n"
        "finally: print(sorted({'kubernetes', 'kopf', 'rich', 'aiohttp'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_an_ascii_terminal_is_no_reason_to_die() -> None:
    done = subprocess.run(
        process("lint", "-"),
        input="é: 1\n".encode(),
        capture_output=True,
        timeout=60,
        check=False,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert b"Traceback" not in done.stderr
