"""Who holds what, by PodResources: a lower bound (plain init containers and a lost checkpoint hide devices)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpusharing.core.devices import Inventory, base_of, replica_of
from gpusharing.core.listing import Listing


@dataclass(frozen=True, slots=True)
class PodDevices:
    """What one container holds of one resource; the kubelet's several entries of a resource are one here."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]

    @property
    def holder(self) -> str:
        """Return the container as people name it: namespace/pod/container."""
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True)
class HeldTwice:
    """A device that more containers have than may (`DeviceHeldTwice`)."""

    # an id, or the UUID of a device that one container has to itself and another one too
    device: str
    # namespace/pod/container, sorted
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuOccupancy:
    """How full one GPU is, over all its resources."""

    gpu: str
    # ids that the served config makes of it
    shares: int
    in_use: int
    # namespace/pod, sorted
    pods: tuple[str, ...] = ()


def held_ids(pods: Iterable[PodDevices]) -> dict[str, frozenset[str]]:
    """Return resource → ids that containers hold."""
    held: dict[str, set[str]] = defaultdict(set)
    for row in pods:
        held[row.resource].update(row.ids)
    return {resource: frozenset(ids) for resource, ids in sorted(held.items())}


def held_twice(pods: Iterable[PodDevices], inventory: Inventory) -> tuple[HeldTwice, ...]:
    """Return the devices of this node that two containers hold although each should be alone with it.

    That is the same id, or the same GPU or MIG device where one of the two has it unshared. Whoever has a GPU as a
    whole has its MIG devices, too.
    """
    gpu_of = _gpu_of(inventory)
    by_id: dict[str, set[str]] = defaultdict(set)
    by_base: dict[str, set[str]] = defaultdict(set)
    unshared = set()
    for row in pods:
        for device_id in row.ids:
            base = base_of(device_id)
            if base in gpu_of:
                by_id[device_id].add(row.holder)
                by_base[base].add(row.holder)
                by_base[gpu_of[base]].add(row.holder)
                unshared |= {base} if replica_of(device_id) is None else set()
    found = by_id | {base: by_base[base] for base in unshared}
    return tuple(HeldTwice(name, tuple(sorted(found[name]))) for name in sorted(found) if len(found[name]) > 1)


def unlisted(pods: Iterable[PodDevices], listing: Listing) -> tuple[tuple[str, str], ...]:
    """Return (resource, id) of held ids of our resources that are on no list of ours: another plugin's (X10)."""
    found = {
        (row.resource, device_id)
        for row in pods
        if row.resource in listing.lists
        for device_id in row.ids
        if device_id not in listing.lists[row.resource]
    }
    return tuple(sorted(found))


def occupancy(pods: Sequence[PodDevices], listing: Listing, inventory: Inventory) -> tuple[GpuOccupancy, ...]:
    """Return how full each listed GPU is, by index.

    A GPU that a pod holds as a whole, by an id of an older config, is full (decision 52).
    """
    gpu_of = _gpu_of(inventory)
    shares: dict[str, int] = defaultdict(int)
    for entries in listing.lists.values():
        for entry in entries.values():
            shares[entry.device.gpu] += entry.state != "retiring"
    rows = _rows_by_gpu(pods, gpu_of)
    gpus = sorted((gpu for gpu in inventory.gpus if gpu.uuid in shares), key=lambda gpu: gpu.index)
    return tuple(_occupancy(gpu.uuid, shares[gpu.uuid], rows.get(gpu.uuid, ())) for gpu in gpus)


def _occupancy(gpu: str, shares: int, rows: Sequence[tuple[str, PodDevices]]) -> GpuOccupancy:
    held = {(row.resource, device_id) for device_id, row in rows}
    whole = any(device_id == gpu for _, device_id in held)
    pods = sorted({f"{row.namespace}/{row.pod}" for _, row in rows})
    return GpuOccupancy(gpu, shares, max(shares, 1) if whole else len(held), tuple(pods))


def _rows_by_gpu(
    pods: Sequence[PodDevices], gpu_of: Mapping[str, str]
) -> Mapping[str, Sequence[tuple[str, PodDevices]]]:
    rows: dict[str, list[tuple[str, PodDevices]]] = defaultdict(list)
    for row in pods:
        for device_id in row.ids:
            if gpu := gpu_of.get(base_of(device_id)):
                rows[gpu].append((device_id, row))
    return rows


def _gpu_of(inventory: Inventory) -> dict[str, str]:
    """Return UUID of a GPU or MIG device → UUID of the GPU."""
    whole = {gpu.uuid: gpu.uuid for gpu in inventory.gpus}
    return whole | {mig.uuid: gpu.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
