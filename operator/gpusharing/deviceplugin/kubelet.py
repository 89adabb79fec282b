"""Looks at the kubelet's folder again and again: one look serves all resources (decision 47; contract 3.3)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gpusharing.deviceplugin.sockets import PluginFolder, SocketIdentity


@dataclass(frozen=True, slots=True)
class PollTimes:
    """Seconds between two looks: while every stream is open; while one is missing, at first and later on."""

    steady: float = 1.0
    hurried: float = 0.05
    patient: float = 0.1
    hurry: float = 60.0


def poll_interval(missing_for: float | None, times: PollTimes) -> float:
    """Return the seconds until the next look; `missing_for`: since when a stream is missing, None = none is."""
    if missing_for is None:
        return times.steady
    return times.hurried if missing_for < times.hurry else times.patient


class KubeletWatcher:
    """Knows which kubelet is there and which sockets, and tells whoever waits for a change."""

    def __init__(self, folder: PluginFolder, times: PollTimes = PollTimes()) -> None:
        self.folder = folder
        self._times = times
        self._kubelet = folder.kubelet()
        self._names = folder.names()
        self._listeners: dict[object, Callable[[], None]] = {}
        self._missing: dict[object, float] = {}
        self._hurry = asyncio.Event()

    @property
    def kubelet(self) -> SocketIdentity | None:
        """Return the kubelet's socket as of the last look; None = there is none."""
        return self._kubelet

    def has(self, name: str) -> bool:
        """Whether a socket of that name was there at the last look."""
        return name in self._names

    def look(self) -> None:
        """Look now, and tell of a change. Raises FolderGone."""
        self.folder.check()
        kubelet, names = self.folder.kubelet(), self.folder.names()
        if (kubelet, names) != (self._kubelet, self._names):
            self._kubelet, self._names = kubelet, names
            for tell in list(self._listeners.values()):
                tell()

    async def run(self) -> None:
        """Look until cancelled. Raises FolderGone, upon which the process must end with an error (F03)."""
        while True:
            self.look()
            self._hurry.clear()
            try:
                async with asyncio.timeout(self._interval()):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    def _interval(self) -> float:
        now = asyncio.get_running_loop().time()
        latest = max(self._missing.values(), default=None)
        return poll_interval(None if latest is None else now - latest, self._times)

    def listen(self, who: object, tell: Callable[[], None]) -> None:
        """Call `tell` after each change until `forget`."""
        self._listeners[who] = tell

    def forget(self, who: object) -> None:
        """Tell this one no more, and do not hurry for it."""
        self._listeners.pop(who, None)
        self._missing.pop(who, None)

    def stream_missing(self, who: object) -> None:
        """Hurry: this one has no stream."""
        if who not in self._missing:
            self._missing[who] = asyncio.get_running_loop().time()
            self._hurry.set()

    def stream_open(self, who: object) -> None:
        """No need to hurry for this one."""
        self._missing.pop(who, None)
