"""Takes names of placements from the Node that nothing serves any more (F9). Off unless a setting says so.

A kubelet never deletes the name of a resource: it stays in the Node's capacity and allocatable, with 0 devices. A name
goes after ten minutes of that, if it is on no list of ours and nothing wants it: within five a kubelet that still knows
the resource would write it back (kubelet contract, section 6). Whatever comes of it, it is tried again ten minutes on.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from gpusharing.core.errors import ApiError
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.staleresources import names_without_devices
from gpusharing.kube.apply import remove_node_resources
from gpusharing.kube.client import Client, JsonObject
from gpusharing.observability.logs import logger

log = logger(__name__)


class StaleNames:
    """The names that may go, and since when. `run` is its task; everything else returns at once."""

    def __init__(self, client: Client, node_name: str, *, after: float = 600.0) -> None:
        """A name has to be without devices, and without anybody who serves it, for `after` seconds."""
        self._client = client
        self._node_name = node_name
        self._after = after
        self._uid = ""
        self._without_devices: frozenset[str] = frozenset()
        # None = not known yet, so nothing goes
        self._in_use: frozenset[str] | None = None
        # name → when it was first seen so, by the loop's clock
        self._since: dict[str, float] = {}
        self._wake = asyncio.Event()

    def see_node(self, node: JsonObject | None) -> None:
        """Take in the Node as a watch shows it; None = it is not there. One that was created anew begins anew."""
        uid = node["metadata"]["uid"] if node else ""
        if uid != self._uid:
            self._uid, self._since = uid, {}
        status = (node or {}).get("status") or {}
        self._without_devices = names_without_devices(status.get("capacity") or {}, status.get("allocatable") or {})
        self._take()

    def see(self, observed: Observed) -> None:
        """Take in what is listed, and what is reserved or is to be."""
        reserved = (row.resource for row in observed.reservations.rows)
        self._in_use = frozenset({*observed.listing.lists, *reserved})
        self._take()

    def _take(self) -> None:
        if self._in_use is not None:
            now = asyncio.get_running_loop().time()
            self._since = {name: self._since.get(name, now) for name in self._without_devices - self._in_use}
            self._wake.set()

    async def run(self) -> None:
        """Take them away until cancelled."""
        while True:
            self._wake.clear()
            now = asyncio.get_running_loop().time()
            if due := sorted(name for name, since in self._since.items() if now >= since + self._after):
                self._since |= dict.fromkeys(due, now)
                await self._remove(due)
                continue
            soonest = min(self._since.values(), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if soonest is None else soonest + self._after - now):
                    await self._wake.wait()

    async def _remove(self, stale: Collection[str]) -> None:
        try:
            if await remove_node_resources(self._client, self._node_name, self._uid, stale):
                log.info("names removed from the Node, which had no devices", names=stale)
        except ApiError as error:
            log.warning("names without devices cannot be removed from the Node", names=stale, error=str(error))
