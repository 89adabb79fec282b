"""Posts core/v1 Events: one object per (uid, reason), counted up; a burst of 25 per object, then one in 5 minutes."""

import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime

from gpusharing.api import names
from gpusharing.api.meta import rfc3339
from gpusharing.core.errors import ApiError
from gpusharing.core.events import Event
from gpusharing.kube import paths
from gpusharing.kube.client import Client, JsonObject

BURST = 25
REFILL_SECONDS = 300.0
REPEAT_SECONDS = 300.0
REMEMBERED = 4096


class EventRecorder:
    """Posts Events. A failed post is dropped: Events are news, the state is in the status."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_drop: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._on_drop = on_drop
        # (uid, reason) → (name, count, message, last); the oldest is forgotten first
        self._posted: dict[tuple[str, str], tuple[str, int, str, float]] = {}
        self._tokens: dict[str, tuple[float, float]] = {}

    async def post(self, event: Event) -> None:
        """Post the Event, or count it up where it was posted before; the same words again within 5 min are dropped."""
        key, now = (event.uid, str(event.reason)), self._clock()
        known = self._posted.get(key)
        if known is not None and known[2] == event.message and now - known[3] < REPEAT_SECONDS:
            return
        if not self._allowed(event.uid, now):
            self._on_drop("rate")
            return
        moment = rfc3339(datetime.now(UTC))
        try:
            if known is not None:
                await self._client.merge(
                    f"{paths.EVENTS}/{known[0]}",
                    {"count": known[1] + 1, "lastTimestamp": moment, "message": event.message, "type": event.type},
                )
                self._remember(key, (known[0], known[1] + 1, event.message, now))
                return
            body = _body(event, moment)
            await self._client.create(paths.EVENTS, body)
            self._remember(key, (body["metadata"]["name"], 1, event.message, now))
        except ApiError as error:
            self._posted.pop(key, None)  # an Event lives an hour: the next one is created anew
            self._on_drop(str(error))

    def _remember(self, key: tuple[str, str], entry: tuple[str, int, str, float]) -> None:
        self._posted.pop(key, None)
        self._posted[key] = entry
        while len(self._posted) > REMEMBERED:
            self._posted.pop(next(iter(self._posted)))

    def _allowed(self, uid: str, now: float) -> bool:
        tokens, last = self._tokens.pop(uid, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - last) / REFILL_SECONDS)
        allowed = tokens >= 1
        self._tokens[uid] = (tokens - 1 if allowed else tokens, now)
        while len(self._tokens) > REMEMBERED:
            self._tokens.pop(next(iter(self._tokens)))
        return allowed


def _body(event: Event, moment: str) -> JsonObject:
    """Return a new Event. Its namespace is `default` and the object's empty, or `kubectl describe` misses it."""
    unique = hashlib.sha256(f"{event.uid}{event.reason}{moment}{time.monotonic_ns()}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{event.name[:200].rstrip('.-')}.{unique}", "namespace": "default"},
        "involvedObject": {
            "apiVersion": event.api_version,
            "kind": event.kind,
            "name": event.name,
            "uid": event.uid,
        },
        "type": event.type,
        "reason": str(event.reason),
        "message": event.message,
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": names.COMPONENT},
        "reportingComponent": names.COMPONENT,
    }
