"""The cluster as placements see it at one moment, and who has which GPU in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpusharing.core.placement.observed import SeenNode
from gpusharing.core.placement.quota import Quota
from gpusharing.core.placement.stored import Placement


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that plans depend on."""

    now: datetime
    nodes: Mapping[str, SeenNode] = field(default_factory=dict)
    # by namespace/name
    placements: Mapping[str, Placement] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    # GPUs that a pod had a moment ago when they were to be reserved: reports of what pods hold may be older
    taken: frozenset[str] = frozenset()
    # after this time a node that is not ready counts as lost
    lost_after: timedelta = timedelta(minutes=5)

    def others(self, placement: Placement) -> Iterator[Placement]:
        """Yield the other placements, in the order in which they are planned."""
        for other in sorted(self.placements.values(), key=lambda each: each.rank):
            if other.key != placement.key:
                yield other

    def there(self, name: str) -> bool:
        """Whether the node is there and its kubelet ready."""
        seen = self.nodes.get(name)
        return seen is not None and seen.node.ready is True

    def lost_in(self, name: str) -> timedelta | None:
        """Return how long until the node counts as lost, 0 = it does; None = nothing is wrong with it."""
        seen = self.nodes.get(name)
        if seen is None:
            return timedelta()
        if seen.node.ready is not False:
            return None
        since = seen.node.unready_since or self.now
        return max(timedelta(), since + self.lost_after - self.now)
