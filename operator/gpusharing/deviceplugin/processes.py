"""Which GPUs processes compute on: asked of the driver only while a GPU is about to change its owner.

The kubelet does not say what plain init containers hold, and nothing of a process that was started past it. The driver
sees both, unless it does not tell: then nobody counts as a holder by it, and nothing waits (placement guide, 8.2).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gpusharing.discovery.base import DiscoveryError
from gpusharing.observability.logs import logger

log = logger(__name__)


class GpuProcesses:
    """The GPUs with processes, by the last look. `changed` is called when they are others."""

    def __init__(
        self, ask: Callable[[], Awaitable[frozenset[str]]], changed: Callable[[], None], *, every: float = 2.0
    ) -> None:
        """`ask` returns their UUIDs within its own deadline, or raises DiscoveryError. `every` is seconds."""
        self._ask = ask
        self._changed = changed
        self._every = every
        self._minded = False
        self._news = asyncio.Event()
        # how often it began or ceased to matter: an answer to a question from before counts no more
        self._turns = 0
        # None = it does not matter, or the first look is still under way
        self.computing: frozenset[str] | None = None

    def mind(self, matters: bool) -> None:
        """Take in whether it matters now. Each time it begins to, nothing is known before another look."""
        if matters == self._minded:
            return
        self._minded = matters
        self._turns += 1
        self.computing = None
        self._news.set()

    async def run(self) -> None:
        """Look as long as it matters; until cancelled."""
        while True:
            self._news.clear()
            if self._minded:
                await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every if self._minded else None):
                    await self._news.wait()

    async def _look(self) -> None:
        asked_in = self._turns
        found = await self._answer()
        if asked_in == self._turns and found != self.computing:
            self.computing = found
            self._changed()

    async def _answer(self) -> frozenset[str]:
        try:
            return await self._ask()
        except DiscoveryError:
            return frozenset()  # `hardware.py` tells of a driver that does not answer
        except Exception:
            log.exception("looking for processes on GPUs failed: this is a bug, please report it")
            return frozenset()
