"""Who holds which ids: polled from the kubelet, with what we have given out since (decision 52).

A look that began before an `Allocate` was answered does not show it; so our own answers count as held until a later
look could have seen them.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpusharing.core.occupancy import PodDevices, held_ids


class PodResourcesReader(Protocol):
    """What is asked of the kubelet's pod resources API."""

    @property
    def problem(self) -> str:
        """Return why the last answer is None; empty = there was one."""

    @property
    def names(self) -> frozenset[str]:
        """Return namespace/name of every pod of the last answer, also of those that hold nothing."""

    async def pods(self) -> Sequence[PodDevices] | None:
        """Return who holds which ids; None = unreadable."""

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        """Return resource → ids that the kubelet counts as allocatable; None = unreadable."""


@dataclass(frozen=True, slots=True)
class PollTimes:
    """Seconds."""

    # between two looks: the shortest, and by how much it is longer at most (fault F23: at least 5 s, with jitter)
    every: float = 5.0
    jitter: float = 5.0
    # between two looks when one is asked for
    least: float = 0.5
    # how long after an answer of ours a look may still not show it
    settle: float = 1.0
    # a pod that was there so long before an answer of ours is not the one that it was for
    admitted: float = 5.0
    # what never shows is nobody's after that: else a pod of a second, beside one that stays, keeps a GPU for good
    doubted: float = 600.0


@dataclass(frozen=True, slots=True)
class _Unconfirmed:
    """What we gave out at this time (of the loop), and no look has shown."""

    at: float
    # the pods one of which has it; None = there was no look yet that should have shown it
    among: frozenset[str] | None = None


class Usage:
    """The last look at the kubelet's pod resources. `changed` is called after each look that differs."""

    def __init__(
        self,
        reader: PodResourcesReader,
        changed: Callable[[], None],
        times: PollTimes = PollTimes(),
        *,
        jitter: Callable[[], float] = lambda: secrets.randbelow(1 << 20) / (1 << 20),
    ) -> None:
        self._reader = reader
        self._changed = changed
        self._times = times
        self._jitter = jitter
        self._given: dict[tuple[str, str], float] = {}
        self._unconfirmed: dict[tuple[str, str], _Unconfirmed] = {}
        # pod → since when looks have shown it, one after the other; loop time
        self._there_since: dict[str, float] = {}
        self._due = 0.0
        self._sooner = asyncio.Event()
        self.pods: tuple[PodDevices, ...] | None = None
        self.allocatable: Mapping[str, frozenset[str]] | None = None
        # when the look began that the above is from; loop time
        self.looked_at = float("-inf")
        self.problem = "the kubelet's pod resources have not been read yet"

    def held(self) -> Mapping[str, frozenset[str]] | None:
        """Return resource → ids that pods hold, ours since the look included; None = unreadable."""
        if self.pods is None:
            return None
        held = held_ids(self.pods)
        for resource, device_id in self._given:
            held[resource] = held.get(resource, frozenset()) | {device_id}
        return held

    def held_or_unconfirmed(self) -> Mapping[str, frozenset[str]] | None:
        """Return the same with all that we gave out and that no look has confirmed, for a GPU's next owner.

        A plain init container is in no answer of the kubelet's. So such an id counts as held until it shows, or until
        every pod is gone that was there when it should have shown and not long before: one of them has it (placement
        guide, 8.2, which lacks "not long before" and an end: pods of DaemonSets never go).
        """
        held = self.held()
        if held is None or not self._unconfirmed:
            return held
        found = dict(held)
        for resource, device_id in self._unconfirmed:
            found[resource] = found.get(resource, frozenset()) | {device_id}
        return found

    def gave(self, resource: str, ids: Sequence[str]) -> None:
        """Take note of an `Allocate` that was answered."""
        now = asyncio.get_running_loop().time()
        self._given |= {(resource, device_id): now for device_id in ids}
        self._unconfirmed |= {(resource, device_id): _Unconfirmed(now) for device_id in ids}
        self.look_within(self._times.settle)

    def forget_pods(self) -> None:
        """Take note of another kubelet: it admits every pod anew, and may ask for devices for any of them."""
        self._there_since = {}

    def look_within(self, seconds: float) -> None:
        """Look again no later than in so many seconds."""
        due = asyncio.get_running_loop().time() + seconds
        if due < self._due:
            self._due = due
            self._sooner.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            now = asyncio.get_running_loop().time()
            self._due = now + self._times.every + self._times.jitter * self._jitter()
            await self._until_due(now + self._times.least)

    async def _until_due(self, soonest: float) -> None:
        while True:
            self._sooner.clear()
            try:
                async with asyncio.timeout_at(max(soonest, self._due)):
                    await self._sooner.wait()
            except TimeoutError:
                return

    async def look(self) -> None:
        """Ask the kubelet once, and tell if anything differs."""
        began = asyncio.get_running_loop().time()
        before = (self.pods, self.allocatable, self.problem)
        pods = await self._reader.pods()
        self.problem = self._reader.problem
        self.allocatable = await self._reader.allocatable() if pods is not None else None
        self.pods = None if pods is None else tuple(sorted(pods, key=_place))
        if pods is not None:
            self.looked_at = began
            seen_by = began - self._times.settle
            self._given = {given: at for given, at in self._given.items() if at > seen_by}
            self._there_since = {name: self._there_since.get(name, began) for name in self._reader.names}
            self._confirm(self.pods or (), began)
        if before != (self.pods, self.allocatable, self.problem):
            self._changed()

    def _confirm(self, pods: Sequence[PodDevices], now: float) -> None:
        """Take in a look: forget what it shows, and what only pods can have that are gone."""
        shown = {(row.resource, device_id) for row in pods for device_id in row.ids}
        for given, unconfirmed in list(self._unconfirmed.items()):
            if given in shown:
                del self._unconfirmed[given]
            elif given not in self._given:  # by now it should have shown
                among = self._admitted_at(unconfirmed.at) if unconfirmed.among is None else unconfirmed.among
                among &= self._there_since.keys()
                self._unconfirmed[given] = _Unconfirmed(unconfirmed.at, among)
                if not among or now - unconfirmed.at >= self._times.doubted:
                    del self._unconfirmed[given]

    def _admitted_at(self, at: float) -> frozenset[str]:
        """Return the pods that an answer of this time may have been for.

        The kubelet asks when it admits a pod, and shows it from then on, whatever its containers do.
        """
        return frozenset(name for name, since in self._there_since.items() if since > at - self._times.admitted)


def _place(row: PodDevices) -> tuple[str, str, str, str]:
    return row.namespace, row.pod, row.container, row.resource
