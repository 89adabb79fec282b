"""How many writes may be under way at once: halved when the API server is overloaded, one more after a good window."""

import asyncio
from collections import deque
from types import TracebackType

START = 16


class Pace:
    """An adaptive limit (AIMD). Used as `async with pace:` around one write."""

    def __init__(self, most: int, *, start: int = START) -> None:
        self._most = most
        self.limit = min(start, most)
        self._under_way = 0
        self._good = 0
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

    def succeeded(self) -> None:
        """Count a success; a whole window of them allows one more."""
        self._good += 1
        if self._good >= self.limit and self.limit < self._most:
            self.limit, self._good = self.limit + 1, 0
            self._wake()

    def overloaded(self) -> None:
        """Halve the limit: 429, 503 or a time-out."""
        self.limit, self._good = max(1, self.limit // 2), 0

    def _wake(self) -> None:
        while self._waiting and self._under_way < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
