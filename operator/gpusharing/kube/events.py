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

# name, count, message, when
Posted = tuple[str, int, str, float]


class EventRecorder:
    """Posts Events. A failed post is dropped: Events are news, the state is in the status."""

    def __init__(
        self,
        client: Client,
        *,
        component: str = names.COMPONENT,
        clock: Callable[[], float] = time.monotonic,
        on_drop: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._on_drop = on_drop
        # (uid, reason) → what was posted; the oldest is forgotten first
        self._posted: dict[tuple[str, str], Posted] = {}
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
        try:
            name, count = await self._count_up(known, event) or await self._create(event)
            self._remember(key, (name, count, event.message, now))
        except ApiError as error:
            self._posted.pop(key, None)
            self._on_drop(str(error))

    async def _count_up(self, known: Posted | None, event: Event) -> tuple[str, int] | None:
        """Count a former Event up. Returns its name and count; None = there is none, for Events live an hour."""
        if known is None:
            return None
        name, count = known[0], known[1] + 1
        moment = rfc3339(datetime.now(UTC))
        change = {"count": count, "lastTimestamp": moment, "message": event.message, "type": event.type}
        try:
            await self._client.merge(f"{paths.events(event.namespace)}/{name}", change)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return name, count

    async def _create(self, event: Event) -> tuple[str, int]:
        """Post a new Event. Returns its name and count."""
        body = _body(event, rfc3339(datetime.now(UTC)), self._component)
        await self._client.create(paths.events(event.namespace), body)
        return str(body["metadata"]["name"]), 1

    def _remember(self, key: tuple[str, str], entry: Posted) -> None:
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


def _body(event: Event, moment: str, component: str) -> JsonObject:
    """Return a new Event, in its object's namespace.

    That of a cluster-scoped object is `default` and the object's own empty, or `kubectl describe` misses it.
    """
    unique = hashlib.sha256(f"{event.uid}{event.reason}{moment}{time.monotonic_ns()}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{event.name[:200].rstrip('.-')}.{unique}", "namespace": event.namespace or "default"},
        "involvedObject": {
            "apiVersion": event.api_version,
            "kind": event.kind,
            "name": event.name,
            "uid": event.uid,
            **({"namespace": event.namespace} if event.namespace else {}),
        },
        "type": event.type,
        "reason": str(event.reason),
        "message": event.message,
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": component},
        "reportingComponent": component,
    }
