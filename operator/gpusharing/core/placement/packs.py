"""Spread the services of one pool over its nodes: first fit decreasing, then the search where it may save a node."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusharing.api.placement import Algorithm
from gpusharing.core.placement.algorithms import exact, ffd
from gpusharing.core.placement.bounds import lower_bound
from gpusharing.core.placement.layout import free_after, lay_out
from gpusharing.core.placement.packing import Packing
from gpusharing.core.placement.pieces import Job, Piece, in_order
from gpusharing.core.placement.pools import Space
from gpusharing.core.placement.rooms import Rooms


@dataclass(frozen=True, slots=True)
class Packed:
    """The best packing that was found, and how."""

    packing: Packing
    # in the order in which they were to be placed: all, and those without a place
    jobs: tuple[Job, ...]
    unplaced: tuple[Job, ...]
    lower_bound: int
    proven_minimal: bool
    ffd_nodes: int
    ffd_unplaced: tuple[Job, ...]
    searched: bool = False
    trials: int = 0
    limit_reached: bool = False


def pack(jobs: Sequence[Job], space: Space, algorithm: Algorithm, leftover_min: int = 0) -> Packed:
    """Pack the jobs of one pool. A searched plan leaves at least `leftover_min` GPUs free."""
    ordered = in_order(jobs)
    held: dict[int, list[Piece]] = {}
    for job in ordered:
        for at, piece in zip(job.held, job.pieces, strict=False):
            held.setdefault(at, []).append(piece)
    rooms = Rooms(space, [piece for job in ordered for piece in job.pieces if not piece.bound], held)
    packing = Packing(space, rooms, space.cap)
    unplaced = ffd.pack(packing, ordered)
    bound, opened = lower_bound(ordered, space), len(packing.opened)
    first = Packed(packing, ordered, unplaced, bound, opened <= bound, opened, unplaced)
    if algorithm == "ffd" or not (unplaced or (space.auto and opened > bound)):
        return first
    counts = range(max(1, bound), min(space.cap, len(space.nodes)) + 1 if unplaced else opened)
    found = exact.search(space, rooms, ordered, counts, lambda tried: _leaves(tried, leftover_min))
    return Packed(
        packing=found.packing or packing,
        jobs=ordered,
        unplaced=() if found.packing else unplaced,
        lower_bound=bound,
        proven_minimal=not found.limit_reached,
        ffd_nodes=opened,
        ffd_unplaced=unplaced,
        searched=True,
        trials=found.trials,
        limit_reached=found.limit_reached,
    )


def _leaves(packing: Packing, least: int) -> bool:
    """Whether the nodes of the pool have so many wholly free GPUs left."""
    if not least:
        return True
    space, there = packing.space, packing.pieces()
    left = 0
    for at, pieces in there.items():
        layout = lay_out(space.nodes[at], pieces, space)
        if layout is not None and not any(piece.whole or piece.opaque for piece in pieces):
            left += len(free_after(space.nodes[at], layout))
    if not space.auto:
        spare = [node.free.bit_count() for node in space.nodes if node.at not in there and node.takes_more]
        left += sum(spare[: space.cap - len(there)])
    return left >= least
