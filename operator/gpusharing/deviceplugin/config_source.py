"""Where the plugin learns what it should serve (decision 37): from a file here, from the API in `cluster_source.py`.

A source says what is desired, as text; whether that is any good is for others to find out. It never raises and never
ends: what cannot be read is said in `missing`, and what is unknown for the moment is not said at all.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpusharing.api import names
from gpusharing.api.yamltext import MAX_BYTES


@dataclass(frozen=True, slots=True)
class Desired:
    """What should be served now."""

    # the label's value, or the file's name; empty = no config: the defaults from flags and environment
    name: str = ""
    # None = no config, or one that is missing
    text: str | None = None
    # whether our controller wrote the text, so that it is read strictly
    rendered: bool = False
    # the policy that it comes from; empty = none, or not known
    policy: str = ""
    # why a config that should be there cannot be had; the last good one stays
    missing: str = ""
    # the Node as the API shows it; empty = there is none, or it was not asked for
    node_uid: str = ""
    runtime_version: str = ""


Tell = Callable[[Desired], object]


class ConfigSource(Protocol):
    """Something that knows what should be served."""

    async def follow(self, tell: Tell) -> None:
        """Tell what is desired as soon as that is known, then anew upon each change; until cancelled."""


# --- a file


class ConfigFileSource:
    """`--config-file`: that file alone, by its content."""

    def __init__(self, path: Path, *, poll: float = 1.0, settle: float = 0.2) -> None:
        """Look every `poll` seconds; a change counts once it was read alike twice, `settle` seconds apart."""
        self._path = path
        self._poll = poll
        self._settle = settle
        self._wake = asyncio.Event()

    def reread(self) -> None:
        """Look at once: what SIGHUP asks for."""
        self._wake.set()

    async def follow(self, tell: Tell) -> None:
        """Tell what the file says, as `ConfigSource` does."""
        told = self._desired()
        tell(told)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll):
                    await self._wake.wait()
            self._wake.clear()
            desired = self._desired()
            if desired == told:
                continue
            await asyncio.sleep(self._settle)
            if self._desired() == desired:
                told = desired
                tell(told)
            else:
                self._wake.set()  # it is being written

    def _desired(self) -> Desired:
        name = self._path.name[: names.LABEL_VALUE_MAX]
        try:
            return Desired(name, read_text(self._path))
        except OSError as error:
            return Desired(name, missing=f"config file {self._path}: {error.strerror}")


def read_text(path: Path) -> str:
    """Return a file's text; of one that is too long, enough to be refused. Bytes that are not UTF-8 stay to be seen.

    The folder is opened anew each time and the file through it, so that a swapped `..data` is either the old one or the
    new one. Kubelet removes the old one right after: what is gone on the way is looked for again. Raises OSError.
    """
    for attempts_left in (2, 1, 0):
        try:
            return _read_once(path)
        except FileNotFoundError:
            if not attempts_left:
                raise
    raise AssertionError("the last attempt returns or raises: this is a bug, please report it")


def _read_once(path: Path) -> str:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # not to wait for the writer of a pipe
        file = os.open(path.name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(file, "rb") as opened:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):  # NVIDIA's config-manager links to /dev/null
            raise OSError(errno.EINVAL, "not a file")
        return opened.read(MAX_BYTES + 1).decode(errors="surrogateescape")
