"""Socket files: names that are never used twice, what a dead plugin left behind, and the lock of the host.

Sources: sections 2 and 3.2 of the kubelet's contract; decision 30; faults F03, F07, X08.
"""

import asyncio
import errno
import fcntl
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpusharing.core.errors import GpuSharingError, InvalidInput

# sun_path of a unix socket, without the NUL; gRPC refuses more
MAX_PATH_BYTES = 107
# the kubelet's folder takes 32 of them
MAX_NAME_BYTES = 75
_MAX_SHORT_NAME = 50
_NAME_AROUND = len("gpusharing--01234567.sock")
_OURS = re.compile(r"gpusharing-.+-[0-9a-f]{8}\.sock")


class FolderGone(GpuSharingError):
    """The device-plugins folder was removed: what is mounted here is dead for ever, only a new pod sees the new one."""


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """Tells a kubelet's socket from that of the next start: the inode number alone may come back."""

    device: int
    inode: int
    changed_ns: int


def new_socket_name(resource: str, room: int = MAX_NAME_BYTES) -> str:
    """Return `gpusharing-<short resource>-<8 hex>.sock`, never used before; the resource is cut to the room's bytes."""
    short = resource.rpartition("/")[2][: min(_MAX_SHORT_NAME, room - _NAME_AROUND)]
    return f"gpusharing-{short}-{secrets.token_hex(4)}.sock"


class PluginFolder:
    """The folder of `kubelet.sock` and of our own sockets, held open so that its end is seen.

    Raises FolderGone where it is not there, InvalidInput where its path leaves no room for a socket's name.
    """

    def __init__(self, path: Path, kubelet_socket: str = "kubelet.sock") -> None:
        self._room = min(MAX_NAME_BYTES, MAX_PATH_BYTES - len(os.fsencode(path)) - 1)
        if self._room <= _NAME_AROUND:
            raise InvalidInput(
                f"the folder {str(path)!r} is too long for sockets: a path has at most {MAX_PATH_BYTES} bytes",
                hint="use the kubelet's own folder, /var/lib/kubelet/device-plugins",
            )
        self.path = path
        self.kubelet_socket = path / kubelet_socket
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise FolderGone(f"cannot open the device-plugins folder {str(path)!r}: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._descriptor)

    def check(self) -> None:
        """Raise FolderGone if the folder was removed (link count 0)."""
        if os.fstat(self._descriptor).st_nlink == 0:
            raise FolderGone(
                f"the device-plugins folder {str(self.path)!r} was removed, and what is mounted here is the dead one",
                hint="the process ends, so that its pod is made anew with the new folder",
            )

    def kubelet(self) -> SocketIdentity | None:
        """Return which `kubelet.sock` is there; None = no socket of that name. Links are not followed."""
        try:
            found = os.stat(self.kubelet_socket.name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return None
        return SocketIdentity(found.st_dev, found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None

    def new_name(self, resource: str) -> str:
        """Return a name for a socket of the resource that was never used before, and that fits."""
        return new_socket_name(resource, self._room)

    def names(self) -> frozenset[str]:
        """Return the names of everything in the folder."""
        return frozenset(os.listdir(self._descriptor))

    def remove(self, name: str) -> None:
        """Remove a socket of ours, if it is still there."""
        if self._is_socket(name):
            with suppress(FileNotFoundError):  # gRPC removes it in a thread of its own
                os.unlink(name, dir_fd=self._descriptor)

    def remove_stale(self) -> tuple[str, ...]:
        """Remove the sockets of our pattern on which nobody listens; return their names. Nothing else is touched."""
        stale = tuple(
            name
            for name in sorted(self.names())
            if _OURS.fullmatch(name) and self._is_socket(name) and is_refused(self.path / name)
        )
        for name in stale:
            self.remove(name)
        return stale

    def _is_socket(self, name: str) -> bool:
        try:
            return stat.S_ISSOCK(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False


def is_refused(path: Path) -> bool:
    """Whether nobody listens on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # a listener whose queue is full must not hold us up: it answers EAGAIN, which is not a refusal
        probe.setblocking(False)
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED


@dataclass(frozen=True, slots=True)
class LockTimes:
    """Seconds: how long to wait for the other plugin, how often to try, and how often while serving beside it."""

    patience: float = 30.0
    every: float = 0.1
    later: float = 5.0


class HostLock:
    """One device plugin per host: before Kubernetes 1.37 the end of an old one takes the new one's devices down (F07).

    It is advice: whoever does not get it goes on, and `problem` says so.
    """

    def __init__(self, path: Path, times: LockTimes = LockTimes()) -> None:
        self._path = path
        self._times = times
        self._descriptor: int | None = None
        self.problem = ""

    async def take(self) -> bool:
        """Wait for the lock, at most `patience` seconds; return whether it is ours."""
        if not self._open():
            return False
        try:
            async with asyncio.timeout(self._times.patience):
                while not self.try_take():
                    await asyncio.sleep(self._times.every)
        except TimeoutError:
            self.problem = (
                f"another device plugin holds {str(self._path)!r} for more than {self._times.patience:g} s; "
                "serving beside it"
            )
        return not self.problem

    def try_take(self) -> bool:
        """Take the lock if nobody has it; return whether it is ours."""
        if self._descriptor is None:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self.problem = ""
        return True

    async def until_ours(self, tell: Callable[[str], object]) -> None:
        """Tell why the lock is not ours, once, and again with nothing as soon as it is."""
        if self.problem:
            tell(self.problem)
            while self.problem:
                await asyncio.sleep(self._times.later)
                self.try_take()
            tell("")

    def release(self) -> None:
        """Let the next one have it; the end of the process does the same."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> bool:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            # a full or read-only disk is no reason not to serve (F25)
            self.problem = f"cannot open the lock {str(self._path)!r}: {error.strerror}; serving without it"
            return False
        return True
