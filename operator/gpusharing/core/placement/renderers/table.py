"""`-o table`: a plan for people: one line per pool, a picture of each slot, and who has which GPUs, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusharing.api.placement import Parallelism, Service
from gpusharing.core.placement.plan import Assignment, PoolPlan, Slot
from gpusharing.core.placement.renderers import Job

COLUMNS = ("SLOT", "NODE", "SERVICE", "GPUS", "NEED", "WHY")
NONE = "-"
PER_LINE, RUN_MAX = 8, 4
CELL_MAX, CELL_WANTED, CELL_MIN = 12, 4, 2
FREE, NOT_OURS, UNKNOWN = ".", "x", "?"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a picture, and whose it is: the service's number in the spec, or None."""

    text: str
    service: int | None = None


def summary(job: Job) -> Iterator[str]:
    """Yield one line per pool: nodes, and GPUs in use."""
    for pool in job.plan.pools:
        if pool.skipped:
            yield f"{job.name}: pool {pool.name} skipped"
            continue
        slots = [slot for slot in job.plan.slots if slot.pool == pool.name]
        used = sum(len(_used(slot)) for slot in slots)
        yield f"{job.name}: pool {pool.name}, {_nodes(pool)}, {used} of {sum(slot.size for slot in slots)} GPUs used"


def _nodes(pool: PoolPlan) -> str:
    if not pool.auto:
        return f"{pool.nodes_resolved} node{'s' if pool.nodes_resolved != 1 else ''}"
    fewest = "fewest possible" if pool.proven_minimal else f"at least {pool.lower_bound}"
    return f"nodes auto -> {pool.nodes_resolved} ({fewest})"


def _used(slot: Slot) -> set[int]:
    """Return the GPUs that services have; where a list is known at run time only, all that the pool may use."""
    if any(each.from_env for each in slot.assigned):
        return set(slot.gpus)
    return {index for each in slot.assigned for index in each.indexes}


# --- rows


def rows(job: Job) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `COLUMNS`: each slot with what is left of it, then the services without GPUs of their own."""
    services = {service.name: service for service in job.deployed}
    whys = {each.name: each.why for each in job.plan.services}
    for slot in job.plan.slots:
        for each in slot.assigned:
            why = ", ".join([whys[each.service], *_place(each)])
            need = _need(services[each.service], job)
            yield slot.name, slot.node or NONE, each.service, _gpus(each), need, why
        for gpus, why in ((slot.free, "free"), (_others(slot), "not for this placement")):
            if gpus:
                yield slot.name, slot.node or NONE, NONE, _ranges(gpus), "", why
    placed = {each.service for slot in job.plan.slots for each in slot.assigned}
    nodes = {slot.name: slot.node for slot in job.plan.slots}
    for service in job.plan.services:
        if service.name not in placed:
            at = service.slots[0] if service.slots else ""
            yield at or NONE, nodes.get(at, "") or NONE, service.name, NONE, str(service.gpus_needed), service.why


def _gpus(assignment: Assignment) -> str:
    return f"${assignment.from_env}" if assignment.from_env else _ranges(assignment.indexes)


def _ranges(indexes: Sequence[int]) -> str:
    """Return `1,2`, and `0-7` for more than four in a row."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > RUN_MAX else ",".join(map(str, run)) for run in runs)


def _place(assignment: Assignment) -> Iterator[str]:
    if assignment.rank is not None:
        yield f"rank {assignment.rank}"
    if assignment.instances is not None and assignment.first_instance is not None:
        last = assignment.first_instance + assignment.instances - 1
        span = str(last) if assignment.instances == 1 else f"{assignment.first_instance}-{last}"
        yield f"instance{'s' if assignment.instances > 1 else ''} {span}"


def _need(service: Service, job: Job) -> str:
    needed = next(each.gpus_needed for each in job.plan.services if each.name == service.name)
    if service.leftover is not None:
        return f">= {service.leftover.min}"
    if service.fraction is not None:
        return f"{needed} x {service.fraction}"
    shape = _shape(service.parallelism) if service.parallelism and needed else ""
    return f"{needed} ({shape})" if shape else str(needed)


def _shape(shape: Parallelism) -> str:
    parts = (("TP", shape.tensor), ("PP", shape.pipeline), ("DP", shape.instances))
    return " x ".join(f"{word} {size}" for word, size in parts if size > 1)


def _others(slot: Slot) -> tuple[int, ...]:
    """Return the GPUs that are neither the services' nor free: reserved, sick, or in somebody else's use."""
    if any(each.from_env for each in slot.assigned):
        return ()
    known = _used(slot) | set(slot.free)
    return tuple(index for index in _indexes(slot) if index not in known)


def _indexes(slot: Slot) -> list[int]:
    """Return every GPU of the node: its own indexes as far as the plan tells them, else the numbers from 0."""
    known = {*slot.gpus, *slot.free, *(index for each in slot.assigned for index in each.indexes)}
    missing = (index for index in range(slot.size + len(known)) if index not in known)
    return sorted([*known, *(next(missing) for _ in range(slot.size - len(known)))])


# --- pictures


def pictures(job: Job, width: int) -> Iterator[tuple[Piece, ...]]:
    """Yield one line of pieces per slot, two and more for a node of more than 8 GPUs, at most `width` wide."""
    lines = [
        (slot, indexes[at : at + PER_LINE])
        for slot in job.plan.slots
        for indexes in [_indexes(slot)]
        for at in range(0, len(indexes), PER_LINE)
    ]
    labels = [slot.name if slot.size <= PER_LINE else f"{slot.name} {gpus[0]}-{gpus[-1]}" for slot, gpus in lines]
    margin = max(map(len, labels), default=0) + 2
    most = max((len(gpus) for _, gpus in lines), default=1)
    cell = max(CELL_MIN, min(_cell_wanted(job), (width - margin) // most - 2))
    numbers = {service.name: number for number, service in enumerate(job.spec.services)}
    for label, (slot, gpus) in zip(labels, lines, strict=True):
        pieces = [Piece(label.ljust(margin))]
        for gpu in gpus:
            pieces += [Piece("["), *_cell(job, slot, gpu, cell, numbers), Piece("]")]
        yield tuple(pieces)


def _cell_wanted(job: Job) -> int:
    """Return how wide a GPU is drawn where there is room: its services' names fit, and shares are told apart."""
    names = [len(each.service) for slot in job.plan.slots for each in slot.assigned]
    fractions = any(each.shares for slot in job.plan.slots for each in slot.assigned)
    return CELL_MAX if fractions else min(max([CELL_WANTED, *names]), CELL_MAX)


def _cell(job: Job, slot: Slot, gpu: int, width: int, numbers: Mapping[str, int]) -> Iterator[Piece]:
    """Yield what fills one GPU: its owners, in proportion to what they take of it."""
    owners = [each for each in slot.assigned if gpu in each.indexes and not _sharing(job, each)]
    if not owners:
        yield Piece(_blank(slot, gpu) * width)
        return
    start = taken = 0
    for each in owners:
        taken += _percent(job, each)
        end = min(round(width * taken / 100), width)
        yield Piece(each.service[: end - start].ljust(end - start), numbers[each.service])
        start = end
    yield Piece(FREE * (width - start))


def _blank(slot: Slot, gpu: int) -> str:
    if gpu in slot.free:
        return FREE
    return UNKNOWN if any(each.from_env for each in slot.assigned) and gpu in slot.gpus else NOT_OURS


def _percent(job: Job, assignment: Assignment) -> int:
    fraction = next(service.fraction for service in job.deployed if service.name == assignment.service)
    return 100 if fraction is None else int(fraction.removesuffix("%"))


def _sharing(job: Job, assignment: Assignment) -> bool:
    return any(service.name == assignment.service and service.share_with for service in job.deployed)
