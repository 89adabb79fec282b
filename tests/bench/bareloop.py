"""The reference: a bare asyncio loop that does the controller's LISTs, holds a node watch, and makes the given writes.

Same client, same account, same order of writes, same concurrency policy; nothing is decided, remembered or reported. As
in the controller, the watch lists once more while the first writes are made.
`python -m tests.bench.bareloop KUBECONFIG WRITES`, where WRITES is a JSON list of `{node, uid, value, record}`.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp

from gpusharing.api import names
from gpusharing.controller.pace import Pace
from gpusharing.core.plan import SetLabel
from gpusharing.kube import paths
from gpusharing.kube.apply import apply_action
from gpusharing.kube.client import Client, connect, metadata_only

WORKERS = 64
RECORDS = paths.configmaps(names.NAMESPACE)


async def run(kubeconfig: str, writes: list[dict[str, Any]]) -> None:
    client = await connect(kubeconfig)
    for path in (RECORDS, paths.GPU_NODES, paths.NODES, paths.POLICIES):
        await _list(client, path)
    _say("caches filled")
    watching = asyncio.create_task(_watch_nodes(client))
    pace, waiting = Pace(WORKERS), iter(writes)

    async def work() -> None:
        for write in waiting:
            await _write(client, pace, write)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    _say("written")
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await client.close()


async def _write(client: Client, pace: Pace, write: dict[str, Any]) -> None:
    path = f"{RECORDS}/{write['record']['metadata']['name']}"
    label = SetLabel(write["node"], write["uid"], write["value"], force=False)
    await _at_pace(pace, client.apply(path, write["record"], manager=names.FIELD_MANAGER, force=True))
    await _at_pace(pace, apply_action(client, label, names.NAMESPACE))


async def _at_pace(pace: Pace, request: Coroutine[Any, Any, Any]) -> None:
    async with pace:
        started = time.monotonic()
        await request
        pace.succeeded(time.monotonic() - started)


async def _list(client: Client, path: str) -> int:
    """List a collection page by page. Returns the version of the list."""
    version = 0
    async for page in client.pages(path, only_metadata=path == paths.NODES):
        version = page.version
    return version


async def _watch_nodes(client: Client) -> None:
    """A watch begins with a list of its own, as every client's does."""
    version = await _list(client, paths.NODES)
    headers = {"Accept": metadata_only(), "Authorization": await client.authorization()}
    query = {"watch": "true", "resourceVersion": str(version), "timeoutSeconds": "3600"}
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=client.tls), timeout=aiohttp.ClientTimeout(), read_bufsize=1 << 20
        ) as session,
        session.get(f"{client.server}{paths.NODES}", params=query, headers=headers) as response,
    ):
        async for line in response.content:
            json.loads(line)


def _say(event: str) -> None:
    print(json.dumps({"event": event}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    gc.set_threshold(10_000, 10, 20)  # as the controller does
    asyncio.run(run(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())))
