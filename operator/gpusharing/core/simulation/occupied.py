"""How full the GPUs of one node are, kept up to date pod by pod.

`core/fragmentation.py` counts the same of a whole node at once, which takes too long after each of 100,000 pods; a
test holds the two together.
"""

from collections import Counter
from collections.abc import Sequence

from gpusharing.core.packing import Request
from gpusharing.core.simulation.ideal import Repacking
from gpusharing.core.simulation.scenario import Node


class Occupied:
    """What is held and what is free on each GPU of a node."""

    def __init__(self, node: Node, repacking: Repacking) -> None:
        place = {gpu: at for at, gpu in enumerate(node.gpus)}
        self._repacking = repacking
        self._gpu_of = {it.id: place[it.gpu] for resource in node.resources for it in resource.devices}
        # resource → free ids of each GPU
        self._free = {resource.name: [0] * len(place) for resource in node.resources}
        for resource in node.resources:
            for device in resource.devices:
                self._free[resource.name][place[device.gpu]] += 1
        # ids in use of each GPU, of any resource
        self._in_use = [0] * len(place)
        self._requests: Counter[Request] = Counter()

    def take(self, resource: str, ids: Sequence[str]) -> int:
        """Take note of a pod's ids. Returns on how many GPUs they are."""
        self._requests[Request(resource, len(ids))] += 1
        return self._change(resource, ids, 1)

    def give_back(self, resource: str, ids: Sequence[str]) -> None:
        """Take note that a pod has left."""
        request = Request(resource, len(ids))
        self._requests[request] -= 1
        if not self._requests[request]:
            del self._requests[request]
        self._change(resource, ids, -1)

    def _change(self, resource: str, ids: Sequence[str], by: int) -> int:
        free, gpus = self._free[resource], [self._gpu_of[device_id] for device_id in ids]
        for gpu in gpus:
            free[gpu] -= by
            self._in_use[gpu] += by
        return len(set(gpus))

    def largest(self, resource: str) -> int:
        """Return the largest request that one GPU can hold now."""
        return max(self._free[resource]) if resource in self._free else 0

    def stranded(self, resource: str) -> int:
        """Return how many ids are free on GPUs that are in use: they are part of no whole GPU."""
        free = self._free.get(resource, [0] * len(self._in_use))
        return sum(count for count, in_use in zip(free, self._in_use, strict=True) if in_use)

    @property
    def free_gpus(self) -> int:
        """Return of how many GPUs nothing is held."""
        return self._in_use.count(0)

    @property
    def ideal_free_gpus(self) -> int:
        """Return how many would be free if all pods were packed anew, each on as few GPUs as can hold it.

        Where that finds nothing better (the policy split pods, and so filled gaps), what is free now.
        """
        return max(self.free_gpus, len(self._in_use) - self._repacking.fewest_gpus(self._requests))
