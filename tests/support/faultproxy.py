"""A proxy in front of the real API server that fails on request and writes down what passes.

::

    with FaultProxy(cluster) as proxy:
        proxy.fail("list", NODES, status=500, times=3)
        ...                                 # something uses proxy.kubeconfig_for("gpu-sharing-operator", namespace)
        assert [write.verb for write in proxy.writes] == ["apply"]

Verbs are get, list, watch, create, apply, patch, replace and delete. Verb and path of a fault are regular expressions
that must match the whole; of several faults the first that has something left acts. Credentials pass through. The
proxy runs in a thread with a loop of its own, so that any test may use it.
"""

import asyncio
import json
import re
import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, web
from tests.support.cluster import Cluster
from tests.support.cluster.keys import Authority
from tests.support.faults import READS, Act, Fault, OpenWatch, Request, error_frame, status_object, verb_of
from yarl import URL

_HOP_BY_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
_LONGEST_LINE = 8 << 20  # of a watch; etcd takes objects of 1.5 MiB


class FaultProxy:
    """The proxy; a context manager. `server` and `ca` are what clients need to reach it."""

    server: str
    ca: Path

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder = Path(tempfile.mkdtemp(prefix="proxy-", dir=cluster.folder))
        self._faults: list[Fault] = []
        self._requests: list[Request] = []
        self._watches: list[OpenWatch] = []
        self._hooks: list[tuple[int, str, Callable[[Request], None]]] = []
        self._exchanges: set[asyncio.Task[tuple[ClientResponse, bytes]]] = set()
        self._started: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fault proxy")

    def __enter__(self) -> "FaultProxy":
        authority = Authority(self._folder)
        self._certificate = authority.serving("proxy")
        self.ca = authority.pem
        self._thread.start()
        self.server = f"https://127.0.0.1:{self._started.result()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def kubeconfig_for(self, account: str, namespace: str) -> Path:
        """A kubeconfig with a token of that ServiceAccount that leads through this proxy."""
        return self._cluster.kubeconfig_for(account, namespace, server=self.server, ca=self.ca)

    # --- what passed -------------------------------------------------------------------------------------------

    @property
    def requests(self) -> list[Request]:
        """Every request that was answered so far, in the order of the answers."""
        return list(self._requests)

    @property
    def writes(self) -> list[Request]:
        """The writes among them that reached the API server, whatever it answered."""
        return [request for request in self._requests if request.reached and request.verb not in READS]

    def after_write(self, number: int, hook: Callable[[Request], None], *, path: str = ".*") -> None:
        """Call `hook` once, when the `number`-th write from now on is done and its client does not know it yet."""
        self._hooks.append((number, path, hook))

    def watches(self, path: str = ".*") -> list[OpenWatch]:
        """The watches that are open now."""
        return [watch for watch in self._watches if re.fullmatch(path, watch.path)]

    # --- what goes wrong ---------------------------------------------------------------------------------------

    def fail(
        self,
        verb: str,
        path: str,
        *,
        status: int,
        reason: str = "",
        retry_after: int | None = None,
        times: int | None = None,
        after: int = 0,
    ) -> Fault:
        """Answer with a Status; the API server sees nothing of it."""
        body = status_object(status, reason)
        headers = {}
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
            body["details"] = {"retryAfterSeconds": retry_after}

        async def answer(request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
            return web.json_response(body, status=status, headers=headers)

        return self._add(verb, path, answer, times=times, after=after)

    def error_frame(self, path: str, *, status: int = 410, times: int | None = None, after: int = 0) -> Fault:
        """Open the watch, send one ERROR frame and end it."""

        async def answer(request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
            return web.Response(body=error_frame(status), content_type="application/json")

        return self._add("watch", path, answer, times=times, after=after)

    def hang(self, verb: str, path: str, *, inside: bool = False, times: int | None = None, after: int = 0) -> Fault:
        """Do not answer until lifted; `inside`: stop after half the answer (a watch: before its first event)."""

        async def wait(request: web.BaseRequest, fault: Fault) -> None:
            await fault.lifted.wait()

        return self._add(verb, path, wait, inside=inside, times=times, after=after)

    def cut(self, verb: str, path: str, *, inside: bool = False, times: int | None = None, after: int = 0) -> Fault:
        """Break the connection before the API server sees the request; `inside`: when it has done it, half answered."""

        async def abort(request: web.BaseRequest, fault: Fault) -> None:
            await _cut(request)

        return self._add(verb, path, abort, inside=inside, times=times, after=after)

    def delay(
        self, verb: str, path: str, *, seconds: float, inside: bool = False, times: int | None = None, after: int = 0
    ) -> Fault:
        """Let the request (`inside`: the second half of the answer) wait, then pass."""

        async def wait(request: web.BaseRequest, fault: Fault) -> None:
            await asyncio.sleep(seconds)

        return self._add(verb, path, wait, inside=inside, times=times, after=after)

    def _add(self, verb: str, path: str, act: Act, *, inside: bool = False, times: int | None, after: int) -> Fault:
        fault = Fault(verb, path, act, inside, times, after, asyncio.Event(), self._loop)
        self._faults.append(fault)
        return fault

    # --- how it works ------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self._certificate.certificate, self._certificate.key)
        upstream = TCPConnector(ssl=ssl.create_default_context(cafile=self._cluster.ca), limit=0)
        async with ClientSession(
            connector=upstream, timeout=ClientTimeout(), auto_decompress=False, read_bufsize=_LONGEST_LINE
        ) as self._session:
            # cancellation: a client that leaves ends its watch at the API server too
            server = web.Server(self._handle, handler_cancellation=True, access_log=None)
            listener = await self._loop.create_server(server, "127.0.0.1", 0, ssl=tls)
            self._started.set_result(listener.sockets[0].getsockname()[1])
            await self._stop.wait()
            listener.close()
            await _abort_all(server)
            # while the session is open: a request that ends after it leaves its connection behind
            left = tuple(self._exchanges)
            for exchange in left:
                exchange.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        verb = verb_of(request.method, request.path, request.query, request.content_type)
        body = await request.content.read()
        fault = next((fault for fault in self._faults if fault.takes(verb, request.path)), None)
        if fault and not fault.inside:
            if answer := await fault.act(request, fault):
                self._record(request, verb, answer.status, body, reached=False)
                return answer
            fault = None
        try:
            if verb == "watch":
                return await self._stream(request, fault)
            # shielded: the API server goes on when the client leaves, so the log must have it
            exchange = asyncio.create_task(self._exchange(request, verb, body))
            self._exchanges.add(exchange)
            exchange.add_done_callback(self._exchanges.discard)
            return await _relay(request, *await asyncio.shield(exchange), fault)
        except ClientError:
            await _cut(request)
            raise

    async def _exchange(self, request: web.BaseRequest, verb: str, body: bytes) -> tuple[ClientResponse, bytes]:
        async with self._forward(request, body) as upstream:
            content = await upstream.read()
        done = self._record(request, verb, upstream.status, body, reached=True)
        if verb not in READS:
            self._call_hooks(done)
        return upstream, content

    async def _stream(self, request: web.BaseRequest, fault: Fault | None) -> web.StreamResponse:
        async with self._forward(request, b"") as upstream:
            self._record(request, "watch", upstream.status, b"", reached=True)
            response = web.StreamResponse(status=upstream.status, headers=_end_to_end(upstream.headers))
            await response.prepare(request)
            if fault:
                await fault.act(request, fault)
            watch = OpenWatch(request.path, self._loop)
            pump = asyncio.create_task(_pump(upstream, response, watch))
            self._watches.append(watch)
            try:
                endings: list[asyncio.Future[Any]] = [pump, watch.verdict]
                await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._watches.remove(watch)
                ended_by_itself = not pump.cancel()
                if upstream.connection and upstream.connection.transport:
                    upstream.connection.transport.abort()  # or TLS would take its time to say goodbye
            if ended_by_itself:
                pump.result()
            elif last_words := watch.verdict.result():
                await response.write(last_words)
            elif last_words is None:
                await _cut(request)
            await response.write_eof()
            return response

    def _forward(self, request: web.BaseRequest, body: bytes) -> AbstractAsyncContextManager[ClientResponse]:
        url = URL(self._cluster.server + request.raw_path, encoded=True)
        return self._session.request(request.method, url, headers=_end_to_end(request.headers), data=body or None)

    def _record(self, request: web.BaseRequest, verb: str, status: int, body: bytes, *, reached: bool) -> Request:
        content = None
        with suppress(ValueError):
            content = json.loads(body)
        done = Request(verb, request.path, request.query.get("fieldManager", ""), status, reached, content)
        self._requests.append(done)
        return done

    def _call_hooks(self, write: Request) -> None:
        waiting = []
        for number, path, hook in self._hooks:
            left = number - bool(re.fullmatch(path, write.path))
            if left:
                waiting.append((left, path, hook))
            else:
                hook(write)
        self._hooks = waiting


async def _pump(upstream: ClientResponse, response: web.StreamResponse, watch: OpenWatch) -> None:
    """Pass a watch on line by line, each as soon as it is there."""
    async for line in upstream.content:
        if not watch.silent:
            await response.write(line)


async def _relay(
    request: web.BaseRequest, upstream: ClientResponse, content: bytes, fault: Fault | None
) -> web.StreamResponse:
    response = web.StreamResponse(status=upstream.status, headers=_end_to_end(upstream.headers))
    response.content_length = len(content)
    await response.prepare(request)
    half = len(content) // 2 if fault else len(content)
    await response.write(content[:half])
    if fault:
        await fault.act(request, fault)
        await response.write(content[half:])
    await response.write_eof()
    return response


async def _abort_all(server: web.Server) -> None:
    while connections := server.connections:
        for connection in connections:
            if connection.transport:
                connection.transport.abort()
        await asyncio.sleep(0)  # the next turn closes the sockets


async def _cut(request: web.BaseRequest) -> None:
    if request.transport:
        request.transport.abort()
    await asyncio.get_running_loop().create_future()  # this handler is cancelled together with its connection


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
