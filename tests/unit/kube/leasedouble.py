"""One Lease on an API server, in memory: what the guard needs of it, and nothing that takes time unless told to.

`answers_of` puts a real client or this double to the same questions; tests/integration/test_kube.py compares them.
"""

import asyncio
import copy
import re
from collections.abc import Awaitable
from typing import Any

from gpusharing.api import names
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths

COLLECTION = paths.leases(names.NAMESPACE)
LEASE = f"{COLLECTION}/{names.LEASE}"
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class LeaseServer:
    """Speaks the three verbs of `Client` that the guard uses."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes = 0
        self.errors: list[ApiError] = []
        """Errors for the next requests."""
        self.works = asyncio.Event()
        """While clear, requests hang, as with an API server that is frozen."""
        self.works.set()
        self._version = 0

    @property
    def holder(self) -> str:
        return str(self.spec.get("holderIdentity"))

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None, "there is no lease"
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def holds(self, holder: str, *, seconds: int = 15, renewed: str = "2026-11-30T12:00:00.000000Z") -> None:
        """Somebody else writes the lease now."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed, "leaseTransitions": 3}
        self._store({"metadata": {"name": names.LEASE}, "spec": spec})

    async def get(self, path: str) -> dict[str, Any]:
        await self._turn()
        assert path == LEASE
        if self.lease is None:
            raise ApiError("not found", status=404, word="NotFound")
        return copy.deepcopy(self.lease)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._turn()
        assert path == COLLECTION
        if self.lease is not None:
            raise ApiError("exists", status=409, word="AlreadyExists")
        return self._checked(body)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._turn()
        assert path == LEASE
        if self.lease is None:
            raise ApiError("not found", status=404, word="NotFound")
        if body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            raise ApiError("the object has been modified", status=409, word="Conflict")
        return self._checked(body)

    async def _turn(self) -> None:
        await asyncio.sleep(0)  # another client may come in between
        await self.works.wait()
        if self.errors:
            raise self.errors.pop(0)

    def _checked(self, body: dict[str, Any]) -> dict[str, Any]:
        spec = body["spec"]
        for time in ("acquireTime", "renewTime"):
            if not _MICRO_TIME.fullmatch(spec.get(time, "2026-01-01T00:00:00.000000Z")):
                raise ApiError(f"{time} cannot be parsed as a MicroTime", status=400, word="BadRequest")
        if spec["leaseDurationSeconds"] < 1:
            raise ApiError("must be greater than 0", status=422, word="Invalid")
        self.writes += 1
        return self._store(body)

    def _store(self, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version)}
        self.lease = copy.deepcopy({**body, "metadata": metadata})
        return copy.deepcopy(self.lease)


async def answers_of(client: Any) -> list[tuple[int, str]]:
    """What a client's server says to a series of questions that begins without a Lease: (status, word) of each."""
    told: list[tuple[int, str]] = []

    async def ask(request: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        try:
            answer = await request
        except ApiError as error:
            told.append((error.status, error.word))
            return {}
        told.append((200, str(answer["spec"]["holderIdentity"])))
        return answer

    first = _lease("a")
    await ask(client.get(LEASE))
    await ask(client.replace(LEASE, {**first, "metadata": {**first["metadata"], "resourceVersion": "1"}}))
    await ask(client.create(COLLECTION, _lease("a", leaseDurationSeconds=0)))
    await ask(client.create(COLLECTION, _lease("a", renewTime="2026-11-30T12:00:00Z")))
    created = await ask(client.create(COLLECTION, first))
    await ask(client.create(COLLECTION, _lease("b")))
    version = created["metadata"]["resourceVersion"]
    for holder in ("b", "c"):  # the second on the version before
        body = _lease(holder)
        await ask(client.replace(LEASE, {**body, "metadata": {**body["metadata"], "resourceVersion": version}}))
    await ask(client.get(LEASE))
    return told


# the answers of Kubernetes 1.34
ANSWERS = [
    (404, "NotFound"),
    (404, "NotFound"),
    (422, "Invalid"),
    (400, "BadRequest"),
    (200, "a"),
    (409, "AlreadyExists"),
    (200, "b"),
    (409, "Conflict"),
    (200, "b"),
]


def _lease(holder: str, **fields: Any) -> dict[str, Any]:
    moment = "2026-11-30T12:00:00.000000Z"
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": moment, "renewTime": moment}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": names.LEASE, "namespace": names.NAMESPACE},
        "spec": {**spec, **fields},
    }
