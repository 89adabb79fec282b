"""A few nodes, policies and records in memory, for what a real API server cannot be made to do at the right moment.

It knows nothing of ownership or validation (that is tested on the real server): an apply lands, and is answered. A test
says what goes wrong before (`fails`) or what else happens while the answer is under way (`meanwhile`).
"""

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.support.builders import NodeBuilder, PolicyBuilder
from tests.unit.kube.leasedouble import LEASE, LeaseServer

from gpusharing.api import names
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths
from gpusharing.kube.client import Page

T = TypeVar("T")
Object = dict[str, Any]
RECORDS = paths.configmaps(names.NAMESPACE)
CRD = f"{paths.CRDS}/{names.POLICIES_CRD}"


@dataclass(frozen=True)
class Write:
    """One write as it was asked for."""

    verb: str
    path: str
    body: Any = None


class ApiDouble(LeaseServer):
    """Speaks the verbs of `Client`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Write] = []
        self.merged: list[str] = []
        """The Events that were counted up so far."""
        self.listed: list[tuple[str, float]] = []
        """The lists so far: path and when, by the loop's clock."""
        self.in_full: list[str] = []
        """What was asked of each of them that was not of metadata only: path and selector."""
        listed = (paths.NODES, paths.POLICIES, paths.GPU_NODES, RECORDS, paths.placements(), paths.QUOTAS)
        self.lists: dict[str, list[Object]] = {path: [] for path in listed}
        self.objects: dict[str, Object] = {CRD: {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}}
        self.nodes: dict[str, NodeBuilder] = {}
        self.policies: dict[str, Object] = {}
        self.version = 1000
        self._failures: list[tuple[str, Exception]] = []
        self._meanwhile: list[tuple[str, Callable[[], None]]] = []

    # --- what tests say

    def fails(self, path: str, error: Exception, times: int = 1) -> None:
        """The next requests of a path (a regular expression) end so, and nothing of them lands."""
        self._failures += [(path, error)] * times

    def meanwhile(self, path: str, happens: Callable[[], None]) -> None:
        """The next request of a path lands; before its answer arrives, this happens."""
        self._meanwhile.append((path, happens))

    def written(self, pattern: str = ".*") -> list[Write]:
        """The writes so far, Events left out."""
        return [write for write in self.asked if re.fullmatch(pattern, write.path) and not _is_events(write.path)]

    @property
    def events(self) -> list[str]:
        """The reasons of the Events so far."""
        return [write.body["reason"] for write in self.asked if write.verb == "create" and _is_events(write.path)]

    def node(self, node: NodeBuilder) -> Object:
        """A node that the server has."""
        self.nodes[node.name] = node
        return self._seen(node.object())

    def policy(self, policy: PolicyBuilder) -> Object:
        """A policy that the server has."""
        self.policies[policy.name] = policy.object()
        return self._seen(policy.object())

    def again(self, policy: str) -> Object:
        """A policy as a watch shows it after something changed that is none of ours: a newer version."""
        return self._seen(self.policies[policy])

    # --- verbs

    async def get(self, path: str, *, accept: str = "") -> Object:
        if path == LEASE:
            return await super().get(path)
        self._fail(path)
        if path not in self.objects:
            raise ApiError("not found", status=404)
        return self.objects[path]

    async def pages(
        self, path: str, *, selector: str = "", field: str = "", only_metadata: bool = False
    ) -> AsyncIterator[Page]:
        self.listed.append((path, asyncio.get_running_loop().time()))
        self.in_full += [] if only_metadata else [f"{path}?{selector or field}"]
        self._fail(f"{path}?{selector or field}")
        version, items = self.version, copy.deepcopy(self.lists[path])
        self._happen(f"{path}?{selector or field}")
        yield Page(items, version)

    async def list(self, path: str, *, field: str = "", only_metadata: bool = False) -> list[Object]:
        name = field.removeprefix("metadata.name=")
        self.in_full += [] if only_metadata else [f"{path}?{field}"]
        self._fail(f"{path}?{field}")
        if name in self.nodes:
            return [self._seen(self.nodes[name].object())]
        return [copy.deepcopy(item) for item in self.lists.get(path, ()) if item["metadata"]["name"] == name]

    async def create(self, path: str, body: Object) -> Object:
        if not _is_events(path):
            return await super().create(path, body)
        self.asked.append(Write("create", path, body))
        self._fail(path)
        self._happen(path)
        return body

    async def merge(self, path: str, body: Object) -> Object:
        self.merged.append(path)
        return body

    async def apply(
        self, path: str, body: Object, *, manager: str, force: bool = False, only_metadata: bool = False
    ) -> Object:
        self.asked.append(Write("apply", path, body))
        self._fail(path)
        answer = self._seen(self._applied(path, body, manager))
        self._happen(path)
        return answer

    def _applied(self, path: str, body: Object, manager: str) -> Object:
        name = body["metadata"]["name"]
        if path.startswith(paths.POLICIES):
            self.policies[name] = {**self.policies[name], "status": body["status"]}
            return self.policies[name]
        if not path.startswith(paths.NODES):
            return body
        node, value = self.nodes[name], body["metadata"]["labels"].get(names.CONFIG_LABEL)
        self.nodes[name] = node.config(value, manager) if value else node.without(names.CONFIG_LABEL)
        return self.nodes[name].object()

    async def delete(self, path: str) -> None:
        self.asked.append(Write("delete", path))
        self._fail(path)
        self._happen(path)

    def _seen(self, obj: Object) -> Object:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}

    def _fail(self, path: str) -> None:
        if error := _taken(self._failures, path):
            raise error

    def _happen(self, path: str) -> None:
        if happens := _taken(self._meanwhile, path):
            happens()


def _is_events(path: str) -> bool:
    return path.endswith("/events")


def _taken(planned: list[tuple[str, T]], path: str) -> T | None:
    """The first that is planned for the path; it is planned no more."""
    for number, (pattern, what) in enumerate(planned):
        if re.fullmatch(pattern, path):
            del planned[number]
            return what
    return None
