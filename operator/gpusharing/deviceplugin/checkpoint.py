"""The checkpoint file: written whole or not at all, and never through a link that somebody planted (F25, X08).

Serving needs no disk: what goes wrong here is a sentence for log and report, and the plugin goes on.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpusharing.core.checkpoint import Checkpoint, decode, encode
from gpusharing.core.errors import InvalidInput

NAME = "checkpoint.json"
# 60,000 ids are 3 MB
MAX_BYTES = 64 * 1024 * 1024
_UNFINISHED = ".checkpoint-"


def save(state_dir: Path, checkpoint: Checkpoint) -> str:
    """Replace the checkpoint in a folder, which only we may enter. Returns why that failed; empty = it did not."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(state_dir) as folder:
            _replace(folder, encode(checkpoint).encode())
    except OSError as error:
        return f"checkpoint {state_dir / NAME} cannot be written: {_why(error)}"
    return ""


def load(state_dir: Path) -> tuple[Checkpoint | None, str]:
    """Return the checkpoint in a folder, and why it cannot be used; neither = there is none."""
    try:
        with _opened(state_dir) as folder:
            _remove_unfinished(folder)
            return decode(_read(folder)), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"checkpoint {state_dir / NAME} cannot be read: {_why(error)}"
    except InvalidInput as error:
        return None, f"checkpoint {state_dir / NAME} is ignored: {error}"


@contextmanager
def _opened(state_dir: Path) -> Iterator[int]:
    """Open the folder itself, not what a link of its name leads to, and close it to others."""
    try:
        folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:  # Linux says that of a link, too
        raise OSError(errno.ELOOP if state_dir.is_symlink() else errno.ENOTDIR, error.strerror) from error
    try:
        if stat.S_IMODE(os.fstat(folder).st_mode) & 0o077:
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def _replace(folder: int, content: bytes) -> None:
    unfinished = f"{_UNFINISHED}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(unfinished, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, NAME, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise


def _read(folder: int) -> str:
    # not to wait for the writer of a pipe
    file = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a file")
        if status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it belongs to user {status.st_uid}")
        if status.st_size > MAX_BYTES:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes, more than {MAX_BYTES}")
        return opened.read(MAX_BYTES).decode(errors="replace")


def _remove_unfinished(folder: int) -> None:
    """Remove what a process left that ended while it wrote."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_UNFINISHED):
                os.unlink(name, dir_fd=folder)


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a symbolic link, which is not followed"
    return error.strerror or str(error)
