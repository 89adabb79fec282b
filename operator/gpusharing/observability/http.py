"""`/livez`, `/readyz` and `/metrics` from one small server."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from gpusharing.core.errors import InvalidInput

# Each returns why it is not so; empty = all is well.
Probe = Callable[[], str]


async def serve_http(
    listen: str, registry: CollectorRegistry, *, live: Probe, ready: Probe, flag: str = "--listen"
) -> web.AppRunner:
    """Serve on `host:port` (an empty host = all addresses). Returns the running server.

    Raises InvalidInput where it cannot listen there; its hint names the flag that sets the address.
    """

    def answer(probe: Probe) -> Callable[[web.Request], web.Response]:
        def respond(_: web.Request) -> web.Response:
            why = probe()
            return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

        return respond

    async def livez(request: web.Request) -> web.Response:
        return answer(live)(request)

    async def readyz(request: web.Request) -> web.Response:
        return answer(ready)(request)

    app = web.Application()
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = listen.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        await runner.cleanup()
        raise InvalidInput(
            f"cannot listen on {listen}: {error.strerror or error}", hint=f"name another address with {flag}"
        ) from error
    return runner
