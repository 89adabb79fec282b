"""What commands print: data on stdout, talk on stderr; tables for people, JSON and YAML for programs.

Colour and Rich only on a terminal that wants them (no pipe, no `NO_COLOR`, no `TERM=dumb`); never the only carrier.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TextIO

import typer

Format = Literal["table", "wide", "json", "yaml", "name"]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="table, wide (more columns), json, yaml, or name (names alone).")
]

GAP = "   "
# A word that is a whole cell, or leads a line, and the colour that goes with it.
COLOURS = {
    "True": "green",
    "Unknown": "yellow",
    "False": "red",
    "error": "bold red",
    "warning": "yellow",
    "hint": "cyan",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `wide` ones are shown with `-o wide` only."""

    title: str
    wide: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, wide: bool = False) -> None:
    """Print rows as kubectl does: on a terminal folded to its width, elsewhere never cut."""
    shown = [index for index, column in enumerate(columns) if wide or not column.wide]
    titles = [columns[index].title for index in shown]
    cells = [[printable(row[index]) for index in shown] for row in rows]
    if colourful(sys.stdout):
        _print_rich_table(titles, cells)
        return
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for row in (titles, *cells):
        print(GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    Console(file=sys.stdout, highlight=False).print(table)


def print_data(value: Any, form: Literal["json", "yaml"]) -> None:
    """Print plain data (`Model.to_wire()`) for a program to read."""
    if form == "json":
        print(json.dumps(value, indent=2))
        return
    import yaml

    print(yaml.safe_dump(value, sort_keys=False, width=120), end="")


def print_names(prefix: str, names: Iterable[str]) -> None:
    """Print `prefix/name` lines, which kubectl takes as arguments: `node/gpu-a`."""
    for name in names:
        print(printable(f"{prefix}/{name}"))


def print_line(text: str, *, style: str = "") -> None:
    """Print one line of data on stdout; on a terminal in the style."""
    _print_styled(text, style, sys.stdout)


def say(text: str, *, style: str = "") -> None:
    """Print one line of talk on stderr."""
    _print_styled(text, style, sys.stderr)


def _print_styled(text: str, style: str, stream: TextIO) -> None:
    if not style or not colourful(stream):
        print(printable(text), file=stream)
        return
    from rich.console import Console
    from rich.text import Text

    Console(file=stream, highlight=False, soft_wrap=True).print(Text(printable(text), style=style))


def colourful(stream: TextIO) -> bool:
    """Whether the stream is a terminal that wants colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """Return the text with everything escaped that could move a terminal's cursor or break a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
