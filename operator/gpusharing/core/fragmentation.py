"""How scattered a node's requests are, and which pods to restart to get a whole GPU free (decision 57)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpusharing.core.devices import Inventory, base_of
from gpusharing.core.listing import Listing
from gpusharing.core.occupancy import PodDevices, held_ids
from gpusharing.core.packing import STEPS, Request, Room, fewest_gpus, fits

PODS_SHOWN = 10

# GPU and resource
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ResourceRoom:
    """What is left of one resource."""

    resource: str
    # healthy ids that nobody holds
    free: int
    # the largest request that one GPU can hold
    largest: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Pods that fit on other GPUs in use: deleted together, they leave a whole GPU free."""

    gpu: str
    # namespace/pod, sorted, ten at most
    pods: tuple[str, ...]
    # how many more there are
    more: int = 0


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Free shares, free and possible whole GPUs of a node."""

    resources: tuple[ResourceRoom, ...]
    # healthy GPUs of which nothing is held
    free_gpus: int
    # what would be free if all requests were packed unsplit onto the fewest GPUs; MIG devices stay as they are
    possible_gpus: int
    restart: Restart | None = None


def fragmentation(listing: Listing, pods: Sequence[PodDevices], inventory: Inventory) -> Fragmentation:
    """Return how scattered the node is. `pods` is what containers hold, by PodResources."""
    node = _Node(listing, pods, inventory)
    free = sum(node.is_free(gpu) for gpu in node.gpus)
    return Fragmentation(
        resources=tuple(node.room_of(name) for name in sorted(listing.lists)),
        free_gpus=free,
        possible_gpus=_possible(node, free),
        restart=_restart(node),
    )


class _Node:
    """The lists by GPU, and what each pod holds where; GPUs by index."""

    def __init__(self, listing: Listing, pods: Sequence[PodDevices], inventory: Inventory) -> None:
        self.resources = sorted(listing.lists)
        self.gpus = [gpu.uuid for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.index)]
        self._gpu_of = {mig.uuid: gpu.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
        self._gpu_of |= {gpu: gpu for gpu in self.gpus}
        # GPUs with an id that is listed and not given out: one of it is sick, or it waits for ids of an older config
        self.broken: set[str] = set()
        self.healthy: Counter[Place] = Counter()
        self.free: Counter[Place] = Counter()
        self._count(listing, held_ids(pods))
        self._largest: Counter[str] = Counter()
        for (_, name), size in self.healthy.items():
            self._largest[name] = max(self._largest[name], size)
        self.requests: dict[str, list[Request]] = defaultdict(list)
        # what would be free once the pod has left
        self._held: dict[str, Counter[Place]] = defaultdict(Counter)
        users: dict[str, set[str]] = {gpu: set() for gpu in self.gpus}
        for row in pods:
            self._take_in(row, listing, users)
        # the pods that hold something of a GPU
        self.users = {gpu: sorted(pods) for gpu, pods in users.items()}

    def _count(self, listing: Listing, held: Mapping[str, frozenset[str]]) -> None:
        for name in self.resources:
            taken = held.get(name, frozenset())
            for device_id, entry in listing.lists[name].items():
                place = entry.device.gpu, name
                if entry.healthy:
                    self.healthy[place] += 1
                    self.free[place] += device_id not in taken
                elif entry.state != "retiring":
                    self.broken.add(entry.device.gpu)

    def _take_in(self, row: PodDevices, listing: Listing, users: Mapping[str, set[str]]) -> None:
        """Take in what a container holds of a resource, and what it would ask for once more."""
        pod, listed = f"{row.namespace}/{row.pod}", listing.lists.get(row.resource, {})
        parts: dict[str, int] = {}
        whole = 0
        for device_id in row.ids:
            gpu = self._gpu_of.get(base_of(device_id))
            if gpu is None:
                continue
            parts[gpu] = parts.get(gpu, 0) + 1
            whole += device_id == gpu
            users[gpu].add(pod)
            if device_id in listed and listed[device_id].healthy:
                self._held[pod][gpu, row.resource] += 1
        if parts:
            self.requests[pod] += [Request(row.resource, size) for size in self._sizes(row.resource, parts, whole)]

    def _sizes(self, name: str, parts: Mapping[str, int], whole: int) -> Iterable[int]:
        """Return in which parts a container would get its ids on a node with room."""
        if whole:  # whole GPUs are as good on any GPU; everything else wants to stay together
            return [1] * whole
        together = sum(parts.values())
        # what no GPU can hold was split and will be: in parts as they are
        return [together] if together <= self._largest[name] else parts.values()

    def is_free(self, gpu: str) -> bool:
        """Whether the GPU is listed and healthy, and nothing of it is held."""
        return self.is_well(gpu) and not self.users[gpu]

    def is_well(self, gpu: str) -> bool:
        """Whether the GPU is listed and healthy."""
        return gpu not in self.broken and any(self.healthy[gpu, name] for name in self.resources)

    def room_of(self, name: str) -> ResourceRoom:
        """Return what is left of a resource."""
        free = [self.free[gpu, name] for gpu in self.gpus]
        return ResourceRoom(name, sum(free), max(free, default=0))

    def rooms_without(self, gpu: str) -> list[Room]:
        """Return what is free on each other GPU in use once the pods of this one have left."""
        pods = self.users[gpu]
        leaving: Counter[Place] = Counter()
        for pod in pods:
            leaving.update(self._held[pod])
        others = [other for other in self.gpus if other != gpu and not set(pods).issuperset(self.users[other])]
        return [{name: self.free[other, name] + leaving[other, name] for name in self.resources} for other in others]

    def requests_on(self, gpu: str) -> list[Request]:
        """Return what the pods of a GPU would ask for once more."""
        return [request for pod in self.users[gpu] for request in self.requests[pod]]


def _possible(node: _Node, free: int) -> int:
    rooms = [{name: node.healthy[gpu, name] for name in node.resources} for gpu in node.gpus if node.is_well(gpu)]
    requests = (request for requests in node.requests.values() for request in requests)
    return len(rooms) - fewest_gpus(requests, rooms, at_most=len(rooms) - free)


def _restart(node: _Node) -> Restart | None:
    """Return the pods of one GPU that fit on others in use: the fewest pods, then ids, then the lowest GPU."""
    candidates = []
    for at, gpu in enumerate(node.gpus):
        if node.users[gpu] and node.is_well(gpu):
            ids = sum(request.size for request in node.requests_on(gpu))
            candidates.append((len(node.users[gpu]), ids, at))
    for count, _, at in sorted(candidates):
        gpu = node.gpus[at]
        if fits(node.requests_on(gpu), node.rooms_without(gpu), STEPS // len(candidates)):
            return Restart(gpu, tuple(node.users[gpu][:PODS_SHOWN]), max(0, count - PODS_SHOWN))
    return None
