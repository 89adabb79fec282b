"""How many writes may be under way at once: as many as the API server can take without making anybody wait.

Halved when it says that it is overloaded; one more after a good window. When it answers slowly, more writes only
lengthen its queue, in which everybody waits, our own lease included: then a quarter less, but not less than at first,
for it may be slow for reasons that are not ours.
"""

import asyncio
from collections import deque
from types import TracebackType

START = 16
SLOW_SECONDS = 1.0


class Pace:
    """An adaptive limit (AIMD). Used as `async with pace:` around one write."""

    def __init__(self, most: int, *, start: int = START) -> None:
        self._most = most
        self._start = self.limit = min(start, most)
        self._under_way = 0
        self._good = self._slow = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        """Wait for a place."""
        while self._under_way >= self.limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
        self._under_way += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the place back."""
        self._under_way -= 1
        self._wake()

    def succeeded(self, seconds: float = 0.0) -> None:
        """Count a success and how long it took; a whole window of them changes the limit."""
        self._good += 1
        self._slow += seconds > SLOW_SECONDS
        if self._good < self.limit:
            return
        crowded = self._slow * 2 > self._good
        self._good = self._slow = 0
        if crowded:
            self.limit = min(self.limit, max(self._start, self.limit * 3 // 4))
        elif self.limit < self._most:
            self.limit += 1
            self._wake()

    def overloaded(self) -> None:
        """Halve the limit: 429, 503 or a time-out."""
        self.limit = max(1, self.limit // 2)
        self._good = self._slow = 0

    def _wake(self) -> None:
        while self._waiting and self._under_way < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
