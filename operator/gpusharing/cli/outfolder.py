"""A folder of files that a command writes: all of them or none, and never over a file that somebody else wrote."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusharing.core.errors import InvalidInput


def write_files(folder: Path, files: Mapping[str, str], *, marker: str, suffix: str) -> None:
    """Write files, path below the folder → text, each of which begins with the line `marker`.

    Files with the suffix that an earlier run with the same marker left are removed: a file that is no longer written
    must not be used any more. Raises InvalidInput, before anything is changed, where a foreign file is in the way.
    """
    targets = {folder / path: text for path, text in files.items()}
    for target in targets:
        if os.path.lexists(target) and not _is_ours(target, marker):
            raise InvalidInput(
                f"{target} was not written by this command for this placement", hint="name another folder, or remove it"
            )
    stale = [path for path in _written(folder, suffix) if path not in targets and _is_ours(path, marker)]
    try:
        _replace(targets)
        for path in stale:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others have files there
                if path.parent != folder:
                    path.parent.rmdir()
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written: {error.strerror or error}") from error


def _replace(targets: Mapping[Path, str]) -> None:
    """Write every file under another name first, so that a full disk leaves the old ones."""
    parts: dict[Path, Path] = {}
    try:
        for target, text in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            parts[target] = Path(name)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(name).chmod(0o644)
        for target, part in parts.items():
            part.replace(target)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _written(folder: Path, suffix: str) -> Iterator[Path]:
    """Yield the files with the suffix in the folder and in folders right below it."""
    for pattern in (f"*{suffix}", f"*/*{suffix}"):
        yield from sorted(folder.glob(pattern))


def _is_ours(path: Path, marker: str) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.readline() == marker
    except OSError:
        return False
