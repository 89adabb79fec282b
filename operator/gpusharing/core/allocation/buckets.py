"""The devices of a resource by parent GPU, and how full each GPU is.

Every policy sees GPUs, never MIG devices: a bucket is a parent GPU (decision 52; NVIDIA's plugin buckets by MIG device,
contract 12.1). A `Table` is made once per list of devices, `Buckets` once per request.

One byte per device says whether it may be chosen. The table is in order of GPU index, MIG index and replica, so that a
GPU is a stretch of it: its free devices are counted and taken at the speed of C, and the lowest come first.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain, compress, count, groupby, islice, repeat
from operator import add, sub

from gpusharing.core.allocation.links import Links
from gpusharing.core.allocation.request import AllocationRequest, Load, load
from gpusharing.core.devices import Gpu, Inventory, MigDevice, base_of, replica_of
from gpusharing.core.resources import Device

# A GPU that a container has to itself under an older config: as full as can be (decision 52).
WHOLE_GPU = load(slices=8)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of the table: what the resource has on one GPU, or on one MIG device of it."""

    uuid: str
    start: int
    end: int
    ids: tuple[str, ...]
    # GPU slices of the MIG device; 0 = a GPU
    slices: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """The devices of a resource in a fixed order, whatever order they came in."""

    ids: tuple[str, ...]
    places: Mapping[str, int]
    # by GPU index
    gpus: tuple[Stretch, ...]
    # NVML's indices of the GPUs; -1 = not in the inventory
    indices: tuple[int, ...]
    # for each GPU the devices behind its ids: itself, or its MIG devices
    parts: tuple[tuple[Stretch, ...], ...]
    # whether any GPU has MIG devices
    mig: bool
    links: Links
    # the GPUs' starts and ends, and their sizes
    spans: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    # a zero for each GPU
    none: tuple[int, ...]

    def gpu_of(self, place: int) -> int:
        """Return which GPU a device is on."""
        return bisect_right(self.gpus, place, key=lambda stretch: stretch.start) - 1


def table_of(devices: Iterable[Device], inventory: Inventory, links: Links | None = None) -> Table:
    """Return the devices in order of GPU index, MIG index and replica; what the inventory does not know comes last."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    mig = {device.uuid: device for gpu in inventory.gpus for device in gpu.mig_devices}
    ordered = sorted({device.id: device for device in devices}.values(), key=lambda it: _order(it, gpus, mig))
    ids = tuple(device.id for device in ordered)
    stretches, parts = [], []
    for uuid, group in groupby(range(len(ids)), key=lambda place: ordered[place].gpu):
        places = list(group)
        stretches.append(_stretch(uuid, places, ids))
        parts.append(
            tuple(
                _stretch(base, list(run), ids, mig[base].gpu_slices if base in mig else 0)
                for base, run in groupby(places, key=lambda place: ordered[place].base)
            )
        )
    return Table(
        ids=ids,
        places={device_id: place for place, device_id in enumerate(ids)},
        gpus=tuple(stretches),
        indices=tuple(gpus[each.uuid].index if each.uuid in gpus else -1 for each in stretches),
        parts=tuple(parts),
        mig=any(part.uuid != gpu.uuid for gpu, of_gpu in zip(stretches, parts, strict=True) for part in of_gpu),
        links=links or Links(),
        spans=tuple((gpu.start, gpu.end) for gpu in stretches),
        sizes=tuple(gpu.end - gpu.start for gpu in stretches),
        none=(0,) * len(stretches),
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


def _stretch(uuid: str, places: Sequence[int], ids: Sequence[str], slices: int = 0) -> Stretch:
    start, end = places[0], places[-1] + 1
    return Stretch(uuid, start, end, tuple(ids[start:end]), slices)


def other_load(table: Table, held: Iterable[str], inventory: Inventory) -> dict[str, Load]:
    """Return GPU uuid → what all held ids but the table's own use of it (decision 52).

    Give it the ids that containers hold of all resources: PodResources, and our own `Allocate`s since.
    """
    mig = {device.uuid: (gpu.uuid, device) for gpu in inventory.gpus for device in gpu.mig_devices}
    loads: dict[str, int] = {}
    instances = set()
    for device_id in sorted(set(held).difference(table.places)):
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

    __slots__ = ("_flags", "_held", "free", "load", "need", "required", "sick", "table")

    def __init__(self, table: Table, request: AllocationRequest, flags: bytearray, required: Sequence[int]) -> None:
        """Count. `flags` has a 1 for each known and available id; `required` are the places of the must-include ids."""
        self.table = table
        # how many ids are still to be chosen
        self.need = request.size - len(required)
        # 1 = one of its ids is sick
        self.sick: Sequence[int] = table.none
        # how many ids must be included
        self.required: Sequence[int] = table.none
        self._flags = flags
        if required:
            self.required = self._without_required(required)
        unheld = self._without_sick(request, required) if request.sick else flags
        # how many ids may be chosen
        self.free = [flags.count(1, start, end) for start, end in table.spans]
        # what is in use of it, by this resource and all others, must-include ids included
        self.load: list[int] = self._mig_loads(unheld) if table.mig else self._loads(unheld)
        if request.other_load:
            self.load = list(map(add, self.load, [request.other_load.get(gpu.uuid, 0) for gpu in table.gpus]))

    def _without_required(self, places: Sequence[int]) -> list[int]:
        """Let no must-include id be chosen once more. Returns how many each GPU has."""
        counts = [0] * len(self.table.gpus)
        for place in places:
            self._flags[place] = 0
            counts[self.table.gpu_of(place)] += 1
        return counts

    def _without_sick(self, request: AllocationRequest, required: Sequence[int]) -> bytearray:
        """Let no sick id be chosen. Returns the ids that nobody holds: those that may be chosen, and idle sick ones."""
        table, unheld, sick = self.table, bytearray(self._flags), [0] * len(self.table.gpus)
        for place in [table.places[each] for each in request.sick if each in table.places]:
            sick[table.gpu_of(place)] = 1
            self._flags[place] = 0
            unheld[place] = table.ids[place] not in request.sick_and_held and place not in required
        self.sick = sick
        return unheld

    def _loads(self, unheld: bytearray) -> list[int]:
        if unheld is self._flags:
            return list(map(sub, self.table.sizes, self.free))
        return [end - start - unheld.count(1, start, end) for start, end in self.table.spans]

    def _mig_loads(self, unheld: bytearray) -> list[int]:
        """Return the loads; a MIG instance counts with all its slices once an id of it is in use."""
        self._held = [
            [part.end - part.start - unheld.count(1, part.start, part.end) for part in parts]
            for parts in self.table.parts
        ]
        return [
            sum(load(slices=part.slices, ids=held) for part, held in zip(parts, of_gpu, strict=True) if held)
            for parts, of_gpu in zip(self.table.parts, self._held, strict=True)
        ]

    def candidates(self) -> list[int]:
        """Return the GPUs that have something to choose, by index."""
        return list(compress(count(), self.free))

    def fullest_first(self, gpu: int, most: int) -> list[str]:
        """Take up to so many ids of a GPU: those of its fullest MIG device first, then the lowest replica."""
        parts = self.table.parts[gpu]
        if len(parts) == 1:
            return list(islice(self._ids(parts[0]), most))
        held = self._held[gpu]
        ordered = sorted(range(len(parts)), key=lambda at: (-held[at], at))
        return list(islice(chain.from_iterable(self._ids(parts[at]) for at in ordered), most))

    def emptiest(self, gpu: int, most: int) -> list[str]:
        """Take up to so many ids of a GPU, as `emptiest_first` yields them."""
        return [device_id for device_id, _ in islice(self.emptiest_first(gpu), most)]

    def emptiest_first(self, gpu: int) -> Iterator[tuple[str, int]]:
        """Yield the ids of a GPU, each from its then emptiest MIG device, with the load that it adds."""
        parts = self.table.parts[gpu]
        if not self.table.mig:
            return zip(self._ids(parts[0]), repeat(1), strict=False)
        return self._in_turn(parts, self._held[gpu])

    def _in_turn(self, parts: Sequence[Stretch], held: Sequence[int]) -> Iterator[tuple[str, int]]:
        ids = [self._ids(part) for part in parts]
        heap = [(in_use, at) for at, in_use in enumerate(held)]
        heapify(heap)
        while heap:
            in_use, at = heap[0]
            device_id = next(ids[at], None)
            if device_id is None:
                heappop(heap)
                continue
            heapreplace(heap, (in_use + 1, at))
            yield device_id, load(slices=0 if in_use else parts[at].slices, ids=1)

    def _ids(self, stretch: Stretch) -> Iterator[str]:
        """Yield the ids of the stretch that may be chosen, the lowest first."""
        return compress(stretch.ids, self._flags[stretch.start : stretch.end])


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
