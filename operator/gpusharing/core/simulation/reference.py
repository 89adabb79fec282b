"""How NVIDIA's plugin v0.20.0 chooses (contract 5.3): a reference for comparisons, never a policy of ours.

Its buckets are the devices behind the ids: GPUs where shares are of GPUs, but MIG devices where there is MIG, which
makes all buckets of an unshared MIG resource alike. Ties are arbitrary there; here chance decides them.
"""

from collections import Counter
from collections.abc import Iterable

from gpusharing.core.devices import base_of
from gpusharing.core.simulation.draws import Draws


class NvidiaBuckets:
    """The buckets of a resource; `packed` takes the bucket with the most allocated first, else that with the least."""

    def __init__(self, ids: Iterable[str], *, packed: bool, draws: Draws) -> None:
        self._base_of = {device_id: base_of(device_id) for device_id in ids}
        self._total = Counter(self._base_of.values())
        self._sign = -1 if packed else 1
        self._draws = draws

    def choose(self, available: Iterable[str], size: int) -> tuple[str, ...]:
        """Return so many of the available ids, one after another: by allocated, then by picked in this request."""
        left: dict[str, list[str]] = {}
        for device_id in available:
            left.setdefault(self._base_of[device_id], []).append(device_id)
        allocated = {bucket: self._sign * (self._total[bucket] - len(ids)) for bucket, ids in left.items()}
        picked = dict.fromkeys(left, 0)
        chosen: list[str] = []
        while len(chosen) < size and left:
            first = min((allocated[bucket], picked[bucket]) for bucket in left)
            bucket = self._draws.one_of([each for each in left if (allocated[each], picked[each]) == first])
            chosen.append(left[bucket].pop())
            allocated[bucket] += self._sign
            picked[bucket] += 1
            if not left[bucket]:
                del left[bucket]
        return tuple(chosen)
