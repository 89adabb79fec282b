"""What is going on, on a terminal, once it takes longer than a second; nothing in a pipe."""

import time
from collections.abc import Callable
from typing import TextIO

PATIENCE = 1.0
CLEAR_LINE = "\r\x1b[2K"
BAR = 25


class Progress:
    """One line that is written over and over, and gone at the end; a context manager."""

    def __init__(self, stream: TextIO, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._shown = stream.isatty() and not quiet
        self._clock = clock
        self._from = clock() + PATIENCE
        self._written = False
        self._percent = -1

    def tell(self, text: str) -> None:
        """Show the text, unless it is too early."""
        if self._shown and self._clock() >= self._from:
            self._stream.write(f"{CLEAR_LINE}{text}")
            self._stream.flush()
            self._written = True

    def bar(self, text: str, part: float) -> None:
        """Show which part is done, from 0 to 1, whenever it is another percent."""
        if (percent := int(100 * part)) != self._percent:
            self._percent = percent
            done = int(BAR * part)
            self.tell(f"{text} [{'#' * done}{'-' * (BAR - done)}] {percent} %")

    def __enter__(self) -> "Progress":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        if self._written:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()
