"""One client per process: credentials, deadlines and a few verbs on plain dicts.

`kubernetes.aio` brings configuration, credentials and connection pool; requests go through its low-level door, since
typed models cost three times the CPU and refuse answers that real servers send (kubernetes 37.0.2).
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from gpusharing.core.errors import ApiError, InvalidInput

JsonObject = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STEPS = "application/json-patch+json"
PAGE = 250  # decoding a page stops the loop: 20 ms for 2 MB


@dataclass(frozen=True, slots=True)
class Call:
    """One finished request, for metrics. `code` 0 = no answer."""

    verb: str
    path: str
    code: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Page:
    """Some items of a collection, and the version of the whole list."""

    items: list[JsonObject]
    version: int


def version_of(metadata: Mapping[str, Any]) -> int:
    """Return a resourceVersion as the number that it is on every real server; 0 = not said."""
    text = str(metadata.get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0


def metadata_only(kind: str = "PartialObjectMetadata") -> str:
    """Return the Accept header that asks for metadata alone; a LIST wants the kind with `List` behind it."""
    return f"application/json;as={kind};g=meta.k8s.io;v=v1"


class Client:
    """The API server. Every verb raises ApiError; none retries."""

    def __init__(
        self,
        configuration: kubernetes_client.Configuration,
        *,
        timeout: float = 30.0,
        on_call: Callable[[Call], None] = lambda call: None,
    ) -> None:
        configuration.client_session_kwargs = {"trust_env": False}  # else proxies and ~/.netrc, on each request
        configuration.retries = None  # 0 would mean without end (aiohttp_retry 2): a 5xx would look like no answer
        self._configuration = configuration
        self._api = kubernetes_client.ApiClient(configuration)
        self._timeout = timeout
        self._on_call = on_call

    @property
    def server(self) -> str:
        """Return the API server's URL."""
        return str(self._configuration.host)

    @property
    def tls(self) -> ssl.SSLContext:
        """Return the TLS context, for a session of somebody else's."""
        context: ssl.SSLContext = self._api.rest_client.ssl_context
        return context

    async def authorization(self) -> str:
        """Return the Authorization header; a projected token is read again when it is a minute old."""
        return str(await self._configuration.get_api_key_with_prefix("BearerToken") or "")

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def get(self, path: str, *, accept: str = "application/json") -> JsonObject:
        """Read one object."""
        return await self._call("get", "GET", path, accept=accept)

    async def pages(
        self, path: str, *, selector: str = "", field: str = "", only_metadata: bool = False
    ) -> AsyncIterator[Page]:
        """Yield a collection page by page. One that breaks off raises: what was not seen is unknown, not gone."""
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        if field:
            query["fieldSelector"] = field
        accept = metadata_only("PartialObjectMetadataList") if only_metadata else "application/json"
        while True:
            page = await self._call("list", "GET", path, query=query, accept=accept)
            metadata = page.get("metadata") or {}
            # an empty metadata-only list says `items: null`
            yield Page(page.get("items") or [], version_of(metadata))
            if not (more := metadata.get("continue")):
                return
            query["continue"] = more

    async def list(self, path: str, *, field: str = "", only_metadata: bool = False) -> list[JsonObject]:
        """Return a whole collection."""
        return [
            item async for page in self.pages(path, field=field, only_metadata=only_metadata) for item in page.items
        ]

    async def apply(
        self, path: str, body: JsonObject, *, manager: str, force: bool = False, only_metadata: bool = False
    ) -> JsonObject:
        """Server-side apply: everything that `manager` owns stands in the body, what it omits is given up."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        accept = metadata_only() if only_metadata else "application/json"
        return await self._call("apply", "PATCH", path, query=query, body=body, content=APPLY, accept=accept)

    async def merge(self, path: str, body: JsonObject) -> JsonObject:
        """Change some fields of one object."""
        return await self._call("patch", "PATCH", path, body=body, content=MERGE)

    async def change(self, path: str, steps: Sequence[JsonObject], *, only_metadata: bool = False) -> JsonObject:
        """Change one object by the steps of a JSON patch, all or none; 422 where a `test` among them fails."""
        accept = metadata_only() if only_metadata else "application/json"
        return await self._call("patch", "PATCH", path, body=list(steps), content=STEPS, accept=accept)

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """Create an object; 409 when it exists."""
        return await self._call("create", "POST", path, body=body)

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """Replace an object; 409 when the body's resourceVersion is stale."""
        return await self._call("update", "PUT", path, body=body)

    async def delete(self, path: str) -> None:
        """Delete an object; one that is not there is fine."""
        try:
            await self._call("delete", "DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    async def watch(
        self,
        path: str,
        *,
        version: int,
        field: str = "",
        only_metadata: bool = False,
        seconds: int = 300,
        silence: float = 150.0,
    ) -> AsyncIterator[JsonObject]:
        """Yield the events `{"type", "object"}` of a collection after a version, bookmarks too, for some seconds.

        Raises ApiError for what the server reports as an error (410: the version is too old), and where the stream
        breaks off or is silent: a bookmark comes each minute, so that a dead connection is told from a quiet one.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        query |= {"resourceVersion": str(version), **({"fieldSelector": field} if field else {})}
        headers = await self._headers(accept=metadata_only() if only_metadata else "application/json")
        limits = aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=silence)
        started, code = time.perf_counter(), 0
        try:
            response = await self._api.rest_client.request(
                "GET", f"{self.server}{path}?{urlencode(query)}", headers=headers, _request_timeout=limits
            )
            code = response.status
            try:
                if code >= 400:
                    retry_after = response.headers.get("Retry-After", "")
                    raise _refusal("watch", path, code, await response.read(), retry_after)
                async for line in _lines(response.response.content):
                    yield _event("watch", path, line)
            finally:
                response.response.close()
        except (aiohttp.ClientError, TimeoutError, OSError, kubernetes_config.ConfigException) as error:
            raise ApiError(f"watch {path}: {type(error).__name__}: {error}".rstrip(": ")) from error
        finally:
            self._on_call(Call("watch", path, code, time.perf_counter() - started))

    async def _headers(self, *, accept: str, content: str = "application/json") -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": content, "User-Agent": "gpu-sharing-operator"}
        # the API server is what everything waits for: it need not compress its pages, nor we unpack them
        headers["Accept-Encoding"] = "identity"
        if token := await self.authorization():
            headers["Authorization"] = token
        return headers

    async def _call(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: JsonObject | Sequence[JsonObject] | None = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> JsonObject:
        url = f"{self.server}{path}{'?' + urlencode(query) if query else ''}"
        started, code = time.perf_counter(), 0
        try:
            async with asyncio.timeout(self._timeout):
                headers = await self._headers(accept=accept, content=content)
                response = await self._api.rest_client.request(
                    method, url, headers=headers, body=body, _request_timeout=self._timeout
                )
                data = await response.read()
            code = response.status
        except (aiohttp.ClientError, TimeoutError, OSError, kubernetes_config.ConfigException) as error:
            raise ApiError(f"{verb} {path}: {type(error).__name__}: {error}".rstrip(": ")) from error
        finally:
            self._on_call(Call(verb, path, code, time.perf_counter() - started))
        if code >= 400:
            raise _refusal(verb, path, code, data, response.headers.get("Retry-After", ""))
        return _parsed(verb, path, data)


def _parsed(verb: str, path: str, data: bytes) -> JsonObject:
    """Return the object in an answer; something between us and the API server may say 200 to anything."""
    try:
        parsed = json.loads(data) if data else {}
    except ValueError as error:
        raise ApiError(f"{verb} {path}: the answer is not JSON: {data[:200]!r}") from error
    if not isinstance(parsed, dict):
        raise ApiError(f"{verb} {path}: the answer is not an object: {data[:200]!r}")
    return parsed


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, whatever their length; what is left of a broken one is no line."""
    rest = b""
    async for part in stream.iter_any():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line


def _event(verb: str, path: str, line: bytes) -> JsonObject:
    """Return a watch event. Raises the error that one of type ERROR brings."""
    event = _parsed(verb, path, line)
    said = event.get("object")
    if not isinstance(said, dict):
        raise ApiError(f"{verb} {path}: an event without an object: {line[:200]!r}")
    if event.get("type") == "ERROR":
        code = said.get("code")
        raise _refusal(verb, path, code if isinstance(code, int) else 0, json.dumps(said).encode(), "")
    return event


def _refusal(verb: str, path: str, code: int, data: bytes, retry_after: str) -> ApiError:
    try:
        status = json.loads(data)
        status = status if isinstance(status, dict) else {}
    except ValueError:
        status = {"message": data[:200].decode(errors="replace")}
    details = status.get("details") or {}
    causes = tuple(
        (cause.get("reason", ""), cause.get("field", ""), cause.get("message", ""))
        for cause in details.get("causes") or ()
    )
    seconds = retry_after if retry_after.isdigit() else str(details.get("retryAfterSeconds") or 0)
    return ApiError(
        f"{verb} {path}: {code} {status.get('reason', '')}: {status.get('message', '')}",
        status=code,
        word=status.get("reason", ""),
        causes=causes,
        retry_after=float(seconds),
        hint="check the rights of this account with `kubectl auth can-i --list`" if code == 403 else "",
    )


async def connect(
    kubeconfig: str = "",
    context: str = "",
    *,
    timeout: float = 30.0,
    on_call: Callable[[Call], None] = lambda call: None,
) -> Client:
    """Return a client: in a pod by its ServiceAccount, else by kubeconfig ($KUBECONFIG, ~/.kube/config)."""
    configuration = kubernetes_client.Configuration()
    if not kubeconfig and not context and Path("/var/run/secrets/kubernetes.io/serviceaccount/token").exists():
        kubernetes_config.load_incluster_config(client_configuration=configuration)
        return Client(configuration, timeout=timeout, on_call=on_call)
    if kubeconfig and not Path(kubeconfig).exists():
        raise _unusable(kubeconfig, "there is no such file")
    try:
        await kubernetes_config.load_kube_config(
            config_file=kubeconfig or None, context=context or None, client_configuration=configuration
        )
    except Exception as error:  # the loader stumbles over a malformed file in any way: TypeError, YAMLError, KeyError
        raise _unusable(kubeconfig, " ".join(str(error).split())) from error
    return Client(configuration, timeout=timeout, on_call=on_call)


def _unusable(kubeconfig: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"the kubeconfig {kubeconfig or 'in $KUBECONFIG or ~/.kube/config'} cannot be used: {why}",
        hint="name one with --kubeconfig, and a context with --context",
    )
