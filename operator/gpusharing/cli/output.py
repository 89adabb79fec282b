"""What commands print: data on stdout, talk on stderr; tables for people, JSON and YAML for programs.

Colour and Rich only on a terminal that wants them (no pipe, no `NO_COLOR`, no `TERM=dumb`); never the only carrier.
"""

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TextIO

import typer

Format = Literal["table", "wide", "json", "yaml", "name"]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="table, wide (more columns), json, yaml, or name (names alone).")
]

MACHINE: frozenset[Format] = frozenset({"json", "yaml", "name"})
GAP = "   "
NARROW_GAP = "  "  # where the wider one does not fit
PICTURE_MAX = 120
# A word that is a whole cell, or leads a line, and the colour that goes with it.
COLOURS = {
    "True": "green",
    "Unknown": "yellow",
    "False": "red",
    "error": "bold red",
    "warning": "yellow",
    "hint": "cyan",
    "add": "green",
    "change": "yellow",
    "repair": "yellow",
    "release": "red",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `wide` ones are shown with `-o wide` only.

    Where a terminal is too narrow, `below` ones go to a line of their own below each row.
    """

    title: str
    wide: bool = False
    below: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, wide: bool = False) -> None:
    """Print rows as kubectl does, never cut."""
    shown = [index for index, column in enumerate(columns) if wide or not column.wide]
    titles = [columns[index].title for index in shown]
    cells = [[printable(row[index]) for index in shown] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    limit = _width(sys.stdout)
    inline, gap = _fitting(widths, [columns[index].below for index in shown], limit)
    below = [place for place in range(len(shown)) if place not in inline]
    with _lines_to(sys.stdout, gap) as put:
        put([(titles[place].ljust(widths[place]), "bold") for place in inline])
        for row in cells:
            put([(row[place].ljust(widths[place]), COLOURS.get(row[place], "")) for place in inline])
            for line in _packed([f"{titles[place].lower()}: {row[place]}" for place in below if row[place]], limit):
                put([(line, "")])


def _fitting(widths: Sequence[int], may_go_below: Sequence[bool], limit: int) -> tuple[list[int], str]:
    """Return which columns stay in line, and the gap between them; the last of those that may go below goes first."""
    inline = list(range(len(widths)))
    going = [place for place in inline if may_go_below[place]]
    while True:
        for gap in (GAP, NARROW_GAP):
            if sum(widths[place] for place in inline) + len(gap) * (len(inline) - 1) <= limit:
                return inline, gap
        if not going:
            return inline, GAP
        inline.remove(going.pop())


def _packed(pieces: Iterable[str], limit: int) -> Iterator[str]:
    """Yield indented lines with as many of the pieces as fit."""
    line = ""
    for piece in pieces:
        if line and len(line) + len(GAP) + len(piece) > limit:
            yield line
            line = ""
        line = f"{line}{GAP}{piece}"
    if line:
        yield line


Cells = Sequence[tuple[str, str]]


@contextlib.contextmanager
def _lines_to(stream: TextIO, gap: str = GAP) -> Iterator[Callable[[Cells], None]]:
    """Give a function that prints one line of cells, each with its style."""
    if not colourful(stream):
        yield lambda cells: print(gap.join(text for text, _ in cells).rstrip(), file=stream)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)

    def put(cells: Cells) -> None:
        line = Text(gap).join(Text(text, style=style) for text, style in cells)
        line.rstrip()
        console.print(line)

    yield put


def _width(stream: TextIO) -> int:
    """Return how many columns the stream has; a pipe has no end."""
    return shutil.get_terminal_size().columns if stream.isatty() else sys.maxsize


def width_for_pictures() -> int:
    """Return how many columns a picture on stdout may take: the terminal's, but no more than people like to read."""
    return min(_width(sys.stdout), PICTURE_MAX)


def print_data(value: Any, form: Literal["json", "yaml"]) -> None:
    """Print plain data (`Model.to_wire()`) for a program to read."""
    if form == "json":
        print(json.dumps(value, indent=2))
        return
    print(yaml_text(value), end="")


def yaml_text(value: Any) -> str:
    """Return plain data as YAML."""
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, width=120, allow_unicode=True)
    return text


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print `Title:   value` lines, aligned, as `kubectl describe` does."""
    fields = list(fields)
    width = max(len(title) for title, _ in fields) + 1
    for title, value in fields:
        print_line(f"{f'{title}:'.ljust(width)}{GAP}{value}")


def short_model(product: str) -> str:
    """Return a GPU's product label for a table; that it is NVIDIA's goes without saying."""
    return product.removeprefix("NVIDIA-") or "-"


def print_names(prefix: str, names: Iterable[str]) -> None:
    """Print `prefix/name` lines, which kubectl takes as arguments: `node/gpu-a`."""
    for name in names:
        print(printable(f"{prefix}/{name}"))


def print_line(text: str, *, style: str = "") -> None:
    """Print one line of data on stdout; on a terminal in the style."""
    _print_styled(text, style, sys.stdout)


def print_spans(spans: Iterable[tuple[str, str]]) -> None:
    """Print one line of data on stdout that is made of pieces, each with its style on a terminal."""
    with _lines_to(sys.stdout, gap="") as put:
        put([(printable(text), style) for text, style in spans])


def print_command(command: str) -> None:
    """Print a command for a shell; where a terminal is too narrow, it goes on in the next line."""
    limit, line = _width(sys.stdout), " "
    for word in shlex.split(command):
        quoted = word if word == "&&" else shlex.quote(word)
        if len(line) + len(quoted) + len("  \\") > limit and line.strip():
            print_line(f"{line} \\")
            line = "   "
        line = f"{line} {quoted}"
    print_line(line)


def say(text: str, *, style: str = "") -> None:
    """Print one line of talk on stderr."""
    _print_styled(text, style, sys.stderr)


def _print_styled(text: str, style: str, stream: TextIO) -> None:
    with _lines_to(stream) as put:
        put([(printable(text), style)])


def colourful(stream: TextIO) -> bool:
    """Whether the stream is a terminal that wants colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """Return the text with everything escaped that could move a terminal's cursor or break a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
