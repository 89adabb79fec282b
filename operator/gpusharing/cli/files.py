"""Files as commands name them; `-` is standard input."""

import os
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile

from gpusharing.core.errors import InvalidInput

STDIN = "-"
SUFFIXES = {".yaml", ".yml", ".json"}


def read_text(file: str, *, at_most: int = -1) -> str:
    """Return a file's text, or its first characters. Raises InvalidInput."""
    try:
        if file == STDIN:
            return sys.stdin.read(at_most)
        with Path(file).open(encoding="utf-8") as stream:
            return stream.read(at_most)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{shown(file)} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise InvalidInput(f"{shown(file)} cannot be read: {error.strerror or error}") from error


def write_text(file: str, text: str) -> None:
    """Write a file as a whole or not at all. Raises InvalidInput."""
    path = Path(file)
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as part:
            try:
                part.write(text)
                part.close()
                Path(part.name).chmod(0o644)
                os.replace(part.name, path)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror or error}") from error


def shown(file: str) -> str:
    """Return the file as messages name it."""
    return "standard input" if file == STDIN else file


def expanded(file: str) -> list[str]:
    """Return the file itself, or the files that kubectl would take from a folder. Raises InvalidInput."""
    folder = Path(file)
    if file == STDIN or not folder.is_dir():
        return [file]
    found = sorted(str(path) for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if not found:
        raise InvalidInput(f"{file} is a folder without .yaml, .yml or .json files")
    return found
