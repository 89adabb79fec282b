"""First fit decreasing: each service, the biggest first, goes to the first node with room (guide, section 6.4)."""

from collections.abc import Sequence

from gpusharing.core.placement.packing import Packing
from gpusharing.core.placement.pieces import Job, Piece
from gpusharing.core.placement.rooms import NO_ROOM


def pack(packing: Packing, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Put the jobs, in this order. Returns those that find no place; the rest goes on without them."""
    return tuple(job for job in jobs if not _put(packing, job))


def _put(packing: Packing, job: Job) -> bool:
    """Put the whole service, or nothing of it."""
    mark = packing.mark()
    if job.held:
        done = packing.put_held(job)
    elif job.demand.evenly:
        done = packing.put_evenly(job)
    elif job.only is not None and not job.whole:
        done = packing.put_at(job, job.only)
    elif job.whole:
        missing = packing.put_whole(job)
        done = not missing or (job.has_tail and _put_each(packing, [job.rest(missing)]))
    else:
        done = _put_each(packing, job.pieces)
    if not done:
        packing.back_to(mark)
    return done


def _put_each(packing: Packing, pieces: Sequence[Piece]) -> bool:
    """Put each piece on the first node with room for it: opened nodes first, in the order of opening."""
    return all(_put_piece(packing, piece) for piece in pieces)


def _put_piece(packing: Packing, piece: Piece) -> bool:
    shape = packing.rooms.shape(piece)
    for at in packing.reachable():
        after = packing.rooms.after(packing.state(at), shape)
        if after != NO_ROOM:
            packing.put(at, piece, after)
            return True
    return False
