"""A small synchronous client of the Kubernetes API for tests: plain dicts in, plain dicts out.

Objects are addressed by the path of their collection and a name::

    api.create(NODES, {"metadata": {"name": "gpu-a"}})
    api.get(config_maps("gpu-sharing-system"), "gpusharing-gpu-a")
    api.apply(POLICIES, policy, field_manager="tester")
"""

import base64
import json
import select
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

Object = dict[str, Any]
Objects = list[Object]

NODES = "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/gpusharing.io/v1alpha1/gpusharingpolicies"
GPU_NODES = "/apis/gpusharing.io/v1alpha1/gpunodes"

_PATCHES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}


def config_maps(namespace: str) -> str:
    """The path of a namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def events(namespace: str) -> str:
    """The path of a namespace's Events."""
    return f"/api/v1/namespaces/{namespace}/events"


def pods(namespace: str) -> str:
    """The path of a namespace's Pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def placements(namespace: str) -> str:
    """The path of a namespace's GpuPlacements."""
    return f"/apis/gpusharing.io/v1alpha1/namespaces/{namespace}/gpuplacements"


def leases(namespace: str) -> str:
    """The path of a namespace's Leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class ApiStatusError(Exception):
    """The server answered with another status than 2xx; `body` is its Status object, or its text."""

    def __init__(self, response: HTTPResponse, body: Object | str) -> None:
        message = body.get("message") if isinstance(body, dict) else body
        super().__init__(f"{response.status}: {message}")
        self.status = response.status
        self.headers = response.headers
        self.body: Any = body


class Api:
    """One kept connection, one request at a time; threads may share it. A context manager."""

    def __init__(self, kubeconfig: Path, *, timeout: float = 30) -> None:
        cluster, user = _current(kubeconfig)
        self._url = urlsplit(cluster["server"])
        self._tls = _tls(cluster, user) if self._url.scheme == "https" else None
        self._headers = {"Accept": "application/json", "User-Agent": "gpusharing-tests"}
        if token := user.get("token"):
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connection = self._connect()

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def get(self, collection: str, name: str) -> Object:
        """One object."""
        return self.raw("GET", f"{collection}/{name}")

    def list(self, collection: str, **query: str) -> Objects:
        """The items of a collection; `query` as the API spells it (`labelSelector=…`)."""
        return self.raw("GET", collection, **query).get("items") or []

    def create(self, collection: str, body: Object, **query: str) -> Object:
        """Create an object, as the server stored it; `fieldValidation="Strict"` refuses unknown fields."""
        return self.raw("POST", collection, body, **query)

    def apply(
        self, collection: str, body: Object, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Object:
        """Server-side apply of `body`, which names itself."""
        path = "/".join(filter(None, (collection, body["metadata"]["name"], subresource)))
        query = {"fieldManager": field_manager, "force": str(force).lower()}
        return self.raw("PATCH", path, body, content_type="application/apply-patch+yaml", **query)

    def patch(
        self, collection: str, name: str, body: Object | Objects, *, kind: str = "merge", subresource: str = ""
    ) -> Object:
        """A patch of `kind` "merge" or "json"."""
        path = "/".join(filter(None, (collection, name, subresource)))
        return self.raw("PATCH", path, body, content_type=_PATCHES[kind])

    def replace(self, collection: str, body: Object) -> Object:
        """Replace an object by `body`, which names itself; with a resourceVersion only that version."""
        return self.raw("PUT", f"{collection}/{body['metadata']['name']}", body)

    def delete(self, collection: str, name: str) -> None:
        """Delete one object."""
        self.raw("DELETE", f"{collection}/{name}")

    def delete_collection(self, collection: str, **query: str) -> None:
        """Delete all objects, or those that `query` selects."""
        self.raw("DELETE", collection, **query)

    def watch(self, collection: str, **query: str) -> Iterator[Object]:
        """Events `{"type", "object"}` as they arrive, on a connection of its own, until the server ends the stream."""
        with closing(self._connect()) as connection:
            response = self._send(connection, "GET", _target(collection, {**query, "watch": "true"}), None, "")
            if response.status >= 300:
                raise ApiStatusError(response, _decoded(response.read()))
            rest = b""
            # not `for line in response`: that takes a broken connection for the end
            while part := response.read1():
                *lines, rest = (rest + part).split(b"\n")
                yield from map(json.loads, lines)

    def raw(self, method: str, path: str, body: Any = None, *, content_type: str = "", **query: str) -> Object:
        """Any request; the decoded answer (text becomes `{"text": …}`), or `ApiStatusError`."""
        with self._lock:
            if _was_closed(self._connection):
                self._connection.close()
            try:
                response = self._send(self._connection, method, _target(path, query), body, content_type)
                content = response.read()
            except BaseException:
                self._connection.close()  # half an exchange may be left in it
                raise
        answer = _decoded(content)
        if response.status >= 300:
            raise ApiStatusError(response, answer)
        return answer if isinstance(answer, dict) else {"text": answer}

    def _connect(self) -> HTTPConnection:
        assert self._url.hostname
        if self._tls is None:
            return HTTPConnection(self._url.hostname, self._url.port, timeout=self._timeout)
        return HTTPSConnection(self._url.hostname, self._url.port, timeout=self._timeout, context=self._tls)

    def _send(self, connection: HTTPConnection, method: str, target: str, body: Any, content_type: str) -> HTTPResponse:
        headers = {**self._headers, "Content-Type": content_type or "application/json"}
        connection.request(method, target, json.dumps(body) if body is not None else None, headers)
        return connection.getresponse()


def _target(path: str, query: dict[str, str]) -> str:
    return quote(path) + (f"?{urlencode(query)}" if query else "")


def _decoded(content: bytes) -> Object | str:
    try:
        decoded = json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
    return decoded if isinstance(decoded, dict) else str(decoded)


def _was_closed(connection: HTTPConnection) -> bool:
    """Whether the server closed a connection that is at rest: then it has something (the end) to read."""
    return connection.sock is not None and bool(select.select([connection.sock], [], [], 0)[0])


def _current(kubeconfig: Path) -> tuple[Object, Object]:
    """The cluster and the user of a kubeconfig's current context."""
    config = yaml.load(kubeconfig.read_text(), yaml.CSafeLoader)
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    return cluster, _named(config["users"], context["user"])["user"]


def _named(entries: Objects, name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(cluster: Object, user: Object) -> ssl.SSLContext:
    with ExitStack() as cleanup:
        authority = _file(cluster, "certificate-authority", cleanup)
        context = ssl.create_default_context(cafile=authority)
        if certificate := _file(user, "client-certificate", cleanup):
            context.load_cert_chain(certificate, _file(user, "client-key", cleanup))
    return context


def _file(entry: Object, field: str, cleanup: ExitStack) -> str | None:
    """The path that a kubeconfig field names; inline data goes to a file first, for that is all that `ssl` takes."""
    if data := entry.get(f"{field}-data"):
        path = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="gpusharing-api-")), field)
        path.write_bytes(base64.b64decode(data))
        return str(path)
    return entry.get(field)
