"""What every worker needs, made once by `app.py` and passed along."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gpusharing.controller.cache import SHARED_KEY, Cache, Key
from gpusharing.controller.pace import Pace
from gpusharing.controller.queue import WorkQueue
from gpusharing.controller.settings import Settings
from gpusharing.core.errors import ApiError
from gpusharing.kube.client import Client, JsonObject
from gpusharing.kube.events import EventRecorder
from gpusharing.kube.lease import LeaseGuard
from gpusharing.observability.metrics import Metrics


class NotLeading(Exception):
    """The lease is lost: nothing may be written any more, and the process ends."""


@dataclass(frozen=True, slots=True)
class Context:
    """Client, cache, queue and the rest."""

    settings: Settings
    client: Client
    cache: Cache
    queue: WorkQueue[Key]
    pace: Pace
    guard: LeaseGuard
    recorder: EventRecorder
    metrics: Metrics
    clock: Callable[[], float]
    # policy → when its status may be written next
    status_due: dict[str, float] = field(default_factory=dict)

    def enqueue(self, keys: set[Key]) -> None:
        """Put keys on the queue, in an order that does not depend on hashing."""
        for key in sorted(keys):
            if key == SHARED_KEY:  # each write of it goes to every node that mounts it
                self.queue.add_later(key, self.settings.shared_debounce)
            else:
                self.queue.add(key)

    async def write(self, request: Callable[[], Awaitable[JsonObject | None]]) -> JsonObject | None:
        """Make one write: only while leading, at the pace that the API server can take."""
        async with self.pace:
            if not self.guard.held:
                raise NotLeading
            started = self.clock()
            try:
                answer = await request()
            except ApiError as error:
                if error.status in {0, 429, 503, 504}:
                    self.pace.overloaded()
                raise
            self.pace.succeeded(self.clock() - started)
            return answer
