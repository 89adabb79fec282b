"""The HTTP session that Kopf watches with: metadata-only nodes, and a stamp for every watch that is alive."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from yarl import URL

from gpusharing.kube import paths
from gpusharing.kube.client import Client, metadata_only

_WATCHED = {paths.NODES, paths.POLICIES, paths.GPU_NODES, paths.placements(), paths.QUOTAS}


class WatchStamps:
    """When each watched path last started a list or a watch; a healthy watch does so each `server_timeout`.

    `on_relist` is called when a path is listed anew: Kopf then never says what was deleted in between.
    """

    def __init__(
        self, on_relist: Callable[[], object] = lambda: None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._on_relist = on_relist
        self._stamps: dict[str, float] = {}

    def stamp(self, path: str, query: Mapping[str, str]) -> None:
        """Note that the path is listed or watched now."""
        if path in self._stamps and not query.get("watch") and not query.get("continue"):
            self._on_relist()
        self._stamps[path] = self._clock()

    def oldest(self) -> float:
        """Return the age in seconds of the watch that has been silent for longest; 0 before the first."""
        return max((self._clock() - stamp for stamp in self._stamps.values()), default=0.0)


class _ListResponse(aiohttp.ClientResponse):
    """An empty metadata-only list says `items: null`, over which Kopf 1.45.2 dies."""

    async def json(self, **options: Any) -> Any:
        body = await super().json(**options)
        if isinstance(body, dict) and body.get("items", ()) is None:
            body["items"] = []
        return body


def watch_session(client: Client, stamps: WatchStamps, *, full_nodes: bool) -> aiohttp.ClientSession:
    """Return a new session; Kopf closes it on a 401 and asks for another."""
    prefix = URL(client.server).path.rstrip("/")  # of a server behind a gateway: https://host/k8s/clusters/c-1

    async def shape(
        request: aiohttp.ClientRequest, call: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]
    ) -> aiohttp.ClientResponse:
        if token := await client.authorization():
            request.headers["Authorization"] = token
        path = request.url.path.removeprefix(prefix)
        if request.method == "GET" and path in _WATCHED:
            stamps.stamp(path, request.url.query)
            if path == paths.NODES and not full_nodes:
                suffix = "" if request.url.query.get("watch") else "List"
                request.headers["Accept"] = metadata_only(f"PartialObjectMetadata{suffix}")
        return await call(request)

    connector = aiohttp.TCPConnector(limit=0, ssl=client.tls)
    return aiohttp.ClientSession(connector=connector, middlewares=(shape,), response_class=_ListResponse)
