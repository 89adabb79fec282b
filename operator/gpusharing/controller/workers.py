"""The workers: take a key, reconcile it, put a failed one back."""

import asyncio
import time

from gpusharing.controller.context import Context, NotLeading
from gpusharing.controller.reconcile.node import reconcile_node
from gpusharing.controller.reconcile.placements import reconcile_placements
from gpusharing.controller.reconcile.policy import reconcile_policy
from gpusharing.controller.reconcile.shared import reconcile_shared
from gpusharing.core.errors import ApiError
from gpusharing.observability.logs import logger

log = logger(__name__)

RECONCILERS = {
    "node": reconcile_node,
    "policy": reconcile_policy,
    "shared": reconcile_shared,
    "placements": reconcile_placements,
}


class Workers:
    """A fixed number of workers on one queue."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stopping = False
        self._busy = 0
        self._tasks = [asyncio.create_task(self._work()) for _ in range(context.settings.workers_max)]

    async def _work(self) -> None:
        queue = self._context.queue
        while not self._stopping:
            key = await queue.get()
            self._busy += 1
            try:
                await self._reconcile(*key)
            finally:
                self._busy -= 1

    async def _reconcile(self, kind: str, name: str) -> None:
        context, started, failed, after = self._context, time.perf_counter(), False, 0.0
        try:
            await RECONCILERS[kind](context, name)
        except NotLeading:
            self._stopping = True
            context.guard.lost.set()
        except ApiError as error:
            failed, after = True, error.retry_after
            log.warning("try again later", kind=kind, name=name, error=error.message, hint=error.hint)
        except Exception:
            failed = True
            log.exception("reconcile failed: this is a bug, please report it", kind=kind, name=name)
        context.metrics.reconcile_total.labels(kind, "error" if failed else "ok").inc()
        context.metrics.reconcile_seconds.labels(kind).observe(time.perf_counter() - started)
        context.queue.done((kind, name), failed=failed, after=after)  # type: ignore[arg-type]

    async def drain(self, seconds: float) -> None:
        """Take no new key, let writes under way end, then stop."""
        self._stopping = True
        self._context.queue.close()
        deadline = asyncio.get_running_loop().time() + seconds
        while self._busy and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
