"""`distributed`: the emptiest GPU first, which makes neighbours few; what NVIDIA's plugin does by default."""

from collections.abc import Sequence

from gpusharing.core.allocation.buckets import Buckets, share_by_share

NAME = "distributed"
FOR_USERS = True
RULE = "the emptiest GPU first"
LOAD_SIGN = 1


def choose(buckets: Buckets, gpus: Sequence[int]) -> list[str]:
    """Choose by `(sick, load, picked, -free, index)` for each id (decision 53)."""
    sick, free = buckets.sick, buckets.free
    return share_by_share(buckets, gpus, lambda gpu, load, picked: (sick[gpu], load, picked, -free[gpu], gpu))
