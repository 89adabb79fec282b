"""One object by name: as it is, at each change, and across everything that cuts a watch."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from gpusharing.core.errors import ApiError
from gpusharing.kube.client import Page
from gpusharing.kube.objectwatch import watch_object

NODES = "/api/v1/nodes"
DOWN = ApiError("list /api/v1/nodes: refused")
GONE = ApiError("watch /api/v1/nodes: too old", status=410)


def node(version: int, uid: str = "uid-1") -> dict[str, Any]:
    return {"metadata": {"name": "gpu-a", "uid": uid, "resourceVersion": str(version)}}


def event(kind: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": node(version)}


@dataclass
class Server:
    """What each list and each watch brings, in order; a watch without an order stays open."""

    lists: list[Page | ApiError]
    watches: list[list[dict[str, Any] | ApiError]] = field(default_factory=list)
    asked: list[tuple[str, int, float]] = field(default_factory=list)

    async def pages(self, path: str, *, field: str = "", only_metadata: bool = False) -> AsyncIterator[Page]:
        assert (path, field) == (NODES, "metadata.name=gpu-a")
        self._note("list", 0)
        answer = self.lists.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        yield answer

    async def watch(
        self, path: str, *, version: int, field: str = "", only_metadata: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        assert (path, field) == (NODES, "metadata.name=gpu-a")
        self._note("watch", version)
        if not self.watches:
            await asyncio.Event().wait()
        for said in self.watches.pop(0):
            if isinstance(said, ApiError):
                raise said
            yield said

    def _note(self, verb: str, version: int) -> None:
        self.asked.append((verb, version, asyncio.get_running_loop().time()))

    @property
    def verbs(self) -> list[tuple[str, int]]:
        return [(verb, version) for verb, version, _ in self.asked]


async def seen(server: Server, count: int, **options: Any) -> list[Any]:
    """The first sights: the version of the object, or None."""
    client: Any = server
    watching = watch_object(client, NODES, "gpu-a", **options)
    sights = [(await anext(watching)) for _ in range(count)]
    await watching.aclose()  # type: ignore[attr-defined]
    return [sight and int(sight["metadata"]["resourceVersion"]) for sight in sights]


async def test_it_is_said_as_it_is_and_at_each_change() -> None:
    server = Server([Page([node(5)], 7)], [[event("MODIFIED", 8), event("DELETED", 9), event("ADDED", 10)]])
    assert await seen(server, 4) == [5, 8, None, 10]
    assert server.verbs == [("list", 0), ("watch", 7)]


async def test_an_object_that_is_not_there_is_said_to_be_so_and_appears_later() -> None:
    server = Server([Page([], 7)], [[event("ADDED", 8)]])
    assert await seen(server, 2) == [None, 8]


@pytest.mark.looptime
async def test_a_watch_that_the_server_ends_goes_on_from_the_last_bookmark_without_a_list() -> None:
    server = Server([Page([node(5)], 7)], [[event("BOOKMARK", 20)], [event("MODIFIED", 21)]])
    assert await seen(server, 2) == [5, 21]
    assert server.asked == [("list", 0, 0), ("watch", 7, 0), ("watch", 20, 0)]


@pytest.mark.looptime
@pytest.mark.parametrize("end", [[GONE], []], ids=["410", "ends-at-once"])
async def test_a_watch_that_fails_or_ends_empty_is_followed_by_a_pause_and_a_list(end: list[Any]) -> None:
    server = Server([Page([node(5)], 7), Page([node(30)], 31)], [end])
    errors: list[ApiError] = []
    assert await seen(server, 2, on_error=errors.append) == [5, 30]
    [(_, _, first), _, (verb, _, again)] = server.asked
    assert verb == "list"
    assert 0.5 <= again - first <= 1.0
    assert len(errors) == 1


@pytest.mark.looptime
@pytest.mark.fault("F29")
async def test_a_server_that_is_away_says_nothing_about_the_object_and_is_asked_less_and_less() -> None:
    server = Server([*[DOWN] * 8, Page([node(5)], 7)])
    assert await seen(server, 1) == [5]
    times = [time for _, _, time in server.asked]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [2**n / 2 <= pause <= 2**n for n, pause in enumerate(pauses[:5])] == [True] * 5
    assert all(15 <= pause <= 30 for pause in pauses[5:])


@pytest.mark.looptime
@pytest.mark.fault("F49")
async def test_a_server_that_says_how_long_to_wait_is_obeyed() -> None:
    server = Server([ApiError("429", status=429, retry_after=17), Page([node(5)], 7)])
    await seen(server, 1)
    assert server.asked[1][2] == 17
