"""What does not fit, in numbers: which error it is, and its sentence (guide, section 7)."""

from collections.abc import Sequence

from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.pieces import Job
from gpusharing.core.placement.pools import Space, indexes_of
from gpusharing.core.placement.problems import Code, Problem


def needs(demands: Sequence[Demand]) -> str:
    """Return every owner with a need, in declaration order: `judge 2, llm 2 x 80%`."""
    return ", ".join(each.need_text for each in demands if each.gpus_needed)


def total(demands: Sequence[Demand], replicas: int) -> str:
    """Return what they need together, in GPUs: `6`, or `1.2` (rounded up at the second digit)."""
    hundredths = -(-100 * _shares(demands, replicas) // replicas)
    return f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")


def oversubscribed(demands: Sequence[Demand], space: Space) -> Problem | None:
    """Return the error that a fixed pool, taken by itself, has fewer GPUs than its services need."""
    gpus = sum(node.size for node in space.nodes)
    if space.auto or space.real or _shares(demands, space.replicas) <= gpus * space.replicas:
        return None
    message = (
        f"{_pool_has(gpus, space)} but its services need {total(demands, space.replicas)} ({needs(demands)}); "
        "reduce one, add nodes, or set share: true"
    )
    return Problem(Code.OVERSUBSCRIBED, message, pool=space.pool)


def does_not_fit(demands: Sequence[Demand], unplaced: Sequence[Job], space: Space) -> Problem:
    """Return the error that services found no place."""
    if space.auto and (not space.real or space.candidates > space.cap):
        return _max_nodes_exceeded(demands, unplaced, space)
    if space.real:
        return _unplaceable(demands, unplaced, space)
    gpus = sum(node.size for node in space.nodes)
    pieces = ", ".join(map(_in_one_piece, unplaced))
    message = (
        f"{_pool_has(gpus, space)} for a need of {total(demands, space.replicas)} ({needs(demands)}), "
        f"but not in one piece: {pieces}"
    )
    return Problem(Code.DOES_NOT_FIT, message, services=_names(unplaced), pool=space.pool)


def _max_nodes_exceeded(demands: Sequence[Demand], unplaced: Sequence[Job], space: Space) -> Problem:
    message = (
        f"pool '{space.pool}' needs more than maxNodes={space.cap} node(s) for {total(demands, space.replicas)} GPU(s) "
        f"({needs(demands)}); unplaced: {', '.join(_names(unplaced))}"
    )
    return Problem(Code.MAX_NODES_EXCEEDED, message, services=_names(unplaced), pool=space.pool)


def _unplaceable(demands: Sequence[Demand], unplaced: Sequence[Job], space: Space) -> Problem:
    free = sum(node.free.bit_count() for node in space.nodes)
    usable = sum(node.usable.bit_count() for node in space.nodes)
    message = (
        f"pool '{space.pool}' has {free} free of {usable} usable GPU(s) on {len(space.nodes)} node(s); its services "
        f"need {total(demands, space.replicas)} ({needs(demands)}); unplaced: {', '.join(_names(unplaced))}"
    )
    return Problem(Code.UNPLACEABLE, message, _unplaceable_hint(space), _names(unplaced), space.pool)


def _unplaceable_hint(space: Space) -> str:
    if not space.nodes:
        return "no node of the inventory is ready, schedulable, named by nodeSelector and unused by an earlier pool"
    in_use = touched = packed = 0
    for node in space.nodes:
        held = [node.shares[index] for index in indexes_of(node.usable)]
        in_use += sum(used for _, used in held)
        touched += sum(used > 0 for _, used in held)
        packed += _fewest_gpus(held)
    if packed < touched:
        return f"{in_use} replicas in use touch {touched} GPUs; the packed policy would hold them on {packed}"
    return f"the pool may open {space.cap} node(s)" if space.cap < len(space.nodes) else ""


def _fewest_gpus(held: Sequence[tuple[int, int]]) -> int:
    """Return how few GPUs of a node could hold the replicas in use; a GPU is (shares, in use)."""
    missing, count = sum(used for _, used in held), 0
    for shares, _ in sorted(held, reverse=True):
        if missing > 0:
            missing, count = missing - max(shares, 1), count + 1
    return count


def _in_one_piece(job: Job) -> str:
    demand = job.demand
    part = "" if demand.percent is None else f" x {demand.percent}%"
    if job.whole:
        return f"{demand.name} needs {demand.gpus_needed}{part} on whole nodes"
    where = "on every node" if demand.evenly else "on one node"
    return f"{demand.name} needs {job.pieces[0].gpus}{part} {where}"


def _shares(demands: Sequence[Demand], replicas: int) -> int:
    return sum(each.gpus_needed * each.shares(replicas) for each in demands)


def _pool_has(gpus: int, space: Space) -> str:
    return f"pool '{space.pool}' has {gpus} GPU(s) on {len(space.nodes)} node(s)"


def _names(jobs: Sequence[Job]) -> tuple[str, ...]:
    return tuple(job.demand.name for job in jobs)
