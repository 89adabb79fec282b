"""The session that Kopf watches with, against an echo server; and the stamps of its watches."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client import Configuration
from tests.unit.kube.answers import Answer, says
from tests.unit.kube.echo import Echo

from gpusharing.kube import paths
from gpusharing.kube.client import Client
from gpusharing.kube.watch import WatchStamps, watch_session

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
WATCH = {"watch": "true"}


class Clock:
    """Set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# --- stamps


def test_before_the_first_watch_nothing_is_silent() -> None:
    assert WatchStamps(clock=Clock()).oldest() == 0


def test_the_oldest_is_the_watch_that_has_been_silent_for_longest() -> None:
    clock = Clock()
    stamps = WatchStamps(clock=clock)
    for path in (paths.NODES, paths.POLICIES):
        stamps.stamp(path, WATCH)
    clock.now += 30
    stamps.stamp(paths.NODES, WATCH)
    clock.now += 10
    assert stamps.oldest() == 40
    stamps.stamp(paths.POLICIES, WATCH)
    assert stamps.oldest() == 10


def test_a_path_that_is_listed_anew_is_a_relist_and_nothing_else_is() -> None:
    relists: list[int] = []
    stamps = WatchStamps(lambda: relists.append(len(relists)), clock=Clock())
    for path in (paths.NODES, paths.POLICIES):
        stamps.stamp(path, {"limit": "500"})
        stamps.stamp(path, {"limit": "500", "continue": "token"})
        stamps.stamp(path, WATCH)
        stamps.stamp(path, WATCH)
    assert relists == []
    stamps.stamp(paths.NODES, {"limit": "500"})
    stamps.stamp(paths.NODES, {"limit": "500", "continue": "token"})
    assert relists == [0]


# --- session


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as server:
        yield server


class Session:
    """A watch session of one client, and its stamps."""

    def __init__(self, client: Client, *, full_nodes: bool = False) -> None:
        self.relists = 0
        self.clock = Clock()
        self.stamps = WatchStamps(self._relisted, clock=self.clock)
        self._client = client
        self._session = watch_session(client, self.stamps, full_nodes=full_nodes)

    def _relisted(self) -> None:
        self.relists += 1

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._client.close()

    async def get(self, path: str, **query: str) -> Any:
        headers = {"Accept": "application/json"}
        async with self._session.get(f"{self._client.server}{path}", params=query, headers=headers) as answer:
            return await answer.json()

    async def post(self, path: str) -> None:
        async with self._session.post(f"{self._client.server}{path}", json={}) as answer:
            await answer.read()


@pytest.mark.parametrize("prefix", ["", "/k8s/clusters/c-1"])
@pytest.mark.parametrize(
    ("path", "query", "full", "want"),
    [
        pytest.param(paths.NODES, {"limit": "500"}, False, METADATA_LIST, id="list-nodes"),
        pytest.param(paths.NODES, WATCH, False, METADATA, id="watch-nodes"),
        pytest.param(paths.NODES, {"limit": "500"}, True, "application/json", id="list-full-nodes"),
        pytest.param(paths.NODES, WATCH, True, "application/json", id="watch-full-nodes"),
        pytest.param(paths.POLICIES, {"limit": "500"}, False, "application/json", id="list-policies"),
        pytest.param(paths.GPU_NODES, WATCH, False, "application/json", id="watch-reports"),
        pytest.param("/api/v1", {}, False, "application/json", id="discovery"),
    ],
)
async def test_nodes_are_asked_for_metadata_only_unless_they_are_needed_in_full(
    echo: Echo, prefix: str, path: str, query: dict[str, str], full: bool, want: str
) -> None:
    async with Session(echo.client(prefix=prefix), full_nodes=full) as session:
        await session.get(path, **query)
    [asked] = echo.asked
    assert (asked.path, asked.query, asked.headers["Accept"]) == (f"{prefix}{path}", query, want)


@pytest.mark.parametrize("prefix", ["", "/k8s/clusters/c-1"])
@pytest.mark.parametrize("path", [paths.NODES, paths.POLICIES, paths.GPU_NODES])
async def test_each_list_and_watch_of_a_kind_of_ours_is_stamped(echo: Echo, prefix: str, path: str) -> None:
    async with Session(echo.client(prefix=prefix)) as session:
        await session.get(path, limit="500")
        session.clock.now += 40
        assert session.stamps.oldest() == 40
        await session.get(path, **WATCH)
        assert session.stamps.oldest() == 0
        assert session.relists == 0
        await session.get(path, limit="500")
        assert session.relists == 1


async def test_discovery_and_writes_stamp_nothing(echo: Echo) -> None:
    async with Session(echo.client()) as session:
        await session.get("/apis")
        await session.post(paths.NODES)
        session.clock.now += 1000
        assert session.stamps.oldest() == 0


async def test_an_empty_metadata_only_list_has_items_to_iterate_over(echo: Echo) -> None:
    echo.answers(
        says({"items": None, "metadata": {"resourceVersion": "7"}}), says({"items": [1]}), says({"kind": "APIGroup"})
    )
    async with Session(echo.client()) as session:
        assert (await session.get(paths.NODES))["items"] == []
        assert (await session.get(paths.NODES))["items"] == [1]
        assert await session.get("/apis/x") == {"kind": "APIGroup"}


async def test_a_refusal_comes_through_as_it_is(echo: Echo) -> None:
    echo.answers(Answer(401, b"[]", {"Content-Type": "application/json"}))
    async with Session(echo.client()) as session:
        assert await session.get(paths.NODES) == []


async def test_the_token_of_the_moment_is_sent_with_each_request(echo: Echo) -> None:
    tokens = iter(["first", "second"])
    configuration = echo.configuration()

    def renew(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {next(tokens)}"

    configuration.refresh_api_key_hook = renew
    async with Session(Client(configuration)) as session:
        await session.get(paths.NODES)
        await session.get(paths.POLICIES)
    assert [asked.headers["Authorization"] for asked in echo.asked] == ["Bearer first", "Bearer second"]


async def test_each_session_is_a_new_one_for_kopf_closes_it_on_a_401(echo: Echo) -> None:
    client = echo.client()
    first, second = (watch_session(client, WatchStamps(), full_nodes=False) for _ in range(2))
    await first.close()
    assert isinstance(second, aiohttp.ClientSession)
    assert not second.closed
    await second.close()
    await client.close()
