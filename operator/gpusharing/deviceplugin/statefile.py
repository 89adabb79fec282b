"""The files that outlive a restart: written whole or not at all, and never through a link that was planted (F25, X08).

What goes wrong here is a sentence for log and report, and the plugin goes on: serving needs no disk.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from gpusharing.core import checkpoint, savedledger
from gpusharing.core.checkpoint import Checkpoint
from gpusharing.core.errors import InvalidInput
from gpusharing.core.ledger import Ledger

T = TypeVar("T")
# 60,000 ids are 3 MB
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StateFile(Generic[T]):
    """One file of the folder that only we may enter, and how its content is read and written."""

    # what messages call it; the file's name is made of it
    kind: str
    encode: Callable[[T], str]
    # raises InvalidInput
    decode: Callable[[str], T]

    @property
    def name(self) -> str:
        """Return the file's name."""
        return f"{self.kind}.json"

    def save(self, state_dir: Path, value: T) -> str:
        """Replace the file, fsynced. Returns why that failed; empty = it did not."""
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _opened(state_dir) as folder:
                self._replace(folder, self.encode(value).encode())
        except OSError as error:
            return f"{self.kind} {state_dir / self.name} cannot be written: {_why(error)}"
        return ""

    def load(self, state_dir: Path) -> tuple[T | None, str]:
        """Return what the file says, and why it cannot be used; neither = there is none."""
        try:
            with _opened(state_dir) as folder:
                self._remove_unfinished(folder)
                return self.decode(_read(folder, self.name)), ""
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"{self.kind} {state_dir / self.name} cannot be read: {_why(error)}"
        except InvalidInput as error:
            return None, f"{self.kind} {state_dir / self.name} is ignored: {error}"

    def _replace(self, folder: int, content: bytes) -> None:
        unfinished = f"{self._unfinished}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=folder)
            raise

    def _remove_unfinished(self, folder: int) -> None:
        """Remove what a process left that ended while it wrote."""
        with suppress(OSError):
            for name in os.listdir(folder):
                if name.startswith(self._unfinished):
                    os.unlink(name, dir_fd=folder)

    @property
    def _unfinished(self) -> str:
        return f".{self.kind}-"


# what is served, for a start without API server or NVML
CHECKPOINT: StateFile[Checkpoint] = StateFile("checkpoint", checkpoint.encode, checkpoint.decode)
# which GPU belongs to whom
LEDGER: StateFile[Ledger] = StateFile("reservations", savedledger.encode, savedledger.decode)


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


def _read(folder: int, name: str) -> str:
    # not to wait for the writer of a pipe
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a file")
        if status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it belongs to user {status.st_uid}")
        if status.st_size > MAX_BYTES:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes, more than {MAX_BYTES}")
        return opened.read(MAX_BYTES).decode(errors="replace")


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a symbolic link, which is not followed"
    return error.strerror or str(error)
