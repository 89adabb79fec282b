"""Assignments of an earlier plan that still hold: they stay where they are (guide, sections 6.4 and 6.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpusharing.core.placement.pieces import Job, Piece
from gpusharing.core.placement.pools import PoolNode, Space, mask_of
from gpusharing.core.placement.request import Bound


def bind(jobs: Sequence[Job], bound: Sequence[Bound], space: Space) -> tuple[Job, ...]:
    """Return the jobs, bound where their entries hold; a service with one that does not is planned anew.

    Of two that are bound to one GPU the first has it.
    """
    by_name = {node.name: node for node in space.nodes if node.name}
    taken = _Taken(space)
    return tuple(
        _bound_job(job, [each for each in bound if each.service == job.demand.name], by_name, taken) for job in jobs
    )


def giving_way(space: Space, jobs: Sequence[Job]) -> Space:
    """Return the space in which the GPUs of these bound jobs are anybody's, but the last to be taken."""
    given = {at: mask_of(piece.pins) for job in jobs for at, piece in zip(job.held, job.pieces, strict=True)}
    return replace(space, nodes=tuple(replace(node, last=given.get(node.at, 0)) for node in space.nodes))


class _Taken:
    """Shares of GPUs that bound services have, so that no two have the same; and the nodes that these open."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._shares: dict[tuple[int, int], int] = {}
        self._owned: set[int] = set()
        self._nodes: set[int] = set()

    def take(self, held: Sequence[int], pieces: Sequence[Piece]) -> bool:
        """Whether nobody else has the GPUs; they are then taken."""
        shares = dict(self._shares)
        for at, piece in zip(held, pieces, strict=True):
            if at in self._owned or (piece.whole and at in self._nodes):
                return False
            for index in piece.pins:
                shares[at, index] = shares.get((at, index), 0) + piece.shares
        nodes = self._nodes | set(held)
        if max(shares.values(), default=0) > self._space.replicas or len(nodes) > self._space.cap:
            return False
        self._shares, self._nodes = shares, nodes
        self._owned |= {at for at, piece in zip(held, pieces, strict=True) if piece.whole or piece.opaque}
        return True


def _bound_job(job: Job, entries: Sequence[Bound], by_name: Mapping[str, PoolNode], taken: _Taken) -> Job:
    nodes = [by_name.get(each.node) for each in entries]
    there = [node for node in nodes if node is not None]
    if not entries or len({node.at for node in there}) < len(entries) or not _right_size(job, entries):
        return job
    pieces = []
    for part, (node, entry) in enumerate(zip(there, entries, strict=True)):
        if not set(entry.indexes) <= set(node.indexes) or len(set(entry.indexes)) < len(entry.indexes):
            return job
        owns = job.whole and (job.demand.exclusive or not job.has_tail or _fills(node, entry))
        gpus = len(entry.indexes)
        pieces.append(replace(job.pieces[0], part=part, gpus=gpus, pins=entry.indexes, bound=True, whole=owns))
    held = tuple(node.at for node in there)
    return replace(job, pieces=tuple(pieces), held=held, group=0) if taken.take(held, pieces) else job


def _fills(node: PoolNode, entry: Bound) -> bool:
    return not node.usable & ~mask_of(entry.indexes)


def _right_size(job: Job, entries: Sequence[Bound]) -> bool:
    """Whether the entries are what the service needs now, none missing."""
    demand = job.demand
    sizes = [len(each.indexes) for each in entries]
    if demand.from_env:
        return not any(sizes) and (len(entries) == 1 or job.whole)
    if any(not size for size in sizes):
        return False
    if demand.leftover is not None:
        return sum(sizes) >= demand.leftover
    if job.pieces[0].pins:
        return all(each.indexes == job.pieces[0].pins for each in entries) and sum(sizes) == demand.gpus_needed
    if demand.evenly:
        return sizes == [piece.gpus for piece in job.pieces]
    if demand.split:
        return sum(sizes) == demand.gpus_needed and not any(size % demand.per_instance for size in sizes)
    if job.whole:
        return sum(sizes) == demand.gpus_needed if job.has_tail else sum(sizes) >= demand.gpus_needed
    return len(entries) == 1 and sizes[0] == demand.gpus_needed
