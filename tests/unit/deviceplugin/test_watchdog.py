"""The thread that ends a process whose event loop is stuck."""

import asyncio
import subprocess
import sys

import pytest

from gpusharing.deviceplugin.watchdog import EXIT_STUCK, Watchdog

STUCK = """
import asyncio, time
from gpusharing.deviceplugin.watchdog import Watchdog

async def main():
    watching = asyncio.create_task(Watchdog(0.4).run())
    await asyncio.sleep(0.1)
    time.sleep(60)

asyncio.run(main())
"""


class Ended:
    """Notes the exit status that the process would have had."""

    def __init__(self) -> None:
        self.with_status: list[int] = []

    def __call__(self, status: int) -> None:
        self.with_status.append(status)


@pytest.mark.fault("F08")
@pytest.mark.parametrize(("silent", "ends"), [(9.9, []), (10.1, [EXIT_STUCK])])
def test_a_loop_that_says_nothing_for_ten_seconds_ends_the_process(
    silent: float, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    now, ended = [100.0], Ended()
    watchdog = Watchdog(clock=lambda: now[0], end=ended)
    now[0] += silent
    watchdog.check()
    assert ended.with_status == ends
    assert ("stuck for 10 s" in capsys.readouterr().err) == bool(ends)


@pytest.mark.fault("F08")
def test_a_real_process_with_a_stuck_loop_ends_with_its_own_status() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=50)
    assert done.returncode == EXIT_STUCK
    assert "event loop has been stuck" in done.stderr
    assert "in main" in done.stderr  # ... where it is stuck


async def test_a_loop_that_turns_is_left_alone() -> None:
    ended = Ended()
    watchdog = Watchdog(0.2, end=ended)
    watching = asyncio.create_task(watchdog.run())
    async with asyncio.timeout(30):
        for _ in range(40):
            await asyncio.sleep(0.01)
    watching.cancel()
    assert ended.with_status == []
