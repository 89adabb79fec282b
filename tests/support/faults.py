"""What the fault proxy speaks in: requests that passed, faults to come, watches that are open."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

READS = ("get", "list", "watch")
_COLLECTION = re.compile(r"/(api/v1|apis/[^/]+/[^/]+)(/namespaces/[^/]+)?/[^/]+")
_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}

Act = Callable[[web.BaseRequest, "Fault"], Awaitable[web.StreamResponse | None]]


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered: by the API server or, when it has not `reached` that, by a fault."""

    verb: str
    path: str
    manager: str
    status: int
    reached: bool
    body: Any = field(repr=False, default=None)


@dataclass(slots=True)
class Fault:
    """Something that goes wrong, `times` times (None: until lifted), after the first `after` matching requests."""

    verb: str
    path: str
    act: Act
    inside: bool
    times: int | None
    after: int
    lifted: asyncio.Event
    loop: asyncio.AbstractEventLoop
    matched: int = 0
    """How many requests it met so far, those that `after` let pass included."""

    def lift(self) -> None:
        """Let further requests pass, and those that hang go on."""
        self.times = 0
        self.loop.call_soon_threadsafe(self.lifted.set)

    def takes(self, verb: str, path: str) -> bool:
        """Count a request; whether the fault acts on it."""
        if not (re.fullmatch(self.verb, verb) and re.fullmatch(self.path, path)):
            return False
        if self.times is not None and self.matched >= self.after + self.times:
            return False
        self.matched += 1
        return self.matched > self.after


class OpenWatch:
    """A watch that is open now."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self.silent = False
        self.verdict: asyncio.Future[bytes | None] = loop.create_future()
        """How it ends before its time: last words, or None for a cut."""

    def silence(self) -> None:
        """Keep it open and let no further event through."""
        self.silent = True

    def cut(self) -> None:
        """Break the connection."""
        self._end(None)

    def end(self) -> None:
        """End the stream properly, as the server does on its timeout."""
        self._end(b"")

    def send_error(self, status: int = 410) -> None:
        """Send an ERROR frame, then end the stream: what the server does when a resourceVersion is too old."""
        self._end(error_frame(status))

    def _end(self, last_words: bytes | None) -> None:
        def decide() -> None:
            if not self.verdict.done():
                self.verdict.set_result(last_words)

        self.verdict.get_loop().call_soon_threadsafe(decide)


def verb_of(method: str, path: str, query: Mapping[str, str], content_type: str) -> str:
    """The API's word for a request."""
    if method == "GET":
        if query.get("watch") in ("true", "1"):
            return "watch"
        return "list" if _COLLECTION.fullmatch(path) else "get"
    if method == "PATCH":
        return "apply" if content_type.startswith("application/apply-patch") else "patch"
    return {"POST": "create", "PUT": "replace"}.get(method, method.lower())


def status_object(status: int, reason: str = "") -> dict[str, Any]:
    reason = reason or _REASONS.get(status, "InternalError")
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{reason}, said by the fault proxy",
        "reason": reason,
        "code": status,
    }


def error_frame(status: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": status_object(status)}).encode() + b"\n"
