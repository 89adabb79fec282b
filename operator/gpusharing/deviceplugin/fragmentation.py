"""How scattered the node is, looked at now and then: with thousands of shares it takes tens of milliseconds."""

import asyncio
from collections.abc import Sequence

from gpusharing.core.devices import Inventory
from gpusharing.core.fragmentation import Fragmentation, fragmentation
from gpusharing.core.listing import Listing
from gpusharing.core.occupancy import PodDevices


class FragmentationLook:
    """Keeps what was last found, and looks again: at once for other lists or GPUs, and not often for other pods."""

    def __init__(self, spacing: float) -> None:
        """`spacing` is the least time between two looks for nothing but other pods, in seconds."""
        self._spacing = spacing
        self._not_before = float("-inf")
        self._node: tuple[Listing, Inventory] | None = None
        self._pods: Sequence[PodDevices] | None = None
        self._stale = False
        self._found: Fragmentation | None = None

    @property
    def is_due(self) -> bool:
        """Whether `see` would look again for pods that it has seen and not counted yet."""
        return self._stale and asyncio.get_running_loop().time() >= self._not_before

    def see(
        self, listing: Listing, pods: Sequence[PodDevices] | None, inventory: Inventory | None
    ) -> Fragmentation | None:
        """Return how scattered the node is, by the last look; None = what pods hold, or the GPUs are not known."""
        if pods is None or inventory is None:
            self._node, self._stale = None, False
            return None
        self._stale = pods != self._pods
        if (listing, inventory) != self._node or self.is_due:
            self._node, self._pods, self._stale = (listing, inventory), pods, False
            self._not_before = asyncio.get_running_loop().time() + self._spacing
            self._found = fragmentation(listing, pods, inventory)
        return self._found
