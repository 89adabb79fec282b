"""The servers of all resources: one begins with the first list of a resource, and ends a moment after its empty one."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from gpusharing.core.devices import Inventory
from gpusharing.core.host import HostFacts
from gpusharing.core.listing import Listing
from gpusharing.deviceplugin.edges import Server
from gpusharing.deviceplugin.registration import RegistrationStatus
from gpusharing.deviceplugin.view import View
from gpusharing.observability.logs import logger

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Seconds."""

    # the list of a resource that ends is empty for so long before its server stops
    farewell: float = 1.0
    # from the end of a server to the next one of the same resource (kubelet contract 3.2)
    margin: float = 0.5


@dataclass(frozen=True, slots=True)
class Shown:
    """What servers and their calls get to see, all of one moment."""

    listing: Listing
    inventory: Inventory
    facts: HostFacts
    # resource → ids that pods hold
    held: Mapping[str, frozenset[str]]
    # GPUs that are not shared
    claimed: Set[str] = frozenset()
    # resources that are served although they have no id
    empty: Collection[str] = ()


class Servers:
    """One server and one view for each resource."""

    def __init__(
        self,
        serve: Callable[[View], Server],
        view: Callable[[str], View],
        ended: Callable[[str], None],
        times: ServerTimes = ServerTimes(),
    ) -> None:
        """`ended` hears of a resource that is served no more, and again once its server has stopped."""
        self._serve = serve
        self._view = view
        self._ended = ended
        self._times = times
        self._views: dict[str, View] = {}
        self._servers: dict[str, Server] = {}
        self._farewells: dict[str, asyncio.Task[None]] = {}
        self._served: frozenset[str] = frozenset()
        self._streams: Mapping[str, int] = {}

    @property
    def statuses(self) -> tuple[RegistrationStatus, ...]:
        """Return how each resource stands with the kubelet."""
        return tuple(server.status for server in self._servers.values())

    @property
    def streaming(self) -> frozenset[str]:
        """Return the resources with an open stream."""
        return frozenset(status.resource for status in self.statuses if status.stream_open)

    @property
    def answering(self) -> frozenset[str]:
        """Return the resources of which a call of the kubelet is open."""
        return frozenset(name for name, view in self._views.items() if view.is_answering)

    def show(self, shown: Shown) -> None:
        """Have each resource served as it is listed now; those first that pods hold."""
        lists = shown.listing.lists
        self._served = frozenset(name for name, entries in lists.items() if entries) | set(shown.empty)
        for name in sorted({**lists, **dict.fromkeys(sorted(shown.empty))}, key=lambda name: name not in shown.held):
            if name not in self._views:
                self._views[name] = self._view(name)
            changed = self._views[name].show(shown.listing, shown.inventory, shown.facts, shown.held, shown.claimed)
            if name not in self._servers:
                self._servers[name] = self._serve(self._views[name])
                self._servers[name].start()
            elif changed:
                self._servers[name].changed()
        for name in self._servers.keys() - self._served - self._farewells.keys():
            self._farewells[name] = asyncio.create_task(self._bid_farewell(name))

    def note_streams(self) -> tuple[bool, bool]:
        """Return whether any stream opened or ended since the last call, and whether a kubelet was restarted.

        It was if a stream that had been open is not, or is another one.
        """
        before, self._streams = (
            self._streams,
            {status.resource: status.streams for status in self.statuses if status.stream_open},
        )
        changed = {name for name, count in self._streams.items() if before.get(name) != count}
        again = any(name in before or self._streams[name] > 1 for name in changed)
        lost = any(name in self._servers for name in before.keys() - self._streams.keys())
        return before != self._streams, again or lost

    async def stop(self) -> None:
        """End all servers at once (P11)."""
        for task in self._farewells.values():
            task.cancel()
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    async def _bid_farewell(self, name: str) -> None:
        """Stop serving a resource a moment after its empty list was sent (decision 46).

        Wanted again meanwhile, it gets a server of its own once this one has ended: never two at a time.
        """
        await asyncio.sleep(self._times.farewell)
        if name not in self._served:
            del self._views[name]
            self._ended(name)
            await asyncio.shield(self._servers[name].stop())
            await asyncio.sleep(self._times.margin)
            del self._servers[name]
            log.info("resource ended", resource=name)
        del self._farewells[name]
        self._ended(name)
