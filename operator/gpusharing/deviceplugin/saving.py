"""Saves what the plugin serves a moment after it changes, so that a restart goes on from there (fault F25)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gpusharing.core.acceptance import Accepted
from gpusharing.core.listing import Listing


@dataclass(frozen=True, slots=True)
class State:
    """What outlives a restart."""

    accepted: Accepted | None = None
    listing: Listing = field(default_factory=Listing)
    # the node's container runtime; empty = not known
    runtime: str = ""


class Saving:
    """Keeps the saved state true. The kubelet hears of a change first, and nothing waits for a disk."""

    def __init__(
        self, save: Callable[[State], bool], current: Callable[[], State], saved: State, *, after: float, again: float
    ) -> None:
        """`save` returns whether it could. Seconds: `after` a change, and `again` after a disk that failed."""
        self._save = save
        self._current = current
        self._saved = saved
        self._after = after
        self._again = again
        self._unsaved = asyncio.Event()

    def note(self) -> None:
        """Take note that there may be something to save."""
        self._unsaved.set()

    async def run(self) -> None:
        """Save until cancelled."""
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            await asyncio.sleep(self._after)
            if not self.now():
                await asyncio.sleep(self._again)
                self._unsaved.set()

    def now(self) -> bool:
        """Save what differs from what was saved; return whether all is."""
        state = self._current()
        if state != self._saved and self._save(state):
            self._saved = state
        return state == self._saved
