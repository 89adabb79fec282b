"""Warnings: a plan that can be made, and that somebody may not want (guide, section 7)."""

from collections.abc import Iterator, Mapping, Sequence

from gpusharing.api.placement import Pool, Service
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.pieces import Piece
from gpusharing.core.placement.pins import too_large
from gpusharing.core.placement.plan import Assignment, Slot
from gpusharing.core.placement.pools import Space
from gpusharing.core.placement.problems import Code, Problem


def shared(demands: Sequence[Demand]) -> Iterator[Problem]:
    """Yield one warning for all services that share GPUs."""
    sharing = tuple(each.name for each in demands if each.share or each.share_with or each.percent is not None)
    if sharing:
        message = f"memory and faults are not isolated between services that share a GPU: {', '.join(sharing)}"
        yield Problem(Code.SHARED_NO_ISOLATION, message, services=sharing)


def of_pool(
    pool: Pool,
    pairs: Sequence[tuple[Service, Demand]],
    space: Space,
    own: Mapping[int, Sequence[tuple[int, Piece]]],
    slots: Sequence[Slot],
) -> Iterator[Problem]:
    """Yield the warnings about one planned pool; `own` is what of each service is on which node."""
    differs = next((node for node in space.nodes if pool.gpus_per_node not in (None, node.count)), None)
    if space.real and differs is not None:
        message = (
            f"pool '{pool.name}' says gpusPerNode {pool.gpus_per_node}, but {differs.name} has {differs.count}; the "
            "inventory counts"
        )
        yield Problem(Code.GPUS_PER_NODE_DIFFERS, message, pool=pool.name)
    for service, demand in pairs:
        yield from too_large(service, demand, pool)
        pieces = own.get(demand.order, ())
        if any(piece.whole for _, piece in pieces):
            yield from _idle(demand, pieces, space)
        elif space.order == "declared":
            yield from _straddles(demand, slots, space)


def idle_gpus(demand: Demand, own: Sequence[tuple[int, Piece]], space: Space) -> int:
    """Return how many GPUs of its whole nodes the service does not need."""
    if not any(piece.whole for _, piece in own):
        return 0
    gpus = sum(space.nodes[at].usable.bit_count() if piece.whole else piece.gpus for at, piece in own)
    return max(0, gpus - demand.gpus_needed)


def _idle(demand: Demand, own: Sequence[tuple[int, Piece]], space: Space) -> Iterator[Problem]:
    """Yield a warning that whole nodes have more GPUs than the service needs of them."""
    idle = idle_gpus(demand, own, space)
    if idle and not demand.exclusive:
        message = (
            f"service '{demand.name}' owns {len(own)} whole node(s) of pool '{demand.pool}' with "
            f"{demand.gpus_needed + idle} GPU(s) but needs {demand.gpus_needed}; {idle} will idle"
        )
        yield Problem(Code.IDLE_GPUS, message, services=(demand.name,), pool=demand.pool)


def _straddles(demand: Demand, slots: Sequence[Slot], space: Space) -> Iterator[Problem]:
    """Yield a warning for every slot on which a tensor group is not in one link group, though one could hold it."""
    if demand.tensor < 2 or demand.pinned:
        return
    groups = {node.name: node.groups for node in space.nodes if node.groups}
    for slot in slots:
        assignment = slot.of(demand.name) if slot.node in groups else None
        if assignment is not None and _is_torn(assignment, groups[slot.node]):
            message = (
                f"service '{demand.name}' gets GPUs {','.join(map(str, assignment.indexes))} of {slot.name}, which are "
                "not in one link group; gpuOrder: aligned would keep it in one"
            )
            yield Problem(Code.GROUP_STRADDLES, message, services=(demand.name,), pool=demand.pool)


def _is_torn(assignment: Assignment, groups: Mapping[int, int]) -> bool:
    known = list(groups.values())
    largest = max((known.count(group) for group in known), default=0)
    return len({groups.get(index) for index in assignment.indexes}) > 1 and largest >= len(assignment.indexes)
