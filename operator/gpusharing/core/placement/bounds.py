"""How many nodes a pool needs at least (guide, section 6.5)."""

from collections.abc import Sequence

from gpusharing.core.placement.pieces import Job
from gpusharing.core.placement.pools import Space, mask_of


def lower_bound(jobs: Sequence[Job], space: Space) -> int:
    """Return a number of nodes below which there is no plan."""
    if not space.largest:
        return 0
    owned, weights = 0, list[int]()
    for job in jobs:
        if not job.whole:
            weights += [piece.gpus * piece.shares for piece in job.pieces]
        elif job.has_tail:
            owned += job.demand.gpus_needed // space.largest
            weights.append(job.demand.gpus_needed % space.largest * job.pieces[0].shares)
        else:
            owned += -(-job.demand.gpus_needed // space.largest)
    return owned + (_by_room(weights, jobs, space) if space.real else _l2(weights, space.largest * space.replicas))


def _by_room(weights: Sequence[int], jobs: Sequence[Job], space: Space) -> int:
    """Return how many of the roomiest nodes have enough shares together: free ones, and those that are bound."""
    room = [node.free for node in space.nodes]
    for job in jobs:
        for at, piece in zip(job.held, job.pieces, strict=False):
            room[at] |= mask_of(piece.pins)
    missing, count = sum(weights), 0
    for gpus in sorted((mask.bit_count() for mask in room), reverse=True):
        if missing <= 0:
            break
        missing, count = missing - gpus * space.replicas, count + 1
    return count


def _l2(weights: Sequence[int], capacity: int) -> int:
    """Return the bound L2 of Martello and Toth for bins of one capacity.

    With a threshold up to half a bin: what is over the rest of a bin needs one of its own (`alone`), what is over half
    a bin too, but leaves room, and the small ones must fit into that room or into further bins.
    """
    halves = sorted({weight for weight in weights if 2 * weight <= capacity} | {0})
    return max(_l2_at(threshold, weights, capacity) for threshold in halves)


def _l2_at(threshold: int, weights: Sequence[int], capacity: int) -> int:
    alone = sum(weight > capacity - threshold for weight in weights)
    large = [weight for weight in weights if capacity - threshold >= weight and 2 * weight > capacity]
    small = sum(weight for weight in weights if weight >= threshold and 2 * weight <= capacity)
    overflow = small - (len(large) * capacity - sum(large))
    return alone + len(large) + max(0, -(-overflow // capacity))
