"""`kubectl gpusharing` in this process: what it prints and how it ends."""

from dataclasses import dataclass

import pytest

from gpusharing.cli.app import command_line


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    """Run the command line with these arguments."""
    with pytest.raises(SystemExit) as end:
        command_line()(list(arguments))
    out, err = capsys.readouterr()
    code = end.value.code
    assert isinstance(code, int)
    return Done(code, out, err)
