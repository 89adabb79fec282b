"""How far each reservation is, as `GpuNode.status` shows it (placement guide, 5.5, 8.2)."""

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from gpusharing.api.node import MAX_RESERVATIONS, ReservationReport, ReservationState
from gpusharing.core.ledger import Ledger
from gpusharing.core.listing import Listing
from gpusharing.core.reservations import Wanted, is_place

# resource → ids that the kubelet had of it when it confirmed all of them
Confirmed = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Reserved:
    """What there is to say of a node's reservations."""

    # of the spec that they follow; None = there is none
    generation: int | None = None
    rows: tuple[ReservationReport, ...] = ()
    # GPUs that are not shared
    gpus: frozenset[str] = frozenset()
    # why no reservation changes; empty = they can
    problem: str = ""


def confirmed_names(
    before: Confirmed,
    listing: Listing,
    streams: Collection[str],
    allocatable: Mapping[str, Collection[str]] | None,
    misfits: Set[str],
) -> Confirmed:
    """Return the names of placements that pods can have: with a stream open, and with every id confirmed.

    `allocatable` is the kubelet's word on the lists as they are now; None = it is not known, and what it confirmed of
    the same ids still holds. A broken GPU is expected to be well again, and does not count; but no pod has a name with
    one of the `misfits`, which could not be reserved any more.
    """
    found = {}
    for name in filter(is_place, listing.lists):
        current = {id_: entry for id_, entry in listing.lists[name].items() if entry.state != "retiring"}
        if not current or name not in streams or any(entry.device.gpu in misfits for entry in current.values()):
            continue
        if allocatable is None:
            holds = current.keys() <= before.get(name, frozenset())
        else:
            healthy = {id_ for id_, entry in current.items() if entry.healthy}
            offered = all(entry.state == "served" for entry in current.values())
            holds = offered and healthy == set(allocatable.get(name, ()))
        if holds:
            found[name] = frozenset(current)
    return MappingProxyType(found)


def reservation_reports(
    ledger: Ledger, wanted: Wanted, listing: Listing, held: Mapping[str, Collection[str]], confirmed: Confirmed
) -> tuple[ReservationReport, ...]:
    """Return one row for each reservation of the spec, and for each name that still has something, by name.

    `held` is resource → ids that pods hold. While the spec is not known, the ledger says what it was.
    """
    rows = {row.resource: row for row in _named(ledger, wanted, confirmed)}
    for name, gpus in _left_over(ledger, listing).items():
        if (row := rows.get(name)) is None:
            rows[name] = ReservationReport(resource=name, gpus=gpus, state="Releasing")
        else:  # it has other GPUs now
            rows[name] = row.model_copy(update={"releasing": [gpu for gpu in gpus if gpu not in row.gpus]})
    counted = (row.model_copy(update={"in_use": len(held.get(row.resource, ()))}) for row in rows.values())
    return tuple(sorted(counted, key=lambda row: row.resource))[: 2 * MAX_RESERVATIONS]


def _named(ledger: Ledger, wanted: Wanted, confirmed: Confirmed) -> Iterator[ReservationReport]:
    if wanted.reservations is None:
        names = _claimed(ledger, "withdrawing", "reserved") | {name: [] for name in ledger.conflicts}
    else:
        names = {each.resource: list(each.gpus) for each in wanted.reservations}
    for name, gpus in names.items():
        taken = ledger.conflicts.get(name)
        state: ReservationState = "Conflict" if taken else _state(ledger, name, gpus, confirmed)
        yield ReservationReport(resource=name, gpus=gpus, state=state, taken=taken)


def _state(ledger: Ledger, name: str, gpus: Collection[str], confirmed: Confirmed) -> ReservationState:
    claims = [ledger.claims.get(gpu) for gpu in gpus]
    has_all = all(claim is not None and claim.state == "reserved" and name in claim.names for claim in claims)
    return "Active" if has_all and name in confirmed else "Withdrawing"


def _claimed(ledger: Ledger, *states: str) -> dict[str, list[str]]:
    """Return name → GPUs that it has in one of these states."""
    found: dict[str, list[str]] = {}
    for gpu, claim in ledger.claims.items():
        for name in claim.names if claim.state in states else ():
            found.setdefault(name, []).append(gpu)
    return found


def _left_over(ledger: Ledger, listing: Listing) -> dict[str, list[str]]:
    """Return name → GPUs of what is being released: by the ledger, or because other names of its owner stay."""
    found = _claimed(ledger, "releasing")
    for name in filter(is_place, listing.lists):
        retiring = {entry.device.gpu for entry in listing.lists[name].values() if entry.state == "retiring"}
        if retiring:
            found[name] = sorted(retiring.union(found.get(name, ())))
    return found
