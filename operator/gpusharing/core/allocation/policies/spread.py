"""`spread`: distinct GPUs within one request, the emptiest first."""

from collections.abc import Sequence

from gpusharing.core.allocation.buckets import Buckets, share_by_share

NAME = "spread"
FOR_USERS = True
RULE = "the GPU with the fewest ids of this request first, then the emptiest"
LOAD_SIGN = 1


def choose(buckets: Buckets, gpus: Sequence[int]) -> list[str]:
    """Choose by `(sick, ids of this request, load, -free, index)` for each id (decision 53)."""
    sick, free, required = buckets.sick, buckets.free, buckets.required
    return share_by_share(
        buckets, gpus, lambda gpu, load, picked: (sick[gpu], picked + required[gpu], load, -free[gpu], gpu)
    )
