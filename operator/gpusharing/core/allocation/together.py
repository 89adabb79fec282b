"""Which GPUs a request goes to when it should stay together, or go to linked GPUs (decisions 53 and 54).

Sets of GPUs are compared one by one as long as there are few; on a node with very many GPUs a set is grown GPU by GPU,
so that an answer never takes long.
"""

from collections.abc import Callable, Sequence
from heapq import nlargest
from itertools import accumulate, combinations, compress, islice
from math import comb

from gpusharing.core.allocation.buckets import Buckets, GpuSet

# All sets of up to 16 GPUs (12,870 of eight); where links count, which takes longer to see, of up to four of 16.
SETS_MAX, LINKED_SETS_MAX = 13_000, 2_000

# What a set is compared by, the most important first; less is better.
Criteria = tuple[Callable[[GpuSet], int], ...]


def fewest_gpus(buckets: Buckets, load_sign: int, *, linked: bool) -> list[int]:
    """Return the GPUs to fill: as few as can hold the request, those that it is on already among them.

    A sick GPU is used only if the healthy ones cannot hold the request. `load_sign` is the policy's.
    """
    candidates = _healthy_if_enough(buckets)
    at_hand = [gpu for gpu in candidates if buckets.required[gpu]]
    others = [gpu for gpu in candidates if not buckets.required[gpu]]
    missing = buckets.need - sum(buckets.free[gpu] for gpu in at_hand)
    if missing <= 0:
        return at_hand
    most = accumulate(sorted((buckets.free[gpu] for gpu in others), reverse=True))
    count = next(count for count, room in enumerate(most, 1) if room >= missing)
    more = (
        _linked_set(buckets, load_sign, at_hand, others, count, missing)
        if linked
        else _fittest_set(buckets, load_sign, others, count, missing)
    )
    return sorted([*at_hand, *more])


def most_linked(buckets: Buckets) -> list[int]:
    """Return one GPU for each id, as far as there are enough: well connected ones, for `spread`.

    By `(sick, already used by the request, unlinked pairs, -pair score, load, indices)`.
    """
    candidates = buckets.candidates()
    count = min(buckets.need, len(candidates))
    touched, links = buckets.touched(), buckets.table.links
    criteria: Criteria = (
        lambda gpus: sum(buckets.sick[gpu] for gpu in gpus),
        lambda gpus: sum(buckets.required[gpu] > 0 for gpu in gpus),
        lambda gpus: links.unlinked(sorted({*touched, *gpus})),
        lambda gpus: -links.score(sorted({*touched, *gpus})),
        lambda gpus: sum(buckets.load[gpu] for gpu in gpus),
    )
    return list(_best_set(candidates, count, criteria, room=[0] * len(buckets.free), missing=0))


def evenly(buckets: Buckets, gpus: Sequence[int], load_sign: int) -> list[str]:
    """Choose ids so that the request, must-include ids included, is split evenly over the GPUs (decision 54).

    A share that is left over goes where the policy would begin.
    """
    ordered = sorted(gpus, key=lambda gpu: (load_sign * buckets.load[gpu], -buckets.free[gpu], gpu))
    parts = _even_parts(buckets, ordered)
    return [
        device_id
        for gpu in ordered
        for device_id in (
            buckets.fullest_first(gpu, parts[gpu]) if load_sign < 0 else buckets.emptiest(gpu, parts[gpu])
        )
    ]


def _healthy_if_enough(buckets: Buckets) -> list[int]:
    candidates = buckets.candidates()
    healthy = [gpu for gpu in candidates if not buckets.sick[gpu]]
    return healthy if sum(buckets.free[gpu] for gpu in healthy) >= buckets.need else candidates


def _fittest_set(buckets: Buckets, load_sign: int, gpus: Sequence[int], count: int, missing: int) -> Sequence[int]:
    """Return the set with room enough that is best by `(load, free for packed or -free for distributed, indices)`."""
    free, load = buckets.free, buckets.load
    if comb(len(gpus), count) > SETS_MAX:
        return _grown(gpus, count, (lambda some: load_sign * sum(load[gpu] for gpu in some),), free, missing)
    # one number for load and free, as sums of numbers compare like sums of pairs; of equal sets the first one is best
    worth = [load_sign * (load[gpu] * (buckets.room + 1) - free[gpu]) for gpu in gpus]
    fits = map(missing.__le__, map(sum, combinations([free[gpu] for gpu in gpus], count)))
    worths = list(map(sum, combinations(worth, count)))
    best = min(compress(range(len(worths)), fits), key=worths.__getitem__)
    return next(islice(combinations(gpus, count), best, None))


def _linked_set(
    buckets: Buckets, load_sign: int, at_hand: Sequence[int], gpus: Sequence[int], count: int, missing: int
) -> Sequence[int]:
    """Return the set that is best by `(unlinked pairs, uneven, -pair score)`, then as `_fittest_set` says."""
    free, load, links, touched = buckets.free, buckets.load, buckets.table.links, buckets.touched()
    criteria: Criteria = (
        lambda some: links.unlinked([*touched, *some]),
        lambda some: _unevenness(buckets, touched, (*at_hand, *some)) if len(some) == count else 0,
        lambda some: -links.score([*touched, *some]),
        lambda some: load_sign * sum(load[gpu] for gpu in some),
        lambda some: -load_sign * sum(free[gpu] for gpu in some),
    )
    return _best_set(gpus, count, criteria, room=free, missing=missing)


def _best_set(
    gpus: Sequence[int], count: int, criteria: Criteria, *, room: Sequence[int], missing: int
) -> Sequence[int]:
    """Return the first of the best sets with room enough; of those that are alike so far the next criterion decides."""
    if comb(len(gpus), count) > LINKED_SETS_MAX:
        return _grown(gpus, count, criteria, room, missing)
    sets = [some for some in combinations(gpus, count) if sum(room[gpu] for gpu in some) >= missing]
    for criterion in criteria:
        if len(sets) == 1:
            break
        values = list(map(criterion, sets))
        best = min(values)
        sets = [some for some, value in zip(sets, values, strict=True) if value == best]
    return sets[0]


def _even_parts(buckets: Buckets, gpus: Sequence[int]) -> dict[int, int]:
    """Return how many ids each GPU gets so that the request is level, as far as there is room; the first get more."""
    level = {gpu: buckets.required[gpu] for gpu in gpus}
    room = {gpu: buckets.free[gpu] for gpu in gpus}
    need = buckets.need
    while need:
        lowest = min(level[gpu] for gpu, left in room.items() if left)
        low = [gpu for gpu in gpus if room[gpu] and level[gpu] == lowest]
        above = min((level[gpu] for gpu in gpus if room[gpu] and level[gpu] > lowest), default=lowest + need)
        step = min(above - lowest, need // len(low), *(room[gpu] for gpu in low))
        for gpu in low if step else low[:need]:
            level[gpu] += step or 1
            room[gpu] -= step or 1
        need -= step * len(low) or need
    return {gpu: level[gpu] - buckets.required[gpu] for gpu in gpus}


def _unevenness(buckets: Buckets, touched: Sequence[int], gpus: Sequence[int]) -> int:
    """Return the largest minus the smallest part of the request when it is split evenly over these GPUs."""
    if not touched:
        return _unevenness_of(buckets.need, sorted(buckets.free[gpu] for gpu in gpus))
    parts = _even_parts(buckets, gpus)
    sizes = [buckets.required[gpu] + parts.get(gpu, 0) for gpu in {*touched, *gpus}]
    return max(sizes) - min(sizes)


def _unevenness_of(need: int, rooms: Sequence[int]) -> int:
    """Return the same for GPUs that have nothing of the request yet, from the smallest room to the largest."""
    for at, room in enumerate(rooms):
        left = len(rooms) - at
        if room * left >= need:
            return -(-need // left) - min(rooms[0], need // left)
        need -= room
    return 0


def _grown(gpus: Sequence[int], count: int, criteria: Criteria, free: Sequence[int], missing: int) -> list[int]:
    """Return a set that is grown GPU by GPU: each time the one that is best now and leaves the rest possible."""
    grown: GpuSet = ()
    for left in range(count - 1, -1, -1):
        rest = [gpu for gpu in gpus if gpu not in grown]
        room = sum(free[gpu] for gpu in grown)

        def possible(gpu: int, room: int = room, rest: Sequence[int] = rest, left: int = left) -> bool:
            return room + free[gpu] + sum(nlargest(left, (free[other] for other in rest if other != gpu))) >= missing

        grown = min(
            ((*grown, gpu) for gpu in rest if possible(gpu)),
            key=lambda some: ([criterion(some) for criterion in criteria], some),
        )
    return sorted(grown)
