"""aligned: whole GPUs that are well connected, so that the GPUs left over are well connected too.

All free GPUs are divided into sets of the request's size; what is left over is a smaller set, which counts but is never
the answer (contract 12.4). The partition with the most points wins, and of its sets the best one (decision 53).
"""

from collections.abc import Sequence

from gpusharing.core.allocation import partition
from gpusharing.core.allocation.buckets import Buckets, GpuSet

NAME = "aligned"
FOR_USERS = False
RULE = "the best connected GPUs that leave well connected GPUs behind"
LOAD_SIGN = 1

# Up to this many GPUs every partition is looked at (at most 280 of them); above, a search with a budget (decision 55).
EXACT_UP_TO = 8


def choose(buckets: Buckets, gpus: Sequence[int]) -> list[str]:
    """Choose GPUs that make a set with the must-include ones."""
    chosen = max(answers(buckets, divide(buckets, gpus)), key=buckets.table.links.score)
    return [buckets.table.gpus[gpu].ids[0] for gpu in chosen if not buckets.required[gpu]]


def divide(buckets: Buckets, gpus: Sequence[int]) -> list[GpuSet]:
    """Return the sets that these GPUs and the must-include ones are divided into, by their lowest index."""
    required = buckets.touched()
    divided = sorted({*gpus, *required})
    size = buckets.need + len(required)
    if size == 1:
        return [(gpu,) for gpu in divided]
    if size == len(divided):
        return [tuple(divided)]
    scores = [[buckets.table.links.scores[one, other] for other in divided] for one in divided]
    find = partition.best if len(divided) <= EXACT_UP_TO else partition.search
    sets = find(scores, [divided.index(gpu) for gpu in required], size)
    return sorted(tuple(divided[place] for place in one) for one in sets)


def answers(buckets: Buckets, sets: Sequence[GpuSet]) -> list[GpuSet]:
    """Return those sets that a request may get: as many GPUs as it asks for, the must-include ones among them."""
    required = buckets.touched()
    return [one for one in sets if len(one) == buckets.need + len(required) and set(one).issuperset(required)]
