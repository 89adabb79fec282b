"""An HTTP server on loopback that writes down what it was asked, and answers what it was told to."""

import asyncio
import json
import tempfile
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration
from tests.support.cluster.keys import Authority
from tests.unit.kube.answers import Answer

from gpusharing.kube.client import Client


@cache
def _authority() -> str:
    """One certificate to trust: loading the machine's hundreds would take most of the time of these tests."""
    with tempfile.TemporaryDirectory() as folder:
        return Authority(Path(folder)).pem.read_text()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came over the wire."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Echo:
    """The server; use as `async with`. Without orders it answers 200 and an empty object."""

    url: str

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._answers: deque[Answer] = deque()

    def answers(self, *answers: Answer) -> None:
        """Give these answers to the next requests, in order."""
        self._answers.extend(answers)

    def client(self, *, prefix: str = "", timeout: float = 10, **options: Any) -> Client:
        """A client of this server."""
        return Client(self.configuration(prefix), timeout=timeout, **options)

    def configuration(self, prefix: str = "") -> Configuration:
        """How the server is reached; `prefix` is the path of a gateway before it."""
        return Configuration(host=f"{self.url}{prefix}", ca_cert_data=_authority())

    async def __aenter__(self) -> "Echo":
        # cancellation: what hangs ends with its client
        self._server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        self._listener = await asyncio.get_running_loop().create_server(self._server, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for connection in self._server.connections:
            if connection.transport:
                connection.transport.abort()
        await self._server.shutdown(timeout=0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.text()
        asked = Asked(
            request.method, request.path, dict(request.query), dict(request.headers), json.loads(body) if body else None
        )
        self.asked.append(asked)
        answer = self._answers.popleft() if self._answers else Answer()
        if answer.cut and request.transport:
            request.transport.abort()
        if answer.cut or answer.hangs:
            await asyncio.Event().wait()
        return web.Response(body=answer.raw, status=answer.status, headers=answer.headers)
