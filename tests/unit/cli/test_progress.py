"""Progress is for people who wait at a terminal."""

import io

from gpusharing.cli.progress import CLEAR_LINE, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(stream: io.StringIO, *, quiet: bool = False) -> str:
    """What is written by work that tells of itself after 0.5 and 1.5 seconds."""
    moments = iter([0.0, 0.5, 1.5])
    with Progress(stream, quiet=quiet, clock=lambda: next(moments)) as progress:
        progress.tell("early")
        progress.tell("late")
    return stream.getvalue()


def test_after_a_second_it_shows_and_at_the_end_the_line_is_empty() -> None:
    assert show(Terminal()) == f"{CLEAR_LINE}late{CLEAR_LINE}"


def test_a_pipe_and_a_program_get_nothing() -> None:
    assert show(io.StringIO()) == ""
    assert show(Terminal(), quiet=True) == ""


def test_what_was_quick_leaves_no_trace() -> None:
    stream = Terminal()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.tell("early")
    assert stream.getvalue() == ""
