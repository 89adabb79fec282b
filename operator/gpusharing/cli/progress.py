"""What is going on, on a terminal, once it takes longer than a second; nothing in a pipe."""

import time
from collections.abc import Callable
from typing import TextIO

PATIENCE = 1.0
CLEAR_LINE = "\r\x1b[2K"


class Progress:
    """One line that is written over and over, and gone at the end; a context manager."""

    def __init__(self, stream: TextIO, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._shown = stream.isatty() and not quiet
        self._clock = clock
        self._from = clock() + PATIENCE
        self._written = False

    def tell(self, text: str) -> None:
        """Show the text, unless it is too early."""
        if self._shown and self._clock() >= self._from:
            self._stream.write(f"{CLEAR_LINE}{text}")
            self._stream.flush()
            self._written = True

    def __enter__(self) -> "Progress":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        if self._written:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()
