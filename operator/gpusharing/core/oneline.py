"""Text from elsewhere, made fit for a log line, an Event or a condition: on one line, without terminal escapes, cut."""

from collections.abc import Sequence

ELLIPSIS = "…"


def one_line(text: str, limit: int) -> str:
    """Return the text with white space drawn together, unprintable characters spelled out, at most `limit` long (X12).

    Unprintable are control and format characters, among them those that turn the direction of the text.
    """
    # Twice as long is enough to tell whether it must be cut, and bounds the work on a text of a megabyte.
    spaced = " ".join(text[: 2 * limit].split())
    safe = "".join(letter if letter.isprintable() else _spelled(letter) for letter in spaced)
    return safe if len(safe) <= limit and len(text) <= 2 * limit else safe[: limit - 1] + ELLIPSIS


def few(words: Sequence[str], most: int = 5) -> str:
    """Return the first words, and how many there are beside them: `a, b and 3 more`."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
