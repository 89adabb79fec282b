"""Nodes and requests for tests of the allocation policies, by short names: GPU `A` has the shares `A::0`, `A::1`, …"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpusharing.api.sharing import Allocation
from gpusharing.core.allocation.prefer import Preferences, preferences
from gpusharing.core.devices import Gpu, Inventory, Link, MigDevice, base_of
from gpusharing.core.resources import Device, Resource

NVLINK = Link(common_ancestor=50, nvlinks=4)
PCIE = Link(common_ancestor=50)


def gpu(index: int, uuid: str, *migs: MigDevice) -> Gpu:
    return Gpu(index=index, uuid=uuid, model="", minor=index, mig_mode=bool(migs), mig_devices=migs)


def mig(uuid: str, index: int, slices: int = 1) -> MigDevice:
    return MigDevice(uuid, index, f"{slices}g.10gb", gi=index + 1, ci=0, gpu_slices=slices)


def linked(gpus: Sequence[str], *pairs: str, other: Link | None = PCIE) -> dict[tuple[str, str], Link]:
    """Links between all GPUs: NVLink for the pairs (`A-B`), and `other` for the rest."""
    all_pairs = {(one, two): other for at, one in enumerate(gpus) for two in gpus[at + 1 :]}
    all_pairs |= dict.fromkeys((_pair(pair) for pair in pairs), NVLINK)
    return {pair: link for pair, link in all_pairs.items() if link is not None}


def _pair(text: str) -> tuple[str, str]:
    one, _, other = text.partition("-")
    return one, other


def shares(total: Mapping[str, int]) -> Resource:
    """A resource of shares of whole GPUs."""
    devices = [Device(f"{uuid}::{at}", uuid, uuid) for uuid, count in total.items() for at in range(count)]
    return Resource("nvidia.com/gpu", tuple(devices), replicas=2)


def shared_gpus(
    total: Mapping[str, int],
    policy: str = "packed",
    keep_together: str = "none",
    topology: str = "none",
    links: Mapping[tuple[str, str], Link] | None = None,
) -> Preferences:
    """What `prefer` needs for shares of whole GPUs, which are numbered by their names."""
    inventory = Inventory(gpus=tuple(gpu(at, uuid) for at, uuid in enumerate(sorted(total))), links=links or {})
    return preferences(shares(total), inventory, allocation(policy, keep_together, topology))


def mig_gpus(
    devices: Mapping[str, int], policy: str = "packed", keep_together: str = "none", *, replicas: int = 1
) -> Preferences:
    """What `prefer` needs for one-slice MIG devices `P0-0`, `P0-1`, … of GPU `P0`, each with so many shares."""
    inventory = mig_inventory(devices)
    listed = [
        Device(f"{it.uuid}::{at}" if replicas > 1 else it.uuid, it.uuid, parent.uuid)
        for parent in inventory.gpus
        for it in parent.mig_devices
        for at in range(replicas)
    ]
    resource = Resource("nvidia.com/mig-1g.10gb", tuple(listed), replicas=replicas)
    return preferences(resource, inventory, allocation(policy, keep_together))


def mig_inventory(devices: Mapping[str, int]) -> Inventory:
    return Inventory(
        gpus=tuple(
            gpu(at, uuid, *(mig(f"{uuid}-{number}", number) for number in range(devices[uuid])))
            for at, uuid in enumerate(sorted(devices))
        )
    )


def whole_gpus(links: Mapping[tuple[str, str], Link], uuids: Sequence[str]) -> Preferences:
    """What `prefer` needs for unshared GPUs."""
    inventory = Inventory(gpus=tuple(gpu(at, uuid) for at, uuid in enumerate(uuids)), links=links)
    resource = Resource("nvidia.com/gpu", tuple(Device(uuid, uuid, uuid) for uuid in uuids))
    return preferences(resource, inventory, Allocation())


def allocation(policy: str, keep_together: str = "none", topology: str = "none") -> Allocation:
    return Allocation.model_validate({"policy": policy, "keepTogether": keep_together, "topology": topology})


def ids_of(preferences: Preferences) -> list[str]:
    """All ids of the resource, in the table's order."""
    return [*preferences.table.gpu_of]


def counts(ids: Iterable[str]) -> dict[str, int]:
    """How many ids each GPU or MIG device gives."""
    return dict(sorted(Counter(map(base_of, ids)).items()))


def parents(ids: Iterable[str]) -> dict[str, int]:
    """How many ids each parent GPU of `mig_gpus` gives."""
    return dict(sorted(Counter(base_of(each).partition("-")[0] for each in ids).items()))
