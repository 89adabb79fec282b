"""What every worker needs, made once by `app.py` and passed along."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gpusharing.controller.cache import Cache
from gpusharing.controller.keys import PLACEMENTS_KEY, SHARED_KEY, Key
from gpusharing.controller.pace import Pace
from gpusharing.controller.queue import WorkQueue
from gpusharing.controller.settings import Settings
from gpusharing.core.errors import ApiError
from gpusharing.kube.client import Client, JsonObject
from gpusharing.kube.events import EventRecorder
from gpusharing.kube.lease import LeaseGuard
from gpusharing.observability.metrics import Metrics

# seconds for which changes are collected before placements are planned
PLACEMENTS_DEBOUNCE = 0.2


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
    # policy, or namespace/name of a placement → when its status may be written next
    status_due: dict[str, float] = field(default_factory=dict)
    # set where the process has to begin anew, with other watches
    outdated: asyncio.Event = field(default_factory=asyncio.Event)
    # what was said last about a subject
    said: dict[str, str] = field(default_factory=dict)

    def enqueue(self, keys: set[Key]) -> None:
        """Put keys on the queue, in an order that does not depend on hashing."""
        for key in sorted(keys):
            if key == SHARED_KEY:  # each write of it goes to every node that mounts it
                self.queue.add_later(key, self.settings.shared_debounce)
            elif key == PLACEMENTS_KEY:  # all of them are planned anew
                self.queue.add_later(key, PLACEMENTS_DEBOUNCE)
            else:
                self.queue.add(key)

    def say_once(self, subject: str, what: str) -> bool:
        """Whether this was not what was said last about the subject."""
        news = self.said.get(subject) != what
        self.said[subject] = what
        return news

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
