"""Who has which GPU of a node: the shared resources, or the reservations of one owner (placement guide, 8.2).

There is one state for each GPU; a GPU that the ledger does not name is shared:

    (shared) ◄──► withdrawing ──► reserved ◄──► releasing ──► (shared), or reserved for another owner

withdrawing  named by the spec, and nobody had it: its shared ids retire
reserved     listed under the names of its owner, and under no other
releasing    no longer named: the owner's ids retire

Both ways that lead to another owner wait until the GPU is *quiet*: the lists have let all of its ids go (`listing.py`:
10 s Unhealthy, no call open, no holder), a look at the kubelet that began after those lists were sent shows none of
them allocatable, and nobody who holds one, and no process computes on it, as far as the driver tells. Nothing of that
outlives a restart of plugin or kubelet: it is asked anew.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from gpusharing.core.devices import Inventory, base_of, replica_of
from gpusharing.core.listing import Listing
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.reservations import Reservation, Wanted, is_place, reserved_id
from gpusharing.core.resources import Device, Resource, served_gpus
from gpusharing.core.serving import ServedConfig

State = Literal["withdrawing", "reserved", "releasing"]
# Of a ledger that was rebuilt from what pods hold: whose placement a name belongs to is not in its ids.
UNKNOWN_OWNER = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """What an owner has of one GPU."""

    state: State
    owner: str
    # the resources over the GPU, sorted; of `releasing` those that there were
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims on a node's GPUs. All of it outlives a restart."""

    # by the GPU's UUID
    claims: Mapping[str, Claim] = field(default_factory=lambda: MappingProxyType({}))
    # resource → the GPU of its reservation that could not be had; tried again with another generation only
    conflicts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # of the spec that was followed last; None = there was none
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a node's GPUs, by UUID."""

    # those that can be reserved; None = not known yet
    usable: frozenset[str] | None = None
    # those of which somebody holds an id, of whatever resource, or that a process computes on; None = not known
    held: frozenset[str] | None = None
    # those of which an id is on one of our lists
    listed: frozenset[str] = frozenset()
    # those of which the kubelet may give an id out, by a look that began after it got our lists; None = no such look
    allocatable: frozenset[str] | None = None

    def cannot_be_had(self, gpu: str) -> bool:
        """Whether somebody is known to hold the GPU, or it cannot be reserved at all."""
        held, usable = self.held, self.usable
        return (held is not None and gpu in held) or (usable is not None and gpu not in usable)

    def is_quiet(self, gpu: str) -> bool:
        """Whether nobody has the GPU, nor can get it from a former owner."""
        if self.held is None or self.allocatable is None:
            return False
        return gpu not in self.held | self.listed | self.allocatable


@dataclass(frozen=True, slots=True)
class _Target:
    """What the spec wants of one GPU."""

    owner: str
    names: tuple[str, ...]


def facts_of(
    listing: Listing,
    inventory: Inventory | None,
    served: ServedConfig | None,
    held: Mapping[str, Iterable[str]] | None,
    allocatable: Mapping[str, Iterable[str]] | None,
    computing: Set[str] | None,
) -> Facts:
    """Return the facts. `held` and `allocatable` are resource → ids; None as in `Facts`, also where nothing is served.

    `computing` are GPUs that processes compute on: they hold one, whatever the kubelet says; None = not known yet.
    """
    gpu_of = {mig.uuid: gpu.uuid for gpu in (inventory.gpus if inventory else ()) for mig in gpu.mig_devices}
    entries = (entry.device for entries in listing.lists.values() for entry in entries.values())
    listed = {device.base: device.gpu for device in entries}
    gpu_of |= listed
    return Facts(
        usable=None if inventory is None or served is None else reservable(inventory, served),
        held=None if held is None or computing is None else _gpus(held, gpu_of) | computing,
        listed=frozenset(listed.values()),
        allocatable=None if allocatable is None else _gpus(allocatable, gpu_of),
    )


def reservable(inventory: Inventory, served: ServedConfig) -> frozenset[str]:
    """Return the GPUs that can be reserved: none in MIG mode, and none of those that an MPS daemon controls."""
    if served.mps is not None:
        return frozenset()
    return frozenset(gpu.uuid for gpu in served_gpus(inventory) if not gpu.mig_mode)


def advance_ledger(ledger: Ledger, wanted: Wanted, facts: Facts) -> Ledger:
    """Return the ledger as it should be now; the same object if nothing changed."""
    if wanted.reservations is None:
        return ledger
    conflicts = dict(ledger.conflicts) if wanted.generation == ledger.generation else {}
    targets, conflicts = _targets(ledger, wanted.reservations, conflicts, facts)
    claims = {}
    for gpu in dict.fromkeys((*ledger.claims, *targets)):
        claim = _moved(gpu, ledger.claims.get(gpu), targets.get(gpu), facts)
        if claim is not None:
            claims[gpu] = claim
    after = Ledger(MappingProxyType(claims), MappingProxyType(conflicts), wanted.generation)
    return ledger if after == ledger else after


def is_moving(ledger: Ledger, wanted: Wanted) -> bool:
    """Whether a GPU changes its owner, or is about to: only then it matters who has one."""
    if wanted.reservations is None:
        return False
    refused = ledger.conflicts if wanted.generation == ledger.generation else ()
    named = {gpu for each in wanted.reservations if each.resource not in refused for gpu in each.gpus}
    return bool(named - ledger.claims.keys()) or any(claim.state != "reserved" for claim in ledger.claims.values())


def rebuilt(pods: Iterable[PodDevices]) -> Ledger:
    """Return what pods hold under names of placements: all that is left to see of a ledger that was lost."""
    claims: dict[str, Claim] = {}
    for resource, device_id in sorted(
        {(row.resource, id_) for row in pods if is_place(row.resource) for id_ in row.ids}
    ):
        gpu, owner = base_of(device_id), resource if replica_of(device_id) is None else UNKNOWN_OWNER
        before = claims.get(gpu, Claim("reserved", owner, ()))
        claims[gpu] = replace(before, names=(*before.names, resource))
    return Ledger(MappingProxyType(claims))


def shared_part(ledger: Ledger, resources: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return the resources without the GPUs that are not shared; one that loses all of its devices is left out."""
    if not ledger.claims:
        return tuple(resources)
    kept = (
        replace(each, devices=tuple(it for it in each.devices if it.gpu not in ledger.claims)) for each in resources
    )
    return tuple(each for each in kept if each.devices)


def reserved_part(ledger: Ledger, inventory: Inventory) -> tuple[Resource, ...]:
    """Return one resource for each name over the GPUs that are reserved under it, one id for each GPU, by index."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    devices: dict[str, list[Device]] = {}
    for gpu in sorted(
        ledger.claims, key=lambda uuid: (uuid not in gpus, gpus[uuid].index if uuid in gpus else 0, uuid)
    ):
        claim = ledger.claims[gpu]
        numa_node = gpus[gpu].numa_node if gpu in gpus else None
        for name in claim.names if claim.state == "reserved" else ():
            devices.setdefault(name, []).append(Device(reserved_id(gpu, name, claim.owner), gpu, gpu, numa_node))
    return tuple(Resource(name, tuple(devices[name])) for name in sorted(devices))


def still_reserved(ledger: Ledger, resources: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return the names of placements among these resources, with the GPUs that are reserved under them."""
    found = []
    for each in resources:
        claims = ((device, ledger.claims.get(device.gpu)) for device in each.devices)
        kept = tuple(it for it, claim in claims if claim and claim.state == "reserved" and each.name in claim.names)
        if kept and is_place(each.name):
            found.append(replace(each, devices=kept))
    return tuple(found)


def shared_gpus(ledger: Ledger, inventory: Inventory) -> Inventory:
    """Return the inventory without the GPUs that are not shared; the same object if all are."""
    if not ledger.claims:
        return inventory
    return replace(inventory, gpus=tuple(gpu for gpu in inventory.gpus if gpu.uuid not in ledger.claims))


def _gpus(ids: Mapping[str, Iterable[str]], gpu_of: Mapping[str, str]) -> frozenset[str]:
    bases = {base_of(device_id) for of_resource in ids.values() for device_id in of_resource}
    return frozenset(gpu_of.get(base, base) for base in bases)


def _targets(
    ledger: Ledger, reservations: Sequence[Reservation], before: Mapping[str, str], facts: Facts
) -> tuple[dict[str, _Target], dict[str, str]]:
    """Return what the spec wants of each GPU, and the conflicts: a reservation with one gets none of its GPUs."""
    targets: dict[str, _Target] = {}
    conflicts: dict[str, str] = {}
    for each in reservations:
        taken = before.get(each.resource) or next(_taken(each, ledger, targets, facts), "")
        if taken:
            conflicts[each.resource] = taken
            continue
        for gpu in each.gpus:
            others = targets[gpu].names if gpu in targets else ()
            targets[gpu] = _Target(each.owner, tuple(sorted({*others, each.resource})))
    return targets, conflicts


def _taken(reservation: Reservation, ledger: Ledger, targets: Mapping[str, _Target], facts: Facts) -> Iterator[str]:
    """Yield the GPUs that the reservation cannot have: somebody holds them, or they cannot be reserved at all."""
    for gpu in reservation.gpus:
        claim = ledger.claims.get(gpu)
        if gpu in targets and targets[gpu].owner != reservation.owner:
            yield gpu  # the spec gives it to two owners
        elif (claim is None or claim.state == "withdrawing") and facts.cannot_be_had(gpu):
            yield gpu


def _moved(gpu: str, claim: Claim | None, target: _Target | None, facts: Facts) -> Claim | None:
    """Return the GPU's next claim; None = it is shared."""
    if claim is None:
        known = facts.usable is not None and facts.held is not None
        return Claim("withdrawing", target.owner, target.names) if target and known else None
    if target is not None and (claim.state == "withdrawing" or _continues(claim, target)):
        waits = claim.state == "withdrawing" and not facts.is_quiet(gpu)
        return Claim("withdrawing" if waits else "reserved", target.owner, target.names)
    if claim.state == "withdrawing":
        return None
    if claim.state == "releasing" and facts.is_quiet(gpu):
        return Claim("reserved", target.owner, target.names) if target else None
    return replace(claim, state="releasing")


def _continues(claim: Claim, target: _Target) -> bool:
    """Whether the spec wants the GPU for the owner that has it already."""
    if claim.owner == UNKNOWN_OWNER:
        return not set(claim.names).isdisjoint(target.names)
    return claim.owner == target.owner
