"""Packing of requests onto GPUs, each unsplit: whether they fit, and on how few GPUs (decision 57).

A request asks for ids of one resource; a GPU has room for each of its resources. The largest request goes first, to the
first GPU with room; equal requests go together, so that thousands of small ones cost no more than one. Where that may
not be the best way, others are tried within a budget of steps: with few requests the answer is exact, beyond that it is
careful ("does not fit", "not fewer").
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# The most steps of a search, some 5 ms on 16 GPUs; and the most requests that are worth one.
STEPS, REQUESTS_MAX = 500, 64

# resource → ids
Room = Mapping[str, int]


class Request(NamedTuple):
    """So many ids of a resource, on one GPU."""

    resource: str
    size: int


def fits(requests: Iterable[Request], rooms: Sequence[Room], steps: int = STEPS) -> bool:
    """Whether all requests fit into what is free on the GPUs."""
    counted = Counter(requests)
    needed = _needed(counted)
    if any(sum(room.get(name, 0) for room in rooms) < size for name, size in needed.items()):
        return False
    return _fewest(counted, _Goal(in_use=True, enough=0, at_most=0, steps=steps), rooms) == 0


def fewest_gpus(requests: Iterable[Request], rooms: Sequence[Room], at_most: int) -> int:
    """Return how many GPUs are enough for all requests on empty GPUs; `at_most` if it cannot be done with fewer."""
    counted = Counter(requests)
    enough = max((_least(name, size, rooms) for name, size in _needed(counted).items()), default=0)
    goal = _Goal(in_use=False, enough=enough, at_most=at_most, steps=STEPS)
    return min(at_most, _fewest(counted, goal, rooms))


def _needed(requests: Mapping[Request, int]) -> Mapping[str, int]:
    """Return resource → ids of all requests together."""
    needed: Counter[str] = Counter()
    for request, count in requests.items():
        needed[request.resource] += request.size * count
    return needed


def _least(name: str, size: int, rooms: Sequence[Room]) -> int:
    """Return how few GPUs have so many ids of a resource together; one more than there are if all have too few."""
    left = size
    for count, room in enumerate(sorted((room.get(name, 0) for room in rooms), reverse=True)):
        if left <= 0:
            return count
        left -= room
    return len(rooms) + (left > 0)


class _Goal(NamedTuple):
    """What is looked for: as few GPUs as possible that come into use."""

    # whether all GPUs are in use to begin with
    in_use: bool
    # fewer than so many cannot be, more than so many are of no interest
    enough: int
    at_most: int
    steps: int


def _fewest(requests: Counter[Request], goal: _Goal, rooms: Sequence[Room]) -> int:
    """Return how few GPUs come into use; `at_most` + 1 = not found with so few."""
    ordered = sorted(requests.items(), key=lambda it: (-it[0].size, it[0].resource))
    first = _first_fit(ordered, rooms, in_use=goal.in_use)
    best = goal.at_most + 1 if first is None else min(first, goal.at_most + 1)
    if best <= goal.enough or requests.total() > REQUESTS_MAX:
        return best
    return _Search([request for request, count in ordered for _ in range(count)], goal, rooms, best).run()


def _first_fit(requests: Iterable[tuple[Request, int]], rooms: Sequence[Room], *, in_use: bool) -> int | None:
    """Return how many GPUs come into use if each request goes to the first GPU with room; None = it has none."""
    left, used = [dict(room) for room in rooms], [in_use] * len(rooms)
    for request, count in requests:
        waiting = count
        for gpu in sorted(range(len(left)), key=lambda gpu: (not used[gpu], gpu)):
            taken = min(waiting, left[gpu].get(request.resource, 0) // request.size)
            if taken:
                left[gpu][request.resource] -= taken * request.size
                used[gpu] = True
                waiting -= taken
        if waiting:
            return None
    return 0 if in_use else sum(used)


class _Search:
    """Depth first over the requests; GPUs with equal room are tried once."""

    def __init__(self, requests: Sequence[Request], goal: _Goal, rooms: Sequence[Room], best: int) -> None:
        self._requests = requests
        self._room = [dict(room) for room in rooms]
        self._in_use = [goal.in_use] * len(rooms)
        self._best = best
        self._enough = goal.enough
        self._steps = goal.steps

    def run(self) -> int:
        """Return the fewest GPUs that come into use, or what was the best before."""
        self._place(0, 0)
        return self._best

    def _place(self, at: int, opened: int) -> None:
        """Try every GPU for the next request."""
        if opened >= self._best:
            return
        if at == len(self._requests):
            self._best = opened
            return
        request, seen = self._requests[at], set[tuple[object, ...]]()
        for gpu in sorted(range(len(self._room)), key=lambda gpu: (not self._in_use[gpu], gpu)):
            room, in_use = self._room[gpu], self._in_use[gpu]
            if room.get(request.resource, 0) < request.size:
                continue
            alike = (in_use, *sorted(room.items()))
            if alike in seen:
                continue
            seen.add(alike)
            self._steps -= 1
            if self._steps < 0:
                return
            room[request.resource] -= request.size
            self._in_use[gpu] = True
            self._place(at + 1, opened + (not in_use))
            self._in_use[gpu] = in_use
            room[request.resource] += request.size
            if self._best <= max(opened, self._enough):
                return
