"""`kubectl gpusharing prefer`."""

import json
import shutil
import sys
import textwrap
from typing import Annotated

import typer

from gpusharing.cli.files import read_text, shown
from gpusharing.cli.output import print_line, say
from gpusharing.core.allocation.cases import MAX_CHARACTERS, Answer, answer, difference, read_cases

OK, DIFFERENT = 0, 1


def prefer(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Requests as JSON; - is standard input.")],
    explain: Annotated[bool, typer.Option("--explain", help="Say of each choice why.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with the answers in the file.")] = False,
) -> int:
    """Say which devices the plugin would prefer. Needs no cluster.

    Prints one line of JSON for each case: `case` (from 0) and `counts`, or for whole GPUs `choice` and `score`.
    With --explain `explain` says why; on a terminal that stands below the line.

    Exit code: 0 fine, 1 with --check if an answer is not the recorded one, 2 where the command line is wrong.

    \b
    Examples:
      kubectl gpusharing prefer requests.json --explain
      kubectl gpusharing prefer recorded.json --check
    """
    cases = read_cases(read_text(file, at_most=MAX_CHARACTERS + 1), shown(file))
    different = 0
    for number, case in enumerate(cases):
        got = answer(number, case, explained=explain)
        _print(got)
        if check and (text := difference(case, got)):
            different += 1
            say(f"case {number}: {text}")
    if check:
        say(f"{len(cases)} cases, {different} different")
    return DIFFERENT if different else OK


def _print(answer: Answer) -> None:
    """Print a line of JSON; its reasons, if there are any, are in it for programs and below it for people."""
    reasons = answer.explain if answer.explain and sys.stdout.isatty() else []
    line = answer.model_copy(update={"explain": None}) if reasons else answer
    print_line(json.dumps(line.to_wire(), ensure_ascii=False))
    columns = shutil.get_terminal_size().columns
    for reason in reasons:
        for part in textwrap.wrap(reason, columns, initial_indent="  ", subsequent_indent="    "):
            print_line(part)
