"""On how few GPUs the pods of a node would fit: the measure that policies are held against."""

from collections import Counter

from gpusharing.core.packing import Request, Room, fewest_gpus
from gpusharing.core.simulation.scenario import Node


class Repacking:
    """Packs all pods of a node anew, by `core/packing.py`, MIG devices as they are; remembers what it found."""

    def __init__(self, node: Node) -> None:
        held = Counter((device.gpu, each.name) for each in node.resources for device in each.devices)
        self._rooms: list[Room] = [{each.name: held[gpu, each.name] for each in node.resources} for gpu in node.gpus]
        self._found: dict[frozenset[tuple[Request, int]], int] = {}

    def fewest_gpus(self, requests: Counter[Request]) -> int:
        """Return how many GPUs are enough; all of them where no packing is found."""
        key = frozenset(requests.items())
        if key not in self._found:
            pieces = [piece for request, count in sorted(requests.items()) for piece in self._pieces(request) * count]
            self._found[key] = fewest_gpus(pieces, self._rooms, at_most=len(self._rooms))
        return self._found[key]

    def _pieces(self, request: Request) -> list[Request]:
        """Return the request; of one that no GPU can hold, full GPUs and the rest."""
        most = max(room[request.resource] for room in self._rooms)
        full, rest = divmod(request.size, most)
        return [Request(request.resource, size) for size in [most] * full + [rest] if size]
