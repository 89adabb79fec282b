"""From a packing to slots: numbers, ranks, leftovers, copies and exports (guide, sections 6.6 and 6.7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.layout import Layout, free_after, lay_out
from gpusharing.core.placement.packing import Packing
from gpusharing.core.placement.pieces import Piece
from gpusharing.core.placement.plan import Assignment, Slot
from gpusharing.core.placement.pools import PoolNode, Space
from gpusharing.core.placement.request import Bound


@dataclass(frozen=True, slots=True)
class Numbered:
    """A node with its number in the plan, and what is on it."""

    number: int
    node: PoolNode
    pieces: tuple[Piece, ...]


def numbered(packing: Packing, lead: Demand | None, bound: Sequence[Bound]) -> tuple[Numbered, ...]:
    """Return the pool's slots by number: a node that bound entries name keeps its slot, the lead's node is slot 0."""
    there = packing.pieces()
    kept = _kept_numbers(packing.space, bound)
    nodes = sorted(there) if packing.space.auto else _filled_up(packing.space, there, kept)
    number_of = {at: number for at, number in kept.items() if at in nodes}
    waiting = [at for at in nodes if at not in number_of]
    waiting.sort(key=lambda at: (at != _lead_node(there, lead), at))
    numbers = (number for number in range(len(nodes)) if number not in number_of.values())
    number_of |= dict(zip(waiting, list(numbers), strict=False))
    slots = [Numbered(number, packing.space.nodes[at], tuple(there.get(at, ()))) for at, number in number_of.items()]
    return tuple(sorted(slots, key=lambda slot: slot.number))


def _kept_numbers(space: Space, bound: Sequence[Bound]) -> dict[int, int]:
    """Return the numbers that bound entries give to nodes; the first to name a node, or a number, wins."""
    at_of = {node.name: node.at for node in space.nodes if node.name}
    kept: dict[int, int] = {}
    for each in bound:
        pool, _, number = each.slot.rpartition("/")
        at = at_of.get(each.node)
        if pool != space.pool or not number.isdecimal() or at is None:
            continue
        if at not in kept and int(number) not in kept.values():
            kept[at] = int(number)
    return kept


def _filled_up(space: Space, there: Mapping[int, object], kept: Mapping[int, int]) -> list[int]:
    """Return the nodes of a fixed pool: opened ones, then those that had a slot, then the others in node order."""
    spare = [node.at for node in space.nodes if node.at not in there and node.takes_more]
    spare.sort(key=lambda at: (at not in kept, at))
    return sorted([*there, *spare[: max(0, space.cap - len(there))]])


def _lead_node(there: Mapping[int, Sequence[Piece]], lead: Demand | None) -> int | None:
    """Return where the lead's rank 0 is: on its first node, whole ones before a tail."""
    if lead is None:
        return None
    places = [(not piece.whole, at) for at, pieces in there.items() for piece in pieces if piece.service == lead.order]
    return min(places)[1] if places else None


def slots(numbered: Sequence[Numbered], demands: Sequence[Demand], space: Space) -> tuple[Slot, ...]:
    """Return the slots with the GPUs of every service of the pool."""
    placed = {piece.service for here in numbered for piece in here.pieces}
    rest = next((each for each in demands if each.leftover is not None and each.order not in placed), None)
    made = [_slot(each, demands, space, rest) for each in numbered]
    ranks = _ranks(numbered, made, demands)
    return tuple(
        replace(slot, assigned=tuple(ranks.get((slot.name, each.service), each) for each in slot.assigned))
        for slot in made
    )


def _slot(here: Numbered, demands: Sequence[Demand], space: Space, rest: Demand | None) -> Slot:
    """Return one slot; `rest` is the service that takes what the others leave there."""
    node = here.node
    layout = lay_out(node, here.pieces, space)
    if layout is None:
        raise AssertionError("what fitted on the node no longer does. This is a bug. Please report it.")
    closed = any(piece.whole or piece.opaque for piece in here.pieces)
    free = () if closed else free_after(node, layout)
    own: dict[int, list[Piece]] = {}
    for piece in here.pieces:
        own.setdefault(piece.service, []).append(piece)
    assigned: dict[str, Assignment] = {}
    for demand in demands:
        if demand.order in own:
            assigned[demand.name] = _assignment(demand, own[demand.order], layout, node)
        elif demand is rest and free:
            assigned[demand.name] = Assignment(demand.name, free, uuids=_uuids(node, free))
            free = ()
    for demand in demands:
        if demand.share_with in assigned:
            assigned[demand.name] = replace(assigned[demand.share_with], service=demand.name)
    ordered = [assigned[each.name] for each in demands if each.name in assigned]
    return Slot(
        name=f"{space.pool}/{here.number}",
        pool=space.pool,
        number=here.number,
        node=node.name,
        gpus=node.indexes,
        size=node.count,
        assigned=tuple(ordered),
        free=free,
        exported=_exported([each for each in demands if each.name in assigned], node),
    )


def _assignment(demand: Demand, own: Sequence[Piece], layout: Layout, node: PoolNode) -> Assignment:
    pieces = sorted(own, key=lambda piece: piece.part)
    indexes = tuple(index for piece in pieces for index in layout[piece.service, piece.part])
    return Assignment(
        demand.name,
        indexes,
        uuids=_uuids(node, indexes),
        shares=own[0].shares if demand.percent is not None else None,
        from_env=demand.from_env,
    )


def _uuids(node: PoolNode, indexes: Sequence[int]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs, if all are known."""
    known = tuple(node.uuids[index] for index in indexes if index in node.uuids)
    return known if len(known) == len(indexes) else ()


def _exported(there: Sequence[Demand], node: PoolNode) -> tuple[str, ...]:
    """Return for whom a device line is written: not for a sole tenant of a node that is all ours, unless pinned."""
    owners = [each for each in there if each.owner]
    alone = len(owners) == 1 and node.untouched
    exported = {each.name for each in owners if each.pinned or not alone}
    return tuple(each.name for each in there if each.name in exported or each.share_with in exported)


def _ranks(
    numbered: Sequence[Numbered], made: Sequence[Slot], demands: Sequence[Demand]
) -> dict[tuple[str, str], Assignment]:
    """Return the assignments that have a rank, or instances: in slot order, whole nodes before a tail."""
    ranked: dict[tuple[str, str], Assignment] = {}
    named = {demand.name: demand for demand in demands}
    there: dict[str, list[tuple[bool, int, Assignment]]] = {}
    for at, (here, slot) in enumerate(zip(numbered, made, strict=True)):
        shared = not any(piece.whole for piece in here.pieces)
        for assignment in slot.assigned:
            there.setdefault(assignment.service, []).append((shared, at, assignment))
    for name, places in there.items():
        demand, first = named[name], 0
        source = named.get(demand.share_with, demand)
        for rank, (_, at, assignment) in enumerate(sorted(places, key=lambda place: place[:2])):
            count = _instances(source, len(assignment.indexes), len(places))
            ranked[made[at].name, demand.name] = replace(
                assignment,
                rank=rank if len(places) > 1 else None,
                instances=count,
                first_instance=first if count is not None else None,
            )
            first += count or 0
    return ranked


def _instances(demand: Demand, gpus: int, slots: int) -> int | None:
    """Return how many instances run on a slot, where they are placed one by one or spread evenly over slots."""
    if demand.evenly:
        return demand.instances // slots
    return gpus // demand.per_instance if demand.split else None
