"""One pool, from its demands to its slots: steps 2 to 6 of the guide's section 6.1."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpusharing.api.placement import Algorithm, Enforcement, GpuOrder, Inventory, Pool, Service
from gpusharing.core.placement import capacity
from gpusharing.core.placement.advice import idle_gpus
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.fields import pool_problems, service_problems
from gpusharing.core.placement.layout import lay_out
from gpusharing.core.placement.packs import Packed, pack
from gpusharing.core.placement.pieces import Job, Piece, job_of
from gpusharing.core.placement.pins import list_problems, pin_problems, spread_problems
from gpusharing.core.placement.plan import Need, PoolPlan, Search, Slot
from gpusharing.core.placement.pools import Space, space
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.request import Bound
from gpusharing.core.placement.sizing import demand_problems, overlap_problems, size_problems
from gpusharing.core.placement.skips import as_the_reference_does, unknown_size
from gpusharing.core.placement.slots import Numbered, numbered, slots
from gpusharing.core.placement.stickiness import bind, giving_way

# Resource names that a node takes (guide, section 8.1).
MAX_NAMES = 32


@dataclass(frozen=True, slots=True)
class Task:
    """One pool and all that bears on it."""

    pool: Pool
    # its services and what they demand, in declaration order
    services: tuple[Service, ...]
    demands: tuple[Demand, ...]
    order: GpuOrder
    algorithm: Algorithm
    lead: Demand | None
    bound: tuple[Bound, ...]
    compat: bool
    enforced_by: Enforcement
    # an error of a name keeps it from being planned; its fields and pins are checked all the same
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the pool."""

    plan: PoolPlan
    slots: tuple[Slot, ...] = ()
    problems: tuple[Problem, ...] = ()
    space: Space | None = None
    # by a service's declaration order, what of it is on which node
    own: Mapping[int, Sequence[tuple[int, Piece]]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that no later pool may use."""
        return tuple(slot.node for slot in self.slots if slot.node)


def plan_pool(task: Task, inventory: Inventory | None, used: Sequence[str]) -> Result:
    """Plan one pool, on nodes that no earlier pool of the placement uses."""
    pool = task.pool
    kept = {each.node for each in task.bound}
    room = space(pool, task.order, inventory, used=used, kept=kept)
    problems = [*pool_problems(pool), *_service_problems(task, room)]
    nothing = PoolPlan(pool.name, auto=pool.nodes == "auto", skipped=True)
    if problems or task.stopped:
        return Result(nothing, problems=tuple(problems))
    skip = as_the_reference_does(pool, task.demands) if task.compat else None
    if skip and skip.code == Code.POOL_SKIPPED:
        return _skipped(task, room, nothing, skip)
    problems = [each for each in (skip,) if each]
    problems += [*demand_problems(pool, task.demands), *size_problems(pool, room)]
    if room is not None and not problems:
        problems += overlap_problems(pool, task.demands, room)
        problems += [each for each in (capacity.oversubscribed(task.demands, room),) if each]
    if room is None and not problems:
        problems = [unknown_size(pool)]
    if room is None or problems:
        return Result(nothing, problems=tuple(problems))
    return _packed(task, room)


def _service_problems(task: Task, room: Space | None) -> Iterator[Problem]:
    owners = [each for each in task.demands if each.owner]
    for service, demand in zip(task.services, task.demands, strict=True):
        yield from service_problems(service, task.pool)
        yield from spread_problems(service, demand, task.pool)
        others = [each for each in owners if each.order != demand.order]
        yield from list_problems(service, demand, task.pool)
        yield from pin_problems(demand, task.pool, room, others)


def _packed(task: Task, room: Space) -> Result:
    """Pack the pool. What takes the rest keeps what it is bound to, unless the others do not find room without that."""
    owners = [each for each in task.demands if each.gpus_needed]
    leftover = [each for each in task.demands if each.leftover is not None]
    lead = task.lead.name if task.lead else None
    jobs = bind([job_of(each, room, lead) for each in (*owners, *leftover)], task.bound, room)
    needs = [job for job in jobs if job.demand.gpus_needed]
    rest = [job for job in jobs if job.demand.leftover is not None and job.held]
    if rest:
        around = _planned(task, room, [*needs, *rest], least=0)
        if not around.problems:
            return around
        room = giving_way(room, rest)
    return _planned(task, room, needs, least=max((each.leftover or 0 for each in leftover), default=0))


def _planned(task: Task, room: Space, jobs: Sequence[Job], least: int) -> Result:
    """Pack, lay out, hand out what is left. A searched plan that then fails gives way to first fit decreasing."""
    packed = pack(jobs, room, task.algorithm, least)
    result = _laid_out(task, room, packed)
    if result.problems and packed.searched and not packed.ffd_unplaced:
        plain = _laid_out(task, room, pack(jobs, room, "ffd", least))
        return result if plain.problems else plain
    return result


def _laid_out(task: Task, room: Space, packed: Packed) -> Result:
    search = _search(task, room, packed)
    plan = PoolPlan(task.pool.name, auto=room.auto, lower_bound=packed.lower_bound, search=search)
    if packed.unplaced:
        unplaced = sorted(packed.unplaced, key=lambda job: job.demand.order)
        return Result(plan, problems=(capacity.does_not_fit(task.demands, unplaced, room),))
    there = numbered(packed.packing, task.lead, task.bound)
    made = slots(there, task.demands, room)
    plan = PoolPlan(
        task.pool.name,
        auto=room.auto,
        nodes_resolved=len(made),
        lower_bound=packed.lower_bound if room.auto else None,
        proven_minimal=packed.proven_minimal if room.auto else None,
        search=search,
    )
    leftover = next((each for each in task.demands if each.leftover is not None), None)
    problems = [*_nothing_left(leftover, made), *_too_many_names(task, made, there)]
    return Result(plan, made, tuple(problems), room, packed.packing.by_service())


def _search(task: Task, room: Space, packed: Packed) -> Search:
    own = packed.packing.by_service()
    return Search(
        algorithm=task.algorithm,
        needs=tuple(Need(each.name, each.need_text) for each in task.demands if each.gpus_needed),
        total=capacity.total(task.demands, room.replicas),
        node_size=room.largest,
        ffd_nodes=packed.ffd_nodes,
        ffd_unplaced=tuple(job.demand.name for job in packed.ffd_unplaced),
        searched=packed.searched,
        trials=packed.trials,
        limit_reached=packed.limit_reached,
        idle=sum(idle_gpus(job.demand, own.get(job.demand.order, ()), room) for job in packed.jobs),
    )


def _nothing_left(leftover: Demand | None, made: Sequence[Slot]) -> Iterator[Problem]:
    if leftover is None or leftover.leftover is None:
        return
    left = sum(len(each.indexes) for slot in made if (each := slot.of(leftover.name)))
    if left < leftover.leftover:
        message = (
            f"service '{leftover.name}' takes what the others leave, at least {leftover.leftover} GPU(s), but pool "
            f"'{leftover.pool}' leaves {left}"
        )
        yield Problem(Code.NOTHING_LEFT, message, services=(leftover.name,), pool=leftover.pool)


def _too_many_names(task: Task, made: Sequence[Slot], there: Sequence[Numbered]) -> Iterator[Problem]:
    """Yield an error for every slot whose node would have more resource names than it takes."""
    if task.enforced_by != "reserve":
        return
    for slot, here in zip(made, there, strict=True):
        names = len(slot.assigned) + here.node.names
        if slot.assigned and names > MAX_NAMES:
            message = (
                f"{slot.name} needs {names} resource names, with those of other placements; a node takes at most "
                f"{MAX_NAMES}"
            )
            services = tuple(each.service for each in slot.assigned)
            yield Problem(Code.TOO_MANY_NAMES, message, services=services, pool=task.pool.name)


def _skipped(task: Task, room: Space | None, nothing: PoolPlan, notice: Problem) -> Result:
    """Skip the pool; explicit lists are exported all the same, on every node that has them (the reference, R28)."""
    pinned = [each for each in task.demands if each.owner and (each.pins or each.uuid_pins)]
    if room is None or not pinned or any(each.exclusive for each in task.demands):
        return Result(nothing, problems=(notice,))
    overlaps = tuple(overlap_problems(task.pool, pinned, room, everywhere=True))
    jobs = [job_of(each, room, None) for each in pinned]
    there = tuple(_with_lists(jobs, room))
    own = {job.demand.order: _on(job, there) for job in jobs}
    nowhere = [job for job in jobs if not own[job.demand.order]]
    if overlaps or nowhere:
        unplaced = () if overlaps else (capacity.does_not_fit(pinned, nowhere, room),)
        return Result(nothing, problems=(notice, *overlaps, *unplaced))
    return Result(nothing, slots(there, pinned, room), (notice,), room, own)


def _with_lists(jobs: Sequence[Job], room: Space) -> Iterator[Numbered]:
    """Yield the pool's nodes on which the lists that are meant for them are free."""
    for number, node in enumerate([node for node in room.nodes if node.takes_more][: room.cap]):
        pieces = tuple(job.pieces[0] for job in jobs if job.only in {None, node.at})
        if lay_out(node, pieces, room) is not None:
            yield Numbered(number, node, pieces)


def _on(job: Job, there: Sequence[Numbered]) -> list[tuple[int, Piece]]:
    return [(here.node.at, job.pieces[0]) for here in there if job.pieces[0] in here.pieces]
