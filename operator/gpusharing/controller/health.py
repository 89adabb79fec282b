"""Whether the process is alive and ready, and the watchdog that ends it when a watch does not come back.

Kopf 1.45.2 can hang blind and deaf to SIGTERM when one watcher fails while another waits for response headers; so the
watches are watched from outside: a healthy one starts a request each `server_timeout`.
"""

import asyncio
import os
import time
from collections.abc import Callable

from gpusharing.controller.context import Context
from gpusharing.controller.resync import ListState
from gpusharing.kube.watch import WatchStamps
from gpusharing.observability.logs import logger

log = logger(__name__)
HEARTBEAT_SECONDS = 30.0
TICK = 0.25
COUNT_SECONDS = 5.0


class Health:
    """The answers of /livez and /readyz; changed by `app.py` as the process goes through its stages."""

    def __init__(
        self,
        lists: ListState,
        stamps: WatchStamps,
        watchdog_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._lists = lists
        self._stamps = stamps
        self._watchdog_seconds = watchdog_seconds
        self._clock = clock
        self._end = end
        self._beat = clock()
        self._stall = 0.0
        self.leading = False

    def live(self) -> str:
        """Return why the process should be restarted; empty = it should not."""
        if (age := self._clock() - self._beat) > HEARTBEAT_SECONDS:
            return f"the event loop has not run for {age:.0f} s"
        return self._silent_watch()

    def ready(self) -> str:
        """Return why the process does not do its work; a standby is ready."""
        return self._lists.problem if self.leading else ""

    def _silent_watch(self) -> str:
        if self.leading and (age := self._stamps.oldest()) > self._watchdog_seconds:
            return f"a watch has not come back for {age:.0f} s, {self._watchdog_seconds:.0f} s are allowed"
        return ""

    async def watch(self, context: Context) -> None:
        """Beat, measure, and end the process when a watch does not come back."""
        context.metrics.loop_lag_seconds.set_function(self._longest_stall)
        counted = float("-inf")
        while True:
            before = self._clock()
            await asyncio.sleep(TICK)
            self._beat = self._clock()
            self._stall = max(self._stall, self._beat - before - TICK)
            context.metrics.queue_depth.set(len(context.queue))
            context.metrics.queue_oldest_seconds.set(context.queue.oldest())
            context.metrics.concurrency_limit.set(context.pace.limit)
            if self._beat - counted >= COUNT_SECONDS:
                counted = self._beat
                _count(context)
            if why := self._silent_watch():
                log.critical("watchdog ends the process", why=why, hint="the standby takes over, the pod restarts")
                self._end(1)

    def _longest_stall(self) -> float:
        stall, self._stall = self._stall, 0.0
        return stall


def _count(context: Context) -> None:
    """Count nodes, policies and placements; all of them, hence not each tick."""
    cache, metrics = context.cache, context.metrics
    metrics.count_by(metrics.nodes, (state.plan.change for state in cache.states.values()))
    conditions = (condition for seen in cache.policies.values() for condition in seen.status.conditions)
    metrics.count_by(metrics.policies, (condition.type for condition in conditions if condition.status == "True"))
    placements = [placement.status.conditions for placement in cache.placing.placements.values()]
    ready = (condition for conditions in placements for condition in conditions if condition.type == "Ready")
    metrics.count_by(metrics.placements, (condition.reason for condition in ready))
