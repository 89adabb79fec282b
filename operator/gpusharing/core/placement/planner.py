"""`place`: a request and an inventory in, a plan or everything that is wrong out. Pure, total, deterministic."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpusharing.api.placement import Inventory, Pool, Service
from gpusharing.core.placement import advice
from gpusharing.core.placement.demand import Demand, demands
from gpusharing.core.placement.document import hash_of
from gpusharing.core.placement.fields import service_problems
from gpusharing.core.placement.onepool import Result, Task, plan_pool
from gpusharing.core.placement.pins import list_problems
from gpusharing.core.placement.plan import Outcome, Plan, Refusal, ServicePlan
from gpusharing.core.placement.ports import port_problems
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.references import reference_problems, stopped_pools
from gpusharing.core.placement.request import Request
from gpusharing.core.placement.whereabouts import where, why


def place(request: Request, inventory: Inventory | None = None) -> Outcome:
    """Plan every pool of the request (guide, section 6); None = offline, on nodes as the pools describe them."""
    wanted = demands(request.spec)
    deployed = [each for each in request.spec.services if each.deploy]
    pairs = list(zip(deployed, wanted, strict=True))
    problems = [*reference_problems(request, wanted), *_homeless(pairs)]
    stopped = stopped_pools(request.spec, problems)
    unclear = list(_inventory_problems(inventory))
    results = [] if unclear else _plan_pools(request, pairs, inventory, stopped)
    problems += [*unclear, *(problem for result in results for problem in result.problems)]
    slots = tuple(slot for result in results for slot in result.slots)
    lead_slot, places = where(request.spec.lead, wanted, slots)
    problems += port_problems(wanted, places, request.enforced_by)
    errors = tuple(each for each in problems if each.code.severity == "error")
    if errors:
        return Refusal(errors, tuple(result.plan for result in results))
    sees_all = tuple(each.name for each in wanted if each.share)
    return Plan(
        plan_hash=hash_of(lead_slot, sees_all, slots),
        lead_slot=lead_slot,
        sees_all=sees_all,
        pools=tuple(result.plan for result in results),
        slots=slots,
        services=tuple(_service(each, request.spec.lead, places[each.name], results) for each in wanted),
        warnings=tuple(_warnings(request.spec.pools, pairs, results)),
        notices=tuple(each for each in problems if each.code.severity == "notice"),
    )


def _homeless(pairs: Sequence[tuple[Service, Demand]]) -> Iterator[Problem]:
    """Yield what is wrong with services that are in no pool; the others are looked at with theirs."""
    for service, demand in pairs:
        if not demand.pool:
            yield from service_problems(service, None)
            yield from list_problems(service, demand, None)


def _inventory_problems(inventory: Inventory | None) -> Iterator[Problem]:
    """Yield names, indexes and UUIDs that an inventory has twice: which of them counts, nobody can know."""
    nodes = inventory.nodes if inventory else []
    for name in _repeated([node.name for node in nodes]):
        yield Problem(Code.INVALID_DOCUMENT, f"nodes: node '{name}' is listed twice, expected once")
    for node in nodes:
        for index in _repeated([gpu.index for gpu in node.gpus]):
            message = f"nodes: GPU {index} of node '{node.name}' is listed twice, expected once"
            yield Problem(Code.INVALID_DOCUMENT, message)
    for uuid in _repeated([gpu.uuid for node in nodes for gpu in node.gpus if gpu.uuid]):
        yield Problem(Code.INVALID_DOCUMENT, f"nodes: GPU {uuid} is listed twice, expected once")


def _repeated(values: Sequence[str] | Sequence[int]) -> list[str]:
    return [str(value) for value, count in Counter(values).items() if count > 1]


def _plan_pools(
    request: Request, pairs: Sequence[tuple[Service, Demand]], inventory: Inventory | None, stopped: frozenset[str]
) -> list[Result]:
    """Plan the pools one after the other, each on what the earlier ones leave."""
    results: list[Result] = []
    used: list[str] = []
    for pool in _once(request.spec.pools):
        result = plan_pool(_task(request, pool, pairs, pool.name in stopped), inventory, used)
        results.append(result)
        used += result.nodes
    return results


def _once(pools: Sequence[Pool]) -> list[Pool]:
    """Return the pools without those whose name was used before."""
    firsts: dict[str, Pool] = {}
    for pool in pools:
        firsts.setdefault(pool.name, pool)
    return list(firsts.values())


def _task(request: Request, pool: Pool, pairs: Sequence[tuple[Service, Demand]], stopped: bool) -> Task:
    spec, compat = request.spec, request.compat is not None
    inside = [(service, demand) for service, demand in pairs if demand.pool == pool.name]
    names = {demand.name for _, demand in inside}
    return Task(
        pool=pool,
        services=tuple(service for service, _ in inside),
        demands=tuple(demand for _, demand in inside),
        order="declared" if compat else spec.gpu_order,
        algorithm="ffd" if compat else spec.algorithm,
        lead=next((demand for _, demand in inside if demand.name == spec.lead), None),
        bound=tuple(each for each in request.bound if each.service in names),
        compat=compat,
        enforced_by=request.enforced_by,
        stopped=stopped,
    )


def _service(demand: Demand, lead: str | None, slots: tuple[str, ...], results: Sequence[Result]) -> ServicePlan:
    result = next(result for result in results if result.plan.name == demand.pool)
    reason = why(demand, result.own.get(demand.order, ()), result.plan.skipped)
    return ServicePlan(
        name=demand.name,
        pool=demand.pool,
        gpus_needed=demand.gpus_needed,
        why=f"{reason}, lead" if demand.name == lead else reason,
        slots=slots,
        port=demand.port,
    )


def _warnings(
    pools: Sequence[Pool], pairs: Sequence[tuple[Service, Demand]], results: Sequence[Result]
) -> Iterator[Problem]:
    yield from advice.shared([demand for _, demand in pairs])
    for pool, result in zip(pools, results, strict=True):
        if result.space is not None and not result.plan.skipped:
            inside = [(service, demand) for service, demand in pairs if demand.pool == pool.name]
            yield from advice.of_pool(pool, inside, result.space, result.own, result.slots)
