"""How scattered a node's requests are, and which pods to restart to get a whole GPU free (decision 57)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpusharing.core.devices import Inventory, base_of
from gpusharing.core.listing import Listing
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.packing import Request, Room, fewest_gpus, fits

PODS_SHOWN = 10


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
        gpu_of = {gpu.uuid: gpu.uuid for gpu in inventory.gpus}
        gpu_of |= {mig.uuid: gpu.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
        self.requests: dict[str, list[Request]] = defaultdict(list)
        # pod → (GPU, resource) → ids
        self.held: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for row in pods:
            self._hold(f"{row.namespace}/{row.pod}", row, gpu_of)
        users: dict[str, set[str]] = defaultdict(set)
        for pod, places in self.held.items():
            for gpu, _ in places:
                users[gpu].add(pod)
        # the pods that hold something of a GPU
        self.users = {gpu: sorted(users[gpu]) for gpu in self.gpus}
        held = {(row.resource, device_id) for row in pods for device_id in row.ids}
        self.broken: set[str] = set()
        self.healthy: Counter[tuple[str, str]] = Counter()
        self.free: Counter[tuple[str, str]] = Counter()
        for name in self.resources:
            for device_id, entry in listing.lists[name].items():
                place = (entry.device.gpu, name)
                self.healthy[place] += entry.healthy
                self.free[place] += entry.healthy and (name, device_id) not in held
                if not entry.healthy and entry.state != "retiring":
                    self.broken.add(entry.device.gpu)

    def _hold(self, pod: str, row: PodDevices, gpu_of: Mapping[str, str]) -> None:
        places = Counter((gpu_of[base_of(each)], row.resource) for each in row.ids if base_of(each) in gpu_of)
        whole = sum(base_of(each) == each and gpu_of.get(each) == each for each in row.ids)
        self.held[pod] += places
        # whole GPUs are as good on any GPU; everything else wants to stay together
        sizes = [1] * whole if whole else [sum(places.values())]
        self.requests[pod] += [Request(row.resource, size) for size in sizes if size]

    def is_free(self, gpu: str) -> bool:
        """Whether the GPU is listed and healthy, and nothing of it is held."""
        listed = any(self.healthy[gpu, name] for name in self.resources)
        return listed and gpu not in self.broken and not self.users[gpu]

    def room_of(self, name: str) -> ResourceRoom:
        """Return what is left of a resource."""
        free = [self.free[gpu, name] for gpu in self.gpus]
        return ResourceRoom(name, sum(free), max(free, default=0))

    def room_without(self, gpu: str, leaving: Iterable[str]) -> Room:
        """Return what is free on a GPU once these pods have left it."""
        return {
            name: min(self.free[gpu, name] + sum(self.held[pod][gpu, name] for pod in leaving), self.healthy[gpu, name])
            for name in self.resources
        }


def _possible(node: _Node, free: int) -> int:
    healthy = [gpu for gpu in node.gpus if gpu not in node.broken and any(node.healthy[gpu, n] for n in node.resources)]
    rooms = [{name: node.healthy[gpu, name] for name in node.resources} for gpu in healthy]
    requests = [request for pod in sorted(node.requests) for request in node.requests[pod]]
    return len(healthy) - fewest_gpus(requests, rooms, at_most=len(healthy) - free)


def _restart(node: _Node) -> Restart | None:
    """Return the pods of one GPU that fit on others in use: the fewest pods, then ids, then the lowest GPU."""
    found = []
    for at, gpu in enumerate(node.gpus):
        pods = node.users[gpu]
        if not pods or gpu in node.broken:
            continue
        others = [other for other in node.gpus if other != gpu and set(node.users[other]) - set(pods)]
        requests = [request for pod in pods for request in node.requests[pod]]
        if fits(requests, [node.room_without(other, pods) for other in others]):
            found.append((len(pods), sum(request.size for request in requests), at, gpu, pods))
    if not found:
        return None
    count, _, _, gpu, pods = min(found)
    return Restart(gpu, tuple(pods[:PODS_SHOWN]), max(0, count - PODS_SHOWN))
