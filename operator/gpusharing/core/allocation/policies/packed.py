"""`packed`: the fullest GPU first, which keeps whole GPUs free."""

from collections.abc import Sequence

from gpusharing.core.allocation.buckets import Buckets

NAME = "packed"
FOR_USERS = True
RULE = "the fullest GPU first"
LOAD_SIGN = -1


def choose(buckets: Buckets, gpus: Sequence[int]) -> list[str]:
    """Choose by `(sick, -load, picked, -free, index)` for each id (decision 53).

    The GPU that got the first id is fuller than before and stays the fullest: it is emptied before the next one.
    """
    sick, load, free = buckets.sick, buckets.load, buckets.free
    chosen: list[str] = []
    for _, _, _, gpu in sorted([(sick[gpu], -load[gpu], -free[gpu], gpu) for gpu in gpus]):
        chosen += buckets.fullest_first(gpu, buckets.need - len(chosen))
        if len(chosen) == buckets.need:
            break
    return chosen
