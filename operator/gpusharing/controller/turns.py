"""Lets other tasks run while one has much to do: the lease, the watches and /livez wait for nobody."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

TURN_SECONDS = 0.02


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; whenever 20 ms have passed, others come first."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began > TURN_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()
