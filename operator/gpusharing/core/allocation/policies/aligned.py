"""aligned: whole GPUs that are well connected, so that the GPUs left over are well connected too.

All free GPUs are divided into sets of the request's size; what is left over is a smaller set, which counts but is never
the answer (contract 12.4). The partition with the most points wins, and of its sets the best one (decision 53).
"""

from collections.abc import Sequence

from gpusharing.core.allocation import partition
from gpusharing.core.allocation.buckets import Buckets
from gpusharing.core.allocation.links import Links

NAME = "aligned"
FOR_USERS = False
RULE = "the best connected GPUs that leave well connected GPUs behind"
LOAD_SIGN = 1

# Up to this many GPUs every partition is looked at (at most 280 of them); above, a search with a budget (decision 55).
EXACT_UP_TO = 8


def choose(buckets: Buckets, gpus: Sequence[int]) -> list[str]:
    """Choose GPUs that make a set with the must-include ones."""
    required = [gpu for gpu, count in enumerate(buckets.required) if count]
    size = buckets.need + len(required)
    chosen = best_set(sorted({*gpus, *required}), required, size, buckets.table.links)
    return [buckets.table.gpus[gpu].ids[0] for gpu in chosen if gpu not in required]


def best_set(gpus: Sequence[int], required: Sequence[int], size: int, links: Links) -> tuple[int, ...]:
    """Return `size` of the GPUs (by index), the required ones among them."""
    if len(gpus) == size:
        return tuple(gpus)
    if size == 1:
        return tuple(required or gpus[:1])
    inside = [gpus.index(gpu) for gpu in required]
    scores = [[links.scores[one, other] for other in gpus] for one in gpus]
    find = partition.best if len(gpus) <= EXACT_UP_TO else partition.search
    sets = find(scores, inside, size)
    usable = [[gpus[place] for place in one] for one in sets if len(one) == size and set(inside) <= set(one)]
    return tuple(max(sorted(usable), key=links.score))
