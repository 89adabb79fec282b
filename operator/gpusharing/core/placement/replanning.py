"""One placement of a cluster, planned anew: what stays, what moves, what is wrong. Nothing is released by mistake."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from gpusharing.api import placementrules as rules
from gpusharing.api.placement import Inventory, PlacementSpec, Service
from gpusharing.api.placementobject import PlacedPool, PlacedService, PlacedSlot, StoredAssignment
from gpusharing.core.matching import Selector
from gpusharing.core.placement.binding import Binding, bind
from gpusharing.core.placement.cluster import Cluster
from gpusharing.core.placement.demand import Demand, demands
from gpusharing.core.placement.holders import holders
from gpusharing.core.placement.inventory import MANY_NODES, inventory
from gpusharing.core.placement.plan import Assignment, Plan, Slot
from gpusharing.core.placement.planner import place
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.quota import quota_problem
from gpusharing.core.placement.request import Request
from gpusharing.core.placement.resourcenames import named_by_rank, resource_name
from gpusharing.core.placement.stored import Placement, demand_hash


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a placement. With errors there is no new plan, and the stored one stays."""

    placement: Placement
    services: tuple[PlacedService, ...]
    pools: tuple[PlacedPool, ...]
    plan_hash: str = ""
    lead_node: str = ""
    errors: tuple[Problem, ...] = ()
    # warnings and notices of the plan
    remarks: tuple[Problem, ...] = ()
    binding: Binding = field(default_factory=Binding)
    # whether the plan is a new one
    moved: bool = False
    # nodes that it may be planned on once they have reported
    awaited: tuple[str, ...] = ()
    # when time alone may change something; None = never
    look_again: timedelta | None = None


def replan(cluster: Cluster, placement: Placement) -> Decision:
    """Plan a placement on what the others leave. Deterministic; planned twice, nothing changes."""
    spec = placement.spec
    if spec is None:
        return _refused(placement, placement.problems, Binding())
    wanted = demands(spec)
    held = holders(cluster, placement)
    binding = bind(cluster, placement, wanted, held)
    nodes = {each.node for each in binding.bound}
    request = Request(spec, bound=binding.bound, namespace=placement.namespace)
    if _all_bound(wanted, binding):
        known = inventory(cluster, placement, spec, held, nodes, only_bound=True)
        outcome = place(request, known)
        if isinstance(outcome, Plan) and _is_settled(placement, wanted, outcome):
            return _kept(cluster, placement, wanted, known, outcome, binding)
    outcome = place(request, inventory(cluster, placement, spec, held, nodes))
    errors = (*_in_a_cluster(spec), *(() if isinstance(outcome, Plan) else _counted(cluster, outcome.errors)))
    if errors or not isinstance(outcome, Plan):
        awaited = () if any(each.code.invalid for each in errors) else tuple(_awaited(cluster, spec))
        return _refused(placement, errors, binding, awaited)
    return _planned(cluster, placement, spec, wanted, outcome, binding)


def _in_a_cluster(spec: PlacementSpec) -> Iterator[Problem]:
    """Yield what holds in a cluster only (guide, section 5.3)."""
    for service in spec.services:
        if service.share and service.deploy and spec.enforcement == "reserve":
            message = rules.OF_SERVICE.format(service=service.name, sentence=rules.SHARE_UNDER_RESERVE)
            yield Problem(Code.INVALID_FIELDS, message, services=(service.name,))


def _counted(cluster: Cluster, errors: Sequence[Problem]) -> Iterator[Problem]:
    """Yield the errors; where nodes may have been passed over, those that count them say so."""
    for each in errors:
        if each.code == Code.UNPLACEABLE and len(cluster.nodes) > MANY_NODES:
            yield replace(each, message=f"{each.message} (of nodes in the same state only the first are counted)")
        else:
            yield each


def _all_bound(wanted: Sequence[Demand], binding: Binding) -> bool:
    """Whether every service that has GPUs may keep them."""
    return binding.services >= {each.name for each in wanted if each.owner or each.share_with} and bool(binding.bound)


def _is_settled(placement: Placement, wanted: Sequence[Demand], plan: Plan) -> bool:
    """Whether the stored plan is the plan: then there is nothing to plan, and nothing in the cluster keeps it off."""
    if any(each.share and placement.spec is not None and placement.spec.enforcement == "reserve" for each in wanted):
        return False
    if placement.generation != placement.status.observed_generation:
        return False  # what is said of the pools may be news
    stored = {(name, each.node_name): list(each.indexes) for name, each in placement.assignments()}
    planned = {(each.service, slot.node): list(each.indexes) for slot in plan.slots for each in slot.assigned}
    return placement.planned and stored == planned


def _refused(
    placement: Placement, errors: Sequence[Problem], binding: Binding, awaited: tuple[str, ...] = ()
) -> Decision:
    """Return the stored plan as it is, but for what pods took."""
    status = placement.status
    services = tuple(
        each.model_copy(update={"assignments": []}) if each.name in binding.given_back else each
        for each in status.services
    )
    return Decision(
        placement,
        services,
        tuple(status.pools),
        plan_hash=status.plan_hash,
        lead_node=status.lead_node,
        errors=tuple(errors),
        binding=binding,
        awaited=awaited,
    )


def _kept(
    cluster: Cluster,
    placement: Placement,
    wanted: Sequence[Demand],
    known: Inventory,
    plan: Plan,
    binding: Binding,
) -> Decision:
    """Return the stored plan, in the words of today's spec: all of it holds, whatever else there would be to take."""
    status = placement.status
    stored = {each.name: each for each in status.services}
    indexes = {(each.service, each.node): list(each.indexes) for each in binding.bound}
    services = tuple(
        PlacedService(
            name=each.name,
            gpus_needed=each.gpus_needed,
            demand_hash=demand_hash(each),
            assignments=[
                assignment.model_copy(update={"indexes": indexes[each.name, assignment.node_name]})
                for assignment in (stored[each.name].assignments if each.name in binding.services else ())
            ],
        )
        for each in wanted
    )
    return Decision(
        placement,
        _exported(placement, plan, binding, services),
        tuple(_with_what_is_free(placement, known, services)),
        plan_hash=status.plan_hash,
        lead_node=_lead_node(plan),
        remarks=(*plan.warnings, *plan.notices),
        binding=binding,
        look_again=_look_again(cluster, binding),
    )


def _with_what_is_free(
    placement: Placement, known: Inventory, services: Sequence[PlacedService]
) -> Iterator[PlacedPool]:
    """Yield the stored pools with what is free on their nodes now, as far as the nodes are known."""
    own = {(each.node_name, index) for service in services for each in service.assignments for index in each.indexes}
    kept = {pool.name: set(pool.reserved) for pool in placement.spec.pools} if placement.spec else {}
    free = {
        node.name: [
            gpu.index
            for gpu in node.gpus
            if gpu.healthy and not gpu.mig_mode and not gpu.in_use and gpu.reserved_by is None
            if (node.name, gpu.index) not in own
        ]
        for node in known.nodes
    }
    for pool in placement.status.pools:
        reserved = kept.get(pool.name, set())
        slots = [
            slot.model_copy(update={"free": [at for at in free[slot.node_name] if at not in reserved]})
            if slot.node_name in free
            else slot
            for slot in pool.slots
        ]
        yield pool.model_copy(update={"slots": slots})


def _planned(
    cluster: Cluster, placement: Placement, spec: PlacementSpec, wanted: Sequence[Demand], plan: Plan, binding: Binding
) -> Decision:
    services = tuple(_services(placement, spec, wanted, plan))
    if spec.enforcement == "reserve" and (problem := _over_quota(cluster, placement, services)):
        return _refused(placement, [problem], binding)
    return Decision(
        placement,
        _exported(placement, plan, binding, services),
        tuple(_pools(plan)),
        plan_hash=plan.plan_hash,
        lead_node=_lead_node(plan),
        remarks=(*plan.warnings, *plan.notices),
        binding=binding,
        moved=_places(services) != _places(placement.status.services),
        look_again=_look_again(cluster, binding),
    )


def _services(
    placement: Placement, spec: PlacementSpec, wanted: Sequence[Demand], plan: Plan
) -> Iterator[PlacedService]:
    declared = {each.name: each for each in spec.services}
    for demand, planned in zip(wanted, plan.services, strict=True):
        service = declared[demand.name]
        places = [(slot, each) for slot in plan.slots if (each := slot.of(demand.name)) is not None]
        yield PlacedService(
            name=demand.name,
            gpus_needed=planned.gpus_needed,
            demand_hash=demand_hash(demand),
            assignments=[_stored(placement, spec, service, slot, each, places) for slot, each in places],
        )


def _stored(
    placement: Placement,
    spec: PlacementSpec,
    service: Service,
    slot: Slot,
    assignment: Assignment,
    places: Sequence[tuple[Slot, Assignment]],
) -> StoredAssignment:
    ranked = named_by_rank(service)
    count = len(assignment.indexes)
    if not ranked:  # pods are interchangeable: one for each instance
        instances = sum(each.instances or 1 for _, each in places)
        count = sum(len(each.indexes) for _, each in places) // instances
    rank = assignment.rank if ranked else None
    reserved = spec.enforcement == "reserve" and bool(assignment.uuids)
    beside = {index for each in slot.assigned if each.service != service.name for index in each.indexes}
    return StoredAssignment(
        slot=slot.name,
        node_name=slot.node,
        rank=assignment.rank,
        indexes=list(assignment.indexes),
        uuids=list(assignment.uuids),
        resource=resource_name(placement.namespace, placement.name, service.name, rank) if reserved else "",
        exclusive=service.fraction is None and not beside.intersection(assignment.indexes),
        count=count,
    )


def _exported(
    placement: Placement, plan: Plan, binding: Binding, services: tuple[PlacedService, ...]
) -> tuple[PlacedService, ...]:
    """Return the services with whether `enforcement: env` names their GPUs to them (the sole-tenant rule, 6.7).

    What was named stays so as long as the service stays: others on its node come and go.
    """
    if placement.spec is None or placement.spec.enforcement != "env":
        return services
    named = {(name, slot.node) for slot in plan.slots for name in slot.exported}
    stored = placement.assignments()
    named |= {(name, each.node_name) for name, each in stored if each.exported and name in binding.services}
    return tuple(
        service.model_copy(
            update={
                "assignments": [
                    each.model_copy(update={"exported": (service.name, each.node_name) in named})
                    for each in service.assignments
                ]
            }
        )
        for service in services
    )


def _pools(plan: Plan) -> Iterator[PlacedPool]:
    for pool in plan.pools:
        yield PlacedPool(
            name=pool.name,
            nodes_resolved=pool.nodes_resolved,
            lower_bound_nodes=pool.lower_bound,
            proven_minimal=pool.proven_minimal,
            slots=[
                PlacedSlot(slot=slot.name, node_name=slot.node, gpus=slot.size, free=list(slot.free))
                for slot in plan.slots
                if slot.pool == pool.name
            ],
        )


def _lead_node(plan: Plan) -> str:
    return next((slot.node for slot in plan.slots if slot.name == plan.lead_slot), "")


def _over_quota(cluster: Cluster, placement: Placement, services: Sequence[PlacedService]) -> Problem | None:
    """Return what the namespace's quota has against GPUs that the placement does not have yet."""
    needs = _gpus(services)
    if needs <= _gpus(placement.status.services):
        return None
    others = [other for other in cluster.others(placement) if other.namespace == placement.namespace]
    held = frozenset[str]().union(*(_gpus(other.status.services) for other in others))
    quotas = [quota for quota in cluster.quotas if quota.namespace == placement.namespace]
    return quota_problem(placement.namespace, quotas, len(needs), len(held))


def _gpus(services: Sequence[PlacedService]) -> frozenset[str]:
    """Return the GPUs that are reserved by a plan."""
    assignments = [each for service in services for each in service.assignments if each.resource]
    return frozenset(uuid for each in assignments for uuid in each.uuids)


def _places(services: Sequence[PlacedService]) -> list[tuple[str, str, tuple[str, ...], tuple[int, ...], str]]:
    return [
        (service.name, each.node_name, tuple(each.uuids), tuple(each.indexes), each.resource)
        for service in services
        for each in service.assignments
    ]


def _awaited(cluster: Cluster, spec: PlacementSpec) -> Iterator[str]:
    """Yield nodes of the placement's pools from which no plugin has reported GPUs yet."""
    selectors = [Selector.of(pool.node_selector) if pool.node_selector else Selector() for pool in spec.pools]
    for name, seen in sorted(cluster.nodes.items()):
        silent = seen.gpu_node is None or not (seen.gpu_node.ready or seen.gpu_node.gpus)
        takes_pods = seen.reservable and seen.node.ready and seen.node.schedulable
        if silent and takes_pods and any(selector.matches(seen.node.labels) for selector in selectors):
            yield name


def _look_again(cluster: Cluster, binding: Binding) -> timedelta | None:
    """Return when the first node on which something is bound counts as lost."""
    waits = [wait for each in binding.bound if (wait := cluster.lost_in(each.node))]
    return min(waits, default=None)
