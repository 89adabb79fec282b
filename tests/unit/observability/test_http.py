"""The three pages, asked over loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge

from gpusharing.core.errors import InvalidInput
from gpusharing.observability.http import serve_http


def nothing() -> str:
    return ""


@asynccontextmanager
async def served(*, live: str = "", ready: str = "", registry: CollectorRegistry | None = None) -> AsyncIterator[str]:
    """A server whose probes say this; its address."""
    runner = await serve_http("127.0.0.1:0", registry or CollectorRegistry(), live=lambda: live, ready=lambda: ready)
    try:
        yield f"http://127.0.0.1:{port_of(runner)}"
    finally:
        await runner.cleanup()


def port_of(runner: web.AppRunner) -> int:
    port: int = runner.addresses[0][1]
    return port


async def page(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_a_probe_with_nothing_to_say_is_ok(path: str) -> None:
    async with served() as url:
        assert await page(f"{url}{path}") == (200, "ok\n")


@pytest.mark.parametrize(("path", "other"), [("/livez", "/readyz"), ("/readyz", "/livez")])
async def test_a_probe_that_fails_says_why_and_leaves_the_other_alone(path: str, other: str) -> None:
    why = "list /api/v1/nodes: 403"
    async with served(live=why if path == "/livez" else "", ready=why if path == "/readyz" else "") as url:
        assert await page(f"{url}{path}") == (503, f"{why}\n")
        assert await page(f"{url}{other}") == (200, "ok\n")


async def test_metrics_are_those_of_the_registry_given() -> None:
    registry = CollectorRegistry()
    Gauge("gpusharing_test", "A test.", registry=registry).set(7)
    async with served(registry=registry) as url:
        status, text = await page(f"{url}/metrics")
    assert status == 200
    assert text == "# HELP gpusharing_test A test.\n# TYPE gpusharing_test gauge\ngpusharing_test 7.0\n"


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics/x"])
async def test_there_is_nothing_else(path: str) -> None:
    async with served() as url:
        assert (await page(f"{url}{path}"))[0] == 404


async def test_an_address_that_is_taken_is_refused_by_its_name() -> None:
    async with served() as url:
        taken = url.removeprefix("http://")
        with pytest.raises(InvalidInput, match=f"cannot listen on {taken}: .+") as caught:
            await serve_http(taken, CollectorRegistry(), live=nothing, ready=nothing)
    assert "--listen" in caught.value.hint


async def test_an_address_that_is_none_of_this_machine_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidInput, match=r"cannot listen on 192\.0\.2\.1:0"):
        await serve_http("192.0.2.1:0", CollectorRegistry(), live=nothing, ready=nothing)
