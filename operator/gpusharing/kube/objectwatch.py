"""Watches one object by its name: what it is now, and anew upon each change."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

from gpusharing.core.errors import ApiError
from gpusharing.kube.client import Client, JsonObject, version_of

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0


async def watch_object(
    client: Client,
    collection: str,
    name: str,
    *,
    only_metadata: bool = False,
    on_error: Callable[[ApiError], object] = lambda error: None,
    first_pause: float = FIRST_PAUSE,
    longest_pause: float = LONGEST_PAUSE,
) -> AsyncIterator[JsonObject | None]:
    """Yield the object as it is, then anew each time that it was written; None = it is not there. Never ends.

    What cannot be read is unknown, not gone: until a list succeeds, what was said last stands. `on_error` hears of
    every failure; pauses in between double from `first_pause` to `longest_pause` seconds, drawn from 50 to 100 %.
    """
    field, pause = f"metadata.name={name}", first_pause
    while True:
        try:
            [page] = [page async for page in client.pages(collection, field=field, only_metadata=only_metadata)]
            yield page.items[0] if page.items else None
            version = page.version
            while True:
                brought = False
                async for event in client.watch(collection, version=version, field=field, only_metadata=only_metadata):
                    version = version_of(event["object"].get("metadata") or {}) or version
                    brought, pause = True, first_pause
                    if event["type"] != "BOOKMARK":
                        yield None if event["type"] == "DELETED" else event["object"]
                if not brought:  # a healthy one brings bookmarks; without a pause this would spin
                    raise ApiError(f"watch {collection}: ended without an event")
        except ApiError as error:
            on_error(error)
            await asyncio.sleep(max(error.retry_after, pause * random.uniform(0.5, 1.0)))
            pause = min(longest_pause, pause * 2)
