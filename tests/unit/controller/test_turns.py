"""A long pass lets others run."""

import asyncio
import time

from gpusharing.controller.turns import TURN_SECONDS, in_turns


async def test_all_items_come_in_their_order() -> None:
    assert [item async for item in in_turns(range(1000))] == list(range(1000))


async def test_others_run_while_a_pass_takes_long_and_not_at_every_item() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    await asyncio.sleep(0)
    before = turns
    async for _ in in_turns(range(5)):  # each takes longer than a turn may last
        until = time.perf_counter() + TURN_SECONDS * 1.1
        while time.perf_counter() < until:
            pass
    assert turns - before == 5
    running.cancel()
