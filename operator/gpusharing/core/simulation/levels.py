"""What all nodes are like together, and the means of that over time."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusharing.core.simulation.kubelet import Kubelet


@dataclass(frozen=True, slots=True)
class Means:
    """Means over time."""

    free_gpus: float
    ideal_free_gpus: float
    # by resource
    stranded: tuple[float, ...]
    largest: tuple[float, ...]


class Levels:
    """Keeps the levels of each node, as mostly only one changes at a time, and their sums over time."""

    def __init__(self, resources: Sequence[str], nodes: Sequence[Kubelet]) -> None:
        self._resources = resources
        self._nodes = {id(node): self._of(node) for node in nodes}
        # nodes that are different since time passed last
        self._changed: dict[int, Kubelet] = {}
        self._now = self._together()
        self._sums = [0.0] * len(self._now)
        self._time = 0.0

    def changed(self, node: Kubelet) -> None:
        """Take note that something on a node is different."""
        self._changed[id(node)] = node

    def hold(self, time: float) -> None:
        """Let the nodes stay as they are for so long."""
        if self._changed:
            self._nodes |= {key: self._of(node) for key, node in self._changed.items()}
            self._changed.clear()
            self._now = self._together()
        self._time += time
        self._sums = [total + level * time for total, level in zip(self._sums, self._now, strict=True)]

    @property
    def means(self) -> Means:
        """Return the means so far."""
        free, ideal, *by_resource = [total / (self._time or 1.0) for total in self._sums]
        half = len(self._resources)
        return Means(free, ideal, tuple(by_resource[:half]), tuple(by_resource[half:]))

    def _of(self, node: Kubelet) -> list[int]:
        occupied = node.occupied
        return [
            occupied.free_gpus,
            occupied.ideal_free_gpus,
            *map(occupied.stranded, self._resources),
            *map(occupied.largest, self._resources),
        ]

    def _together(self) -> list[int]:
        """Return the sums over the nodes; of the largest requests the largest."""
        first, *others = self._nodes.values()
        if not others:
            return first
        columns = list(zip(first, *others, strict=True))
        summed = 2 + len(self._resources)
        return [*map(sum, columns[:summed]), *map(max, columns[summed:])]
