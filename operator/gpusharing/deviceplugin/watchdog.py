"""A thread that ends the process when its event loop is stuck: the one thread of the plugin (fault F08).

The kubelet has no deadline for a device plugin: with our loop stuck no pod of the node starts, and the node looks fine.
"""

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable

STUCK_SECONDS = 10.0
BEAT_SECONDS = 0.5
EXIT_STUCK = 3
STDERR = 2


class Watchdog:
    """Counts on `beat()` being called; an async task does so as long as the loop turns."""

    def __init__(
        self,
        stuck: float = STUCK_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._stuck = stuck
        self._clock = clock
        self._end = end
        self._last = clock()
        self._stop = threading.Event()

    def beat(self) -> None:
        """Say that the loop turns."""
        self._last = self._clock()

    @property
    def silent(self) -> float:
        """Return for how many seconds nothing was said."""
        return self._clock() - self._last

    def check(self) -> None:
        """End the process if the loop is stuck, and show where all threads are."""
        if self.silent > self._stuck:
            print(
                f"watchdog: the event loop has been stuck for {self.silent:.0f} s, ending", file=sys.stderr, flush=True
            )
            faulthandler.dump_traceback(file=STDERR)
            self._end(EXIT_STUCK)

    async def run(self) -> None:
        """Beat, and have a thread look, until cancelled."""
        self.beat()
        thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
        thread.start()
        try:
            while True:
                await asyncio.sleep(min(BEAT_SECONDS, self._stuck / 4))
                self.beat()
        finally:
            self._stop.set()

    def _look(self) -> None:
        period = min(BEAT_SECONDS, self._stuck / 4)
        before = self._clock()
        while not self._stop.wait(period):
            now = self._clock()
            if now - before > self._stuck / 2:
                # The whole process was stopped, not the loop alone (SIGSTOP, a paused VM): give the loop its time.
                self.beat()
            before = now
            self.check()
