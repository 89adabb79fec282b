"""The keyed work queue: a key waits at most once and is worked on by at most one worker (client-go's semantics)."""

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys without payload: whoever works on one decides anew from what is known then."""

    def __init__(self, *, base: float = 0.2, cap: float = 300.0) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._dirty: dict[K, float] = {}
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._base, self._cap = base, cap

    def __len__(self) -> int:
        """Return how many keys wait for a worker."""
        return len(self._dirty)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nobody works."""
        return not self._dirty and not self._busy

    def oldest(self) -> float:
        """Return how many seconds the key that has waited longest waits."""
        first = next(iter(self._dirty.values()), None)
        return asyncio.get_running_loop().time() - first if first is not None else 0.0

    def add(self, key: K) -> None:
        """Work on the key soon; one that is being worked on now is worked on once more."""
        if timer := self._later.pop(key, None):
            timer.cancel()
        if key in self._dirty:
            return
        self._dirty[key] = asyncio.get_running_loop().time()
        if key not in self._busy:
            self._ready.put_nowait(key)

    def add_later(self, key: K, delay: float) -> None:
        """Work on the key after the delay, or sooner where something asks for it before."""
        if key in self._dirty:
            return
        loop = asyncio.get_running_loop()
        timer = self._later.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._later[key] = loop.call_later(delay, self.add, key)

    async def get(self) -> K:
        """Return the next key; `done` must follow."""
        key = await self._ready.get()
        self._dirty.pop(key, None)
        self._busy.add(key)
        return key

    def done(self, key: K, *, failed: bool = False, after: float = 0.0) -> None:
        """End the work on a key. A failed one comes back after 0.2 s, doubling to 300 s, never before `after`."""
        self._busy.discard(key)
        if failed:
            count = self._failures[key] = self._failures.get(key, 0) + 1
            wait = min(self._cap, self._base * float(1 << min(count - 1, 20))) * random.uniform(0.5, 1)
            self.add_later(key, max(after, wait))
        else:
            self._failures.pop(key, None)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def close(self) -> None:
        """Forget the keys that wait for their time."""
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
