"""Partitions of GPUs into sets of one size, for the most points; a smaller set takes what is left over.

Places are 0 to n - 1, `scores` is the symmetric matrix of pair scores, and `inside` are places that must be in one full
set. A partition is a tuple of sets; the leftover set has fewer places.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

Matrix = Sequence[Sequence[int]]
Set = tuple[int, ...]

# How many exchanges of two GPUs the search looks at, at most: about 10 ms (decision 55).
BUDGET = 30_000
# Starts from scattered orders, after those that are grown: without them one of 200 random topologies of 16 GPUs ends
# 7.1 % below the optimum.
SCATTERED = 10


def best(scores: Matrix, inside: Sequence[int], size: int) -> tuple[Set, ...]:
    """Return the first of the partitions with the most points, by looking at all of them: for few GPUs only."""
    points = _points_of_sets(scores)
    wanted = _mask(inside)
    full_size = [one for one in partitions(len(scores), size) if _holds(one, wanted, size)]
    return tuple(map(_members, max(full_size, key=lambda masks: sum(points[mask] for mask in masks))))


def _holds(masks: Sequence[int], wanted: int, size: int) -> bool:
    return any(mask & wanted == wanted and mask.bit_count() == size for mask in masks)


def _points_of_sets(scores: Matrix) -> list[int]:
    """Return the points of every set of places, by its bit mask."""
    points = [0]
    for place, row in enumerate(scores):
        joining = [0]  # what the place adds to each set of lower ones
        for other in range(place):
            joining += [each + row[other] for each in joining]
        points += [old + added for old, added in zip(points, joining, strict=True)]
    return points


@lru_cache(maxsize=64)
def partitions(count: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Return all partitions as bit masks, in lexicographic order; a leftover set is as if filled up with higher places.

    8 places give at most 280 of them.
    """
    return tuple(tuple(map(_mask, one)) for one in _enumerated(tuple(range(count)), size, count))


def _enumerated(places: Set, size: int, filler: int) -> Iterator[tuple[Set, ...]]:
    if not places:
        yield ()
        return
    first, others = places[0], places[1:]
    left_over = len(places) % size
    sets = [(first, *rest) for rest in combinations(others, size - 1)]
    if left_over:
        sets += [(first, *rest) for rest in combinations(others, left_over - 1)]
        sets.sort(key=lambda one: one + (filler,) * (size - len(one)))
    for one in sets:
        for rest in _enumerated(tuple(place for place in places if place not in one), size, filler):
            yield (one, *rest)


def _mask(places: Sequence[int]) -> int:
    return sum(1 << place for place in places)


def _members(mask: int) -> Set:
    return tuple(place for place in range(mask.bit_length()) if mask >> place & 1)


def search(scores: Matrix, inside: Sequence[int], size: int) -> tuple[Set, ...]:
    """Return a good partition: from several starts, exchange two GPUs as long as that adds points.

    Same input, same answer: the budget is a number of exchanges, not a time.
    """
    count, budget = len(scores), BUDGET
    found: tuple[int, tuple[Set, ...]] | None = None
    for start in range(count + 1 + SCATTERED):
        attempt = _Attempt(scores, inside, _start(scores, inside, size, start))
        budget = attempt.improve(budget)
        if found is None or attempt.points() > found[0]:
            found = attempt.points(), attempt.sets()
        if budget <= 0:
            break
    assert found is not None
    return found[1]


def _start(scores: Matrix, inside: Sequence[int], size: int, start: int) -> list[list[int]]:
    """Return a first partition: of the places in order, grown from one place by what joins best, or scattered."""
    count = len(scores)
    if 0 < start <= count:
        return _grown(scores, inside, size, start - 1)
    order = range(count) if start == 0 else _scattered(count, start - count)
    return _cut([*inside, *(place for place in order if place not in inside)], size)


def _scattered(count: int, number: int) -> list[int]:
    """Return the places in an order that has nothing to do with their numbers, the same every time."""
    return sorted(range(count), key=lambda place: (place + 1) * number * 7919 % 104_729 % 251)


def _cut(places: Sequence[int], size: int) -> list[list[int]]:
    return [list(places[at : at + size]) for at in range(0, len(places), size)]


def _grown(scores: Matrix, inside: Sequence[int], size: int, seed: int) -> list[list[int]]:
    rest = [place for place in range(len(scores)) if place not in inside]
    ordered = list(inside)
    while rest:
        grown = ordered[len(ordered) // size * size :]
        if grown:
            joins = max(rest, key=lambda one: sum(scores[one][member] for member in grown))
        else:
            joins = seed if seed in rest else rest[0]
        ordered.append(joins)
        rest.remove(joins)
    return _cut(ordered, size)


class _Attempt:
    """A partition that is improved in place."""

    def __init__(self, scores: Matrix, inside: Sequence[int], sets: Sequence[Sequence[int]]) -> None:
        self._scores = scores
        self._pinned = frozenset(inside)
        self._set_of = [0] * len(scores)
        for at, members in enumerate(sets):
            for place in members:
                self._set_of[place] = at
        # what each place has in common with each set
        self._ties = [[sum(row[member] for member in members) for members in sets] for row in scores]

    def points(self) -> int:
        """Return the points of all sets."""
        return sum(ties[at] for ties, at in zip(self._ties, self._set_of, strict=True)) // 2

    def sets(self) -> tuple[Set, ...]:
        """Return the partition."""
        sets: dict[int, list[int]] = {}
        for place, at in enumerate(self._set_of):
            sets.setdefault(at, []).append(place)
        return tuple(tuple(members) for _, members in sorted(sets.items()))

    def improve(self, budget: int) -> int:
        """Exchange pairs until no exchange adds points, or the budget is spent. Returns what is left of it."""
        movable = [place for place in range(len(self._scores)) if place not in self._pinned]
        improved = True
        while improved and budget > 0:
            improved = False
            for at, one in enumerate(movable):
                budget -= at
                for other in movable[:at]:
                    if self._gain(one, other) > 0:
                        self._exchange(one, other)
                        improved = True
        return budget

    def _gain(self, one: int, other: int) -> int:
        mine, theirs = self._set_of[one], self._set_of[other]
        if mine == theirs:
            return 0
        of_one, of_other = self._ties[one], self._ties[other]
        return of_one[theirs] - of_one[mine] + of_other[mine] - of_other[theirs] - 2 * self._scores[one][other]

    def _exchange(self, one: int, other: int) -> None:
        mine, theirs = self._set_of[one], self._set_of[other]
        for ties, joins, leaves in zip(self._ties, self._scores[other], self._scores[one], strict=True):
            ties[mine] += joins - leaves
            ties[theirs] += leaves - joins
        self._set_of[one], self._set_of[other] = theirs, mine
