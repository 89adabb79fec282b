"""The exact search for fewer nodes, depth first and within a limit (guide, section 6.5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpusharing.core.placement.packing import Packing
from gpusharing.core.placement.pieces import Job, Piece
from gpusharing.core.placement.pools import Space
from gpusharing.core.placement.rooms import NO_ROOM, Rooms

MAX_TRIALS = 50_000
MAX_SERVICES = 40
# The search goes two calls deeper with each piece, and Python takes a thousand.
MAX_PIECES = 200


@dataclass(frozen=True, slots=True)
class Found:
    """How the search ended."""

    # None = there is no such plan, or none was found within the limit
    packing: Packing | None
    trials: int
    limit_reached: bool


class _Limit(Exception):
    """The search has tried enough."""


def search(
    space: Space,
    rooms: Rooms,
    jobs: Sequence[Job],
    counts: range,
    enough: Callable[[Packing], bool],
    most_trials: int = MAX_TRIALS,
) -> Found:
    """Return the first plan with the smallest of these node counts that places every job and is `enough`."""
    if len(jobs) > MAX_SERVICES or sum(len(job.pieces) for job in jobs) > MAX_PIECES:
        return Found(None, 0, limit_reached=True)
    left = most_trials
    for count in counts:
        attempt = _Attempt(Packing(space, rooms, count), jobs, enough, left)
        try:
            if attempt.run():
                return Found(attempt.packing, most_trials - attempt.left, limit_reached=False)
        except _Limit:
            return Found(None, most_trials, limit_reached=True)
        left = attempt.left
    return Found(None, most_trials - left, limit_reached=False)


@dataclass(frozen=True, slots=True)
class _Step:
    """One decision: a piece and its shape; a service that takes its nodes without a choice; or the rest of that one."""

    job: Job
    piece: Piece | None = None
    # -1 = of a shape that is not known before
    shape: int = -1
    rest: bool = False


class _Attempt:
    """The search with one node count."""

    def __init__(
        self, packing: Packing, jobs: Sequence[Job], enough: Callable[[Packing], bool], most_trials: int
    ) -> None:
        self.packing, self.left = packing, most_trials
        self._enough = enough
        self._steps = [step for job in jobs for step in _steps(job, packing.rooms)]
        # what is still to be placed behind each step: shares in all, and of the smallest piece
        self._to_come = [0]
        self._smallest = [0]
        for step in reversed(self._steps):
            weight = step.piece.gpus * step.piece.shares if step.piece else 0
            self._to_come.append(self._to_come[-1] + weight)
            self._smallest.append(min(weight, self._smallest[-1] or weight) if weight else self._smallest[-1])
        self._to_come.reverse()
        self._smallest.reverse()
        # the most that so many unopened nodes can hold
        fresh = sorted((packing.rooms.left[state] for state in packing.rooms.fresh), reverse=True)
        self._unopened = [sum(fresh[:count]) for count in range(packing.cap + 1)]
        # what the service whose whole nodes were chosen last needs beside them
        self._missing = 0
        # for each step, where among the opened nodes its piece is
        self._position = [0] * len(self._steps)
        # states from which there is no way on, whichever way led there
        self._hopeless: set[tuple[int, ...]] = set()

    def run(self) -> bool:
        """Whether there is such a plan; it is then in `packing`."""
        return self._from(0)

    def _from(self, depth: int) -> bool:
        """Whether the pieces from this one on find their places; they are then there."""
        if depth == len(self._steps):
            return self._enough(self.packing)
        step = self._steps[depth]
        if step.piece is None and not (step.rest and self._missing):
            return self._without_choice(step, depth)
        if not self._may_fit(depth):
            return False
        seen = self._seen(depth)
        if seen in self._hopeless:
            return False
        if self._try_nodes(step, depth):
            return True
        self._hopeless.add(seen)
        return False

    def _try_nodes(self, step: _Step, depth: int) -> bool:
        packing, rooms = self.packing, self.packing.rooms
        states, fresh, known = packing.states, rooms.fresh, rooms.known
        piece = step.piece or step.job.rest(self._missing)
        shape = step.shape if step.piece else rooms.shape(piece)
        mark, opened, tried = packing.mark(), len(packing.opened), set()
        # of two equal pieces the second is never before the first: that would be the same plan again
        start = self._position[depth - 1] if depth and step.piece and self._steps[depth - 1].shape == shape else 0
        for position, at in enumerate(packing.reachable()[start:], start):
            state = states[position] if position < opened else fresh[at]
            if state in tried:
                continue
            tried.add(state)
            # most of 50,000 trials end here, so they are counted, and what is known looked up, without a call
            if not self.left:
                raise _Limit
            self.left -= 1
            after = known[state].get(shape) or rooms.after(state, shape)
            if after == NO_ROOM:
                continue
            self._position[depth] = min(position, opened)
            packing.put(at, piece, after)
            if self._from(depth + 1):
                return True
            packing.back_to(mark)
            # a piece that fills an open node is nowhere better off: what else would go there could swap with it
            if position < opened and not rooms.left[after] and rooms.only_counts:
                break
        return False

    def _without_choice(self, step: _Step, depth: int) -> bool:
        mark = self.packing.mark()
        if (step.rest or self._put(step.job)) and self._from(depth + 1):
            return True
        self.packing.back_to(mark)
        return False

    def _put(self, job: Job) -> bool:
        """Put a service that has no choice of nodes, as first fit decreasing does."""
        if not self.left:
            raise _Limit
        self.left -= 1
        if job.held:
            return self.packing.put_held(job)
        if job.demand.evenly:
            return self.packing.put_evenly(job)
        if job.only is not None and not job.whole:
            return self.packing.put_at(job, job.only)
        self._missing = self.packing.put_whole(job)
        return job.has_tail or not self._missing

    def _seen(self, depth: int) -> tuple[int, ...]:
        """Return what decides about all that follows: the states that opened nodes are in, not which nodes they are."""
        packing, missing = self.packing, self._missing if self._steps[depth].rest else 0
        if len(packing.rooms.alike) == 1:
            return (depth, missing, *sorted(packing.states))
        fresh = packing.rooms.fresh
        pairs = sorted(zip([fresh[at] for at in packing.opened], packing.states, strict=True))
        return (depth, missing, *(number for pair in pairs for number in pair))

    def _may_fit(self, depth: int) -> bool:
        """Whether the nodes have shares enough, without those on nodes that are too full for any piece to come."""
        packing, smallest = self.packing, self._smallest[depth]
        room = sum([left for left in packing.left if left >= smallest])
        return room + self._unopened[packing.cap - len(packing.opened)] >= self._to_come[depth]


def _steps(job: Job, rooms: Rooms) -> list[_Step]:
    if job.has_tail and not job.held:
        return [_Step(job), _Step(job, rest=True)]
    if job.held or job.whole or job.demand.evenly or job.only is not None:
        return [_Step(job)]
    return [_Step(job, piece, rooms.shape(piece)) for piece in job.pieces]
