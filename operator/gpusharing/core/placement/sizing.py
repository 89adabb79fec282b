"""Step 3 of the checks: whether the services of one pool can be planned together at all."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from gpusharing.api import placementrules as rules
from gpusharing.api.placement import Pool
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.pools import Space
from gpusharing.core.placement.problems import Code, Problem


def size_problems(pool: Pool, space: Space | None) -> Iterator[Problem]:
    """Yield what keeps the size of the pool's nodes from being known."""
    by_node = pool.gpus_by_node
    if by_node is not None and pool.nodes == "auto":
        message = rules.LENGTH_WITH_AUTO.format(pool=pool.name)
        yield Problem(Code.GPUS_PER_NODE_LENGTH, message, pool=pool.name)
    elif by_node is not None and len(by_node) != pool.nodes:
        message = rules.LENGTH_DIFFERS.format(pool=pool.name, count=len(by_node), nodes=pool.nodes)
        yield Problem(Code.GPUS_PER_NODE_LENGTH, message, pool=pool.name)
    elif space is None and pool.nodes == "auto":
        message = f"pool '{pool.name}' has nodes: auto, so gpusPerNode must be set or an inventory given"
        yield Problem(Code.GPUS_PER_NODE_REQUIRED, message, pool=pool.name)


def demand_problems(pool: Pool, demands: Sequence[Demand]) -> Iterator[Problem]:
    """Yield what is wrong with the services of the pool, taken together."""
    leftovers = [each for each in demands if each.leftover is not None]
    if len(leftovers) > 1:
        names = ", ".join(f"'{each.name}'" for each in leftovers)
        message = f"services {names} of pool '{pool.name}' all ask for the leftover GPUs; only one may"
        yield Problem(Code.TWO_LEFTOVERS, message, services=tuple(each.name for each in leftovers), pool=pool.name)
    if pool.nodes == "auto" and not any(each.gpus_needed for each in demands):
        message = (
            f"pool '{pool.name}' has nodes: auto but no service in it needs GPUs of its own; put a service in the pool "
            "or give a node count"
        )
        yield Problem(Code.NOTHING_TO_SIZE, message, pool=pool.name)


def overlap_problems(
    pool: Pool, demands: Sequence[Demand], space: Space, everywhere: bool = False
) -> Iterator[Problem]:
    """Yield pins of two services that must meet on one GPU; `everywhere`: every pin is on every node."""
    pinned = [each for each in demands if each.owner and (each.pins or each.uuid_pins)]
    for one, other in combinations(pinned, 2):
        common = _common(one, other, space, must_meet=everywhere or pool.nodes == 1 or one.evenly or other.evenly)
        if common and not (one.percent and other.percent):
            message = (
                f"services '{one.name}' and '{other.name}' both pin GPU {','.join(common)} of pool '{pool.name}'; "
                "change one, or set share: true on the one that may share"
            )
            yield Problem(Code.PIN_OVERLAP, message, services=(one.name, other.name), pool=pool.name)


def _common(one: Demand, other: Demand, space: Space, must_meet: bool) -> list[str]:
    """Return the GPUs, as the first of the two names them, that both must have."""
    if one.uuid_pins and other.uuid_pins:
        return [uuid for uuid in one.uuid_pins if uuid in other.uuid_pins]
    if not must_meet:
        return []
    others = {index for _, index in _pins(other, space)}
    return [word for word, index in _pins(one, space) if index in others]


def _pins(demand: Demand, space: Space) -> list[tuple[str, int]]:
    """Return each pinned GPU as it was written, with its index."""
    by_uuid = [(uuid, space.gpus[uuid][1]) for uuid in demand.uuid_pins]
    return by_uuid or [(str(index), index) for index in demand.pins]
