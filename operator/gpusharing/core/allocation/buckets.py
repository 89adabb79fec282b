"""The devices of a resource by parent GPU, and how full each GPU is.

Every policy sees GPUs, never MIG devices: a bucket is a parent GPU (decision 52; NVIDIA's plugin buckets by MIG device,
contract 12.1). A `Table` is made once per list of devices, `Buckets` once per request.

A request of thousands of ids meets each GPU in one intersection of sets; ids are looked at one by one only on the GPUs
that were chosen.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain, compress, count, groupby, islice, repeat
from operator import add, attrgetter, sub

from gpusharing.core.allocation.links import Links
from gpusharing.core.allocation.request import AllocationRequest, Load, load
from gpusharing.core.devices import Gpu, Inventory, MigDevice, base_of, replica_of
from gpusharing.core.resources import Device

# GPUs by their places in a table, in order
GpuSet = tuple[int, ...]

# A GPU that a container has to itself under an older config: as full as can be (decision 52).
WHOLE_GPU = load(slices=8)


@dataclass(frozen=True, slots=True)
class Group:
    """What the resource has on one GPU, or on one MIG device of it."""

    uuid: str
    # by MIG index and replica
    ids: tuple[str, ...]
    members: frozenset[str]
    # GPU slices of the MIG device; 0 = a GPU
    slices: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """The devices of a resource in a fixed order, whatever order they came in."""

    # by GPU index
    gpus: tuple[Group, ...]
    # for each GPU the devices behind its ids: itself, or its MIG devices
    parts: tuple[tuple[Group, ...], ...]
    # whether any GPU has MIG devices
    mig: bool
    # id → its GPU's place in `gpus`
    gpu_of: Mapping[str, int]
    # NVML's indices of the GPUs; -1 = not in the inventory
    indices: tuple[int, ...]
    links: Links
    # for each GPU how many ids it has, and a zero
    sizes: tuple[int, ...]
    none: tuple[int, ...]


def table_of(devices: Iterable[Device], inventory: Inventory, links: Links | None = None) -> Table:
    """Return the devices in order of GPU index, MIG index and replica; what the inventory does not know comes last."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    mig = {device.uuid: device for gpu in inventory.gpus for device in gpu.mig_devices}
    ordered = sorted({device.id: device for device in devices}.values(), key=lambda it: _order(it, gpus, mig))
    groups, parts = [], []
    for uuid, on_gpu in groupby(ordered, key=attrgetter("gpu")):
        of_gpu = tuple(
            _group(base, [device.id for device in on_base], mig[base].gpu_slices if base in mig else 0)
            for base, on_base in groupby(on_gpu, key=attrgetter("base"))
        )
        is_mig = [part.uuid for part in of_gpu] != [uuid]
        groups.append(_group(uuid, [each for part in of_gpu for each in part.ids]) if is_mig else of_gpu[0])
        parts.append(of_gpu)
    return Table(
        gpus=tuple(groups),
        parts=tuple(parts),
        mig=any(part is not gpu for gpu, of_gpu in zip(groups, parts, strict=True) for part in of_gpu),
        gpu_of={device_id: place for place, gpu in enumerate(groups) for device_id in gpu.ids},
        indices=tuple(gpus[each.uuid].index if each.uuid in gpus else -1 for each in groups),
        links=links or Links(),
        sizes=tuple(len(gpu.ids) for gpu in groups),
        none=(0,) * len(groups),
    )


def gpus_of(devices: Iterable[Device], inventory: Inventory) -> list[Gpu | None]:
    """Return the GPUs that the devices are on, in the table's order; None = not in the inventory."""
    known = {gpu.uuid: gpu for gpu in inventory.gpus}
    uuids = {device.gpu for device in devices}
    return [known.get(uuid) for uuid in sorted(uuids, key=lambda uuid: _gpu_order(uuid, known))]


def _gpu_order(uuid: str, gpus: Mapping[str, Gpu]) -> tuple[bool, int, str]:
    return uuid not in gpus, gpus[uuid].index if uuid in gpus else 0, uuid


def _order(device: Device, gpus: Mapping[str, Gpu], mig: Mapping[str, MigDevice]) -> tuple[object, ...]:
    index = mig[device.base].index if device.base in mig else -1
    return (*_gpu_order(device.gpu, gpus), index, device.base, replica_of(device.id) or 0, device.id)


def _group(uuid: str, ids: Sequence[str], slices: int = 0) -> Group:
    return Group(uuid, tuple(ids), frozenset(ids), slices)


def other_load(table: Table, held: Iterable[str], inventory: Inventory) -> dict[str, Load]:
    """Return GPU uuid → what all held ids but the table's own use of it (decision 52).

    Give it the ids that containers hold of all resources: PodResources, and our own `Allocate`s since.
    """
    mig = {device.uuid: (gpu.uuid, device) for gpu in inventory.gpus for device in gpu.mig_devices}
    loads: dict[str, int] = {}
    instances = set()
    for device_id in sorted(set(held).difference(table.gpu_of)):
        base = base_of(device_id)
        gpu, device = mig.get(base, (base, None))
        shared = replica_of(device_id) is not None
        idle = device is not None and base not in instances
        slices = device.gpu_slices if device is not None and idle else 0
        loads[gpu] = loads.get(gpu, 0) + (load(slices=slices, ids=1) if device or shared else WHOLE_GPU)
        instances.add(base)
    return {gpu: Load(it) for gpu, it in loads.items()}


class Buckets:
    """The GPUs of a table as one request finds them; lists are by the GPU's place in the table."""

    __slots__ = ("_held", "_ids", "available", "free", "load", "must", "need", "required", "room", "sick", "table")

    def __init__(self, table: Table, request: AllocationRequest) -> None:
        """Count. What the table does not know counts nowhere."""
        self.table = table
        self.available = frozenset(request.available)
        # the must-include ids in order, and how many of them each GPU has
        self.must: tuple[str, ...] = ()
        self.required: Sequence[int] = table.none
        # 1 = one of its ids is sick
        self.sick: Sequence[int] = table.none
        # the ids that may be chosen, and how many they are
        self._ids = [self.available & gpu.members for gpu in table.gpus]
        idle_sick: Set[str] = frozenset()
        if request.must_include:
            self._leave_out_required(request.must_include)
        if request.sick:
            self._leave_out_sick(request.sick)
            idle_sick = request.sick - request.sick_and_held - set(self.must)
        self.free = list(map(len, self._ids))
        # how many ids are still to be chosen, and how many may be
        self.need = request.size - len(self.must)
        self.room = sum(self.free)
        # what is in use of it, by this resource and all others, must-include ids included
        self.load = self._mig_loads(idle_sick) if table.mig else self._loads(idle_sick)
        if request.other_load:
            self.load = list(map(add, self.load, [request.other_load.get(gpu.uuid, 0) for gpu in table.gpus]))

    def _leave_out_required(self, must_include: Iterable[str]) -> None:
        """Let no must-include id be chosen once more."""
        known = self.table.gpu_of.keys() & must_include
        of_gpus = [tuple(filter(known.__contains__, gpu.ids)) for gpu in self.table.gpus]
        self.must = tuple(chain.from_iterable(of_gpus))
        self.required = list(map(len, of_gpus))
        self._ids = [ids - known for ids in self._ids]

    def _leave_out_sick(self, sick: Set[str]) -> None:
        """Let no sick id be chosen."""
        self.sick = [int(not gpu.members.isdisjoint(sick)) for gpu in self.table.gpus]
        self._ids = [ids - sick for ids in self._ids]

    def _loads(self, idle_sick: Set[str]) -> list[int]:
        """Return the loads: all ids but those that are free, and sick ones that nobody holds."""
        loads = map(sub, self.table.sizes, self.free)
        if not idle_sick:
            return list(loads)
        return [load - len(gpu.members & idle_sick) for load, gpu in zip(loads, self.table.gpus, strict=True)]

    def _mig_loads(self, idle_sick: Set[str]) -> list[int]:
        """Return the same; a MIG instance counts with all its slices once an id of it is in use."""
        self._held = [
            [len(part.members) - len(part.members & ids) - len(part.members & idle_sick) for part in parts]
            for parts, ids in zip(self.table.parts, self._ids, strict=True)
        ]
        return [
            sum(load(slices=part.slices, ids=held) for part, held in zip(parts, of_gpu, strict=True) if held)
            for parts, of_gpu in zip(self.table.parts, self._held, strict=True)
        ]

    def touched(self) -> list[int]:
        """Return the GPUs that the request is on already, by index: those of must-include ids."""
        return list(compress(count(), self.required))

    def candidates(self) -> list[int]:
        """Return the GPUs that have something to choose, by index."""
        return list(compress(count(), self.free))

    def fullest_first(self, gpu: int, most: int) -> list[str]:
        """Take up to so many ids of a GPU: those of its fullest MIG device first, then the lowest replica."""
        parts = self.table.parts[gpu]
        if len(parts) == 1:
            return list(islice(self._choosable(gpu, parts[0]), most))
        held = self._held[gpu]
        ordered = sorted(range(len(parts)), key=lambda at: (-held[at], at))
        return list(islice(chain.from_iterable(self._choosable(gpu, parts[at]) for at in ordered), most))

    def emptiest(self, gpu: int, most: int) -> list[str]:
        """Take up to so many ids of a GPU, as `emptiest_first` yields them."""
        return [device_id for device_id, _ in islice(self.emptiest_first(gpu), most)]

    def emptiest_first(self, gpu: int) -> Iterator[tuple[str, int]]:
        """Yield the ids of a GPU, each from its then emptiest MIG device, with the load that it adds."""
        parts = self.table.parts[gpu]
        if not self.table.mig:
            return zip(self._choosable(gpu, parts[0]), repeat(1), strict=False)
        return self._in_turn(gpu)

    def _in_turn(self, gpu: int) -> Iterator[tuple[str, int]]:
        parts = self.table.parts[gpu]
        ids = [self._choosable(gpu, part) for part in parts]
        heap = [(in_use, at) for at, in_use in enumerate(self._held[gpu])]
        heapify(heap)
        while heap:
            in_use, at = heap[0]
            device_id = next(ids[at], None)
            if device_id is None:
                heappop(heap)
                continue
            heapreplace(heap, (in_use + 1, at))
            yield device_id, load(slices=0 if in_use else parts[at].slices, ids=1)

    def _choosable(self, gpu: int, part: Group) -> Iterator[str]:
        """Yield the ids of a part of a GPU that may be chosen, the lowest first."""
        return filter(self._ids[gpu].__contains__, part.ids)


def share_by_share(buckets: Buckets, gpus: Iterable[int], key: Callable[[int, int, int], tuple[int, ...]]) -> list[str]:
    """Choose one id after another, each on the GPU whose `key(gpu, load, picked)` is then the smallest."""
    load, need = buckets.load, buckets.need
    ids: dict[int, Iterator[tuple[str, int]]] = {}
    heap = [(key(gpu, load[gpu], 0), gpu, load[gpu], 0) for gpu in gpus]
    heapify(heap)
    chosen: list[str] = []
    while len(chosen) < need and heap:
        _, gpu, in_use, picked = heap[0]
        if gpu not in ids:
            ids[gpu] = buckets.emptiest_first(gpu)
        device_id, added = next(ids[gpu], ("", 0))
        if not device_id:
            heappop(heap)
            continue
        chosen.append(device_id)
        in_use, picked = in_use + added, picked + 1
        heapreplace(heap, (key(gpu, in_use, picked), gpu, in_use, picked))
    return chosen
