"""Warnings: a plan that can be made, and that somebody may not want (guide, section 7)."""

from collections.abc import Iterator, Sequence

from gpusharing.api.placement import Pool, Service
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.pieces import Piece
from gpusharing.core.placement.pins import too_large
from gpusharing.core.placement.plan import Assignment, Slot
from gpusharing.core.placement.pools import PoolNode, Space
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.slots import Numbered


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
    numbered: Sequence[Numbered],
    slots: Sequence[Slot],
) -> Iterator[Problem]:
    """Yield the warnings about one planned pool."""
    differs = next((node for node in space.nodes if pool.gpus_per_node not in (None, node.gpus)), None)
    if space.real and differs is not None:
        message = (
            f"pool '{pool.name}' says gpusPerNode {pool.gpus_per_node}, but {differs.name} has {differs.gpus}; the "
            "inventory counts"
        )
        yield Problem(Code.GPUS_PER_NODE_DIFFERS, message, pool=pool.name)
    for service, demand in pairs:
        yield from too_large(service, demand, pool)
        yield from _idle(demand, numbered)
        if space.order == "declared":
            yield from _straddles(demand, numbered, slots)


def _idle(demand: Demand, numbered: Sequence[Numbered]) -> Iterator[Problem]:
    """Yield a warning that whole nodes have more GPUs than the service needs of them."""
    owned = [here.node for here in numbered if any(_owns(each, demand) for each in here.pieces)]
    gpus = sum(node.usable.bit_count() for node in owned)
    if owned and not demand.exclusive and gpus > demand.gpus_needed:
        message = (
            f"service '{demand.name}' owns {len(owned)} whole node(s) of pool '{demand.pool}' with {gpus} GPU(s) but "
            f"needs {demand.gpus_needed}; {gpus - demand.gpus_needed} will idle"
        )
        yield Problem(Code.IDLE_GPUS, message, services=(demand.name,), pool=demand.pool)


def _straddles(demand: Demand, numbered: Sequence[Numbered], slots: Sequence[Slot]) -> Iterator[Problem]:
    """Yield a warning for every slot on which a tensor group is not in one link group, though one could hold it."""
    if demand.tensor < 2 or demand.pinned:
        return
    for here, slot in zip(numbered, slots, strict=True):
        assignment = slot.of(demand.name)
        owned = any(_owns(each, demand) for each in here.pieces)
        if assignment is None or owned or not _is_torn(assignment, here.node):
            continue
        message = (
            f"service '{demand.name}' gets GPUs {','.join(map(str, assignment.indexes))} of {slot.name}, which are not "
            "in one link group; gpuOrder: aligned would keep it in one"
        )
        yield Problem(Code.GROUP_STRADDLES, message, services=(demand.name,), pool=demand.pool)


def _is_torn(assignment: Assignment, node: PoolNode) -> bool:
    groups = [node.groups.get(index) for index in assignment.indexes]
    known = list(node.groups.values())
    largest = max((known.count(group) for group in known), default=0)
    return len(set(groups)) > 1 and largest >= len(groups)


def _owns(piece: Piece, demand: Demand) -> bool:
    return piece.whole and piece.service == demand.order
