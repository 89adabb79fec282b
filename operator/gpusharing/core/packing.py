"""Packing of requests onto GPUs, each unsplit: whether they fit, and on how few GPUs (decision 57).

A request asks for ids of one resource; a GPU has room for each of its resources. Both questions are answered by trying,
the largest request first, within a budget of steps: with few requests the answer is exact, beyond that it is careful
("does not fit", "not fewer").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Assignments that are tried, about 10 ms; and the most requests that more is tried with than the first fit.
BUDGET, REQUESTS_MAX = 1_000, 200

# resource → ids
Room = Mapping[str, int]


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """So many ids of a resource, on one GPU."""

    resource: str
    size: int


def fits(requests: Sequence[Request], rooms: Sequence[Room]) -> bool:
    """Whether all requests fit into what is free on the GPUs."""
    return _Search(rooms, [True] * len(rooms)).solve(_largest_first(requests), limit=0) == 0


def fewest_gpus(requests: Sequence[Request], rooms: Sequence[Room], at_most: int) -> int:
    """Return how many GPUs are enough for all requests on empty GPUs; `at_most` if it cannot be done with fewer."""
    return min(at_most, _Search(rooms, [False] * len(rooms)).solve(_largest_first(requests), limit=at_most))


def _largest_first(requests: Sequence[Request]) -> list[Request]:
    return sorted(requests, key=lambda request: (-request.size, request.resource))


class _Search:
    """Depth first over the requests; GPUs with equal room are tried once."""

    def __init__(self, rooms: Sequence[Room], in_use: Sequence[bool]) -> None:
        self._room = [dict(room) for room in rooms]
        self._in_use = list(in_use)
        self._best = 0
        self._budget = BUDGET

    def solve(self, requests: Sequence[Request], limit: int) -> int:
        """Return the fewest GPUs that come into use; `limit` + 1 = not found with so few."""
        first = self._first_fit(requests)
        self._best = limit + 1 if first is None else min(limit + 1, first)
        if len(requests) <= REQUESTS_MAX:
            self._place(requests, 0, 0)
        return self._best

    def _first_fit(self, requests: Sequence[Request]) -> int | None:
        """Return how many GPUs come into use if each request goes to the first GPU with room; None = it has none."""
        rooms, in_use = [dict(room) for room in self._room], list(self._in_use)
        for request in requests:
            gpus = [gpu for gpu, room in enumerate(rooms) if room.get(request.resource, 0) >= request.size]
            if not gpus:
                return None
            gpu = min(gpus, key=lambda gpu: (not in_use[gpu], gpu))
            rooms[gpu][request.resource] -= request.size
            in_use[gpu] = True
        return sum(in_use) - sum(self._in_use)

    def _place(self, requests: Sequence[Request], at: int, opened: int) -> None:
        """Try every GPU for the next request."""
        if opened >= self._best:
            return
        if at == len(requests):
            self._best = opened
            return
        request, seen = requests[at], set[tuple[object, ...]]()
        for gpu in sorted(range(len(self._room)), key=lambda gpu: (not self._in_use[gpu], gpu)):
            room, in_use = self._room[gpu], self._in_use[gpu]
            alike = (in_use, *sorted(room.items()))
            if room.get(request.resource, 0) < request.size or alike in seen:
                continue
            seen.add(alike)
            self._budget -= 1
            if self._budget < 0:
                return
            room[request.resource] -= request.size
            self._in_use[gpu] = True
            self._place(requests, at + 1, opened + (not in_use))
            self._in_use[gpu] = in_use
            room[request.resource] += request.size
            if self._best <= opened:
                return
