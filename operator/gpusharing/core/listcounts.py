"""How many devices each list has, as `GpuNode.status` and metrics show it."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusharing.core.listing import Entry, Listing


@dataclass(frozen=True, slots=True)
class Row:
    """The counts of one resource."""

    name: str
    devices: int
    healthy: int
    withheld: int
    retiring: int
    # ids that the served config implies, without sick and withheld ones
    predicted: int


def rows(listing: Listing) -> tuple[Row, ...]:
    """Return the counts of each resource, in order of the lists."""
    return tuple(_row(name, tuple(entries.values())) for name, entries in listing.lists.items())


def _row(name: str, entries: Sequence[Entry]) -> Row:
    states = [entry.state for entry in entries]
    offered = sum(entry.healthy for entry in entries)
    return Row(name, len(entries), offered, states.count("withheld"), states.count("retiring"), offered)
