"""What became of a placement: the decision about it, and how far its nodes are, as its status (guide, section 5.4)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from gpusharing.api.meta import Condition, ConditionStatus
from gpusharing.api.placementobject import MAX_PROBLEMS, PlacementProblem, PlacementStatus, PlacementSummary
from gpusharing.api.reasons import BY_WORD, ConditionType, Reason
from gpusharing.core.placement.cluster import Cluster
from gpusharing.core.placement.demand import demands
from gpusharing.core.placement.envmaps import EnvWrites
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.replanning import Decision
from gpusharing.core.placement.reserving import Progress, observed, progress

NO_WRITES = EnvWrites()
MESSAGE_MAX = 32768
PROBLEM_MAX, HINT_MAX = 4096, 1024
NAMED = 3

Judgement = tuple[ConditionStatus, Reason, str]
Conditions = dict[ConditionType, Judgement]


def placement_status(cluster: Cluster, decision: Decision, env: EnvWrites = NO_WRITES) -> PlacementStatus:
    """Return the whole status. What stands in the cluster is kept where nothing newer is known."""
    placement, previous = decision.placement, decision.placement.status
    was = {each.type: each for each in previous.conditions}
    conditions = _conditions(decision, progress(cluster, decision.services), was, env)
    return PlacementStatus(
        observed_generation=placement.generation,
        observed_rebalance=previous.observed_rebalance if decision.errors else placement.rebalance,
        plan_hash=decision.plan_hash,
        lead_node=decision.lead_node,
        conditions=list(_stamped(conditions, was, placement.generation, cluster.now)),
        summary=_summary(decision),
        pools=list(decision.pools),
        services=observed(cluster, decision.services, previous.services),
        problems=[_problem(each) for each in _problems(decision)][:MAX_PROBLEMS],
    )


def _conditions(decision: Decision, reserved: Progress, was: Mapping[str, Condition], env: EnvWrites) -> Conditions:
    conditions = {ConditionType.READY: _ready(decision)}
    conditions |= _domain(decision)
    if reserved.names:
        conditions[ConditionType.RESERVED] = _reserved(decision, reserved, was)
    troubles = [*decision.binding.lost, *decision.binding.unhealthy]
    if troubles:
        conditions[ConditionType.DEGRADED] = ("True", BY_WORD[troubles[0].code], _said(troubles))
    ready = conditions[ConditionType.READY]
    waits = conditions.get(ConditionType.RESERVED) or _written(env) or ready
    if ready[0] == "True" and waits[0] != "True":
        ready = conditions[ConditionType.READY] = waits
    if decision.errors and not decision.awaited:
        conditions[ConditionType.STALLED] = ("True", ready[1], ready[2])
    elif ready[0] != "True" and (ready[1] not in _DEGRADED or decision.moved):
        conditions[ConditionType.RECONCILING] = ("True", ready[1], ready[2])
    return conditions


def _written(env: EnvWrites) -> Judgement | None:
    """Return what keeps the ConfigMaps of `enforcement: env` from being there; None = nothing does."""
    if env.refused:
        hint = "config/components/placement-env lets the controller write ConfigMaps of placements"
        return ("False", Reason.WRITE_FAILED, f"{env.refused}. hint: {hint}.")
    return ("Unknown", Reason.PLANNING, "The ConfigMaps of its services are being written.") if env.pending else None


_DEGRADED = {Reason.NODE_LOST, Reason.GPU_UNHEALTHY}


def _ready(decision: Decision) -> Judgement:
    """Return Ready, as far as it does not depend on the reservations."""
    binding = decision.binding
    if decision.errors:
        return _refused(decision)
    if binding.conflicts:
        return ("False", Reason.RESERVATION_CONFLICT, _said(binding.conflicts))
    if binding.lost:
        return ("False", Reason.NODE_LOST, _said(binding.lost))
    if binding.unhealthy:
        return ("False", Reason.GPU_UNHEALTHY, _said(binding.unhealthy))
    summary = _summary(decision)
    return ("True", Reason.ACTIVE, f"{summary.services} services have their GPUs on {summary.nodes} node(s).")


def _refused(decision: Decision) -> Judgement:
    """Return why there is no plan, or no new one."""
    said = _said(decision.errors)
    if any(each.assignments for each in decision.services):
        said += " The previous plan keeps running."
    if any(each.code.invalid for each in decision.errors):
        return ("False", Reason.INVALID, said)
    if decision.awaited:
        names = ", ".join(decision.awaited[:NAMED]) + (", ..." if len(decision.awaited) > NAMED else "")
        return ("Unknown", Reason.PLANNING, f"No report of their GPUs yet: {names}. So far: {said}")
    for code, reason in _OF_ITS_OWN.items():
        if any(each.code == code for each in decision.errors):
            return ("False", reason, said)
    return ("False", Reason.UNPLACEABLE, said)


_OF_ITS_OWN = {Code.TOO_MANY_NAMES: Reason.TOO_MANY_NAMES, Code.QUOTA_EXCEEDED: Reason.QUOTA_EXCEEDED}


def _domain(decision: Decision) -> Conditions:
    """Return Valid and Placed."""
    ready = _ready(decision)
    if ready[1] is Reason.INVALID:
        return {ConditionType.VALID: ready}
    valid: Conditions = {ConditionType.VALID: ("True", Reason.VALID, "Nothing is wrong with the spec.")}
    if decision.errors:
        return {**valid, ConditionType.PLACED: ready}
    summary = _summary(decision)
    said = f"{summary.services} services are placed on {summary.nodes} node(s)."
    return {**valid, ConditionType.PLACED: ("True", Reason.PLACED, said)}


def _reserved(decision: Decision, reserved: Progress, was: Mapping[str, Condition]) -> Judgement:
    said = f"{reserved.active} of {reserved.names} resource names are active"
    if reserved.complete:
        return ("True", Reason.ACTIVE, f"{said}.")
    before, previous = was.get(ConditionType.RESERVED), decision.placement.status
    same = not decision.moved and previous.plan_hash == decision.plan_hash
    if reserved.uncertain and same and before is not None and before.status == "True":
        return ("True", Reason.ACTIVE, before.message)  # unknown is as it was: others may change the node's spec
    nodes = ", ".join(reserved.waiting[:NAMED]) + (", ..." if len(reserved.waiting) > NAMED else "")
    return ("False", Reason.RESERVING, f"{said}; waiting for {nodes}. A reservation takes 10-25 s by design.")


def _summary(decision: Decision) -> PlacementSummary:
    spec = decision.placement.spec
    wanted = demands(spec) if spec is not None else ()
    return PlacementSummary(
        gpus_needed=sum(each.gpus_needed for each in wanted),
        gpus_free=sum(len(slot.free) for pool in decision.pools for slot in pool.slots),
        nodes=len({each.node_name for service in decision.services for each in service.assignments}),
        services=len(wanted),
    )


def _problems(decision: Decision) -> Iterator[Problem]:
    yield from decision.errors
    yield from decision.binding.conflicts
    yield from decision.binding.lost
    yield from decision.binding.unhealthy
    yield from decision.remarks


def _problem(problem: Problem) -> PlacementProblem:
    return PlacementProblem(code=problem.code, message=problem.message[:PROBLEM_MAX], hint=problem.hint[:HINT_MAX])


def _said(problems: Sequence[Problem]) -> str:
    """Return the sentences of the problems, each with its hint."""
    return " ".join(f"{each.message}. hint: {each.hint}." if each.hint else f"{each.message}." for each in problems)


def _stamped(
    conditions: Conditions, was: Mapping[str, Condition], generation: int, now: datetime
) -> Iterator[Condition]:
    for kind, (status, reason, message) in conditions.items():
        before = was.get(kind)
        same = before is not None and before.status == status
        yield Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message[:MESSAGE_MAX],
            observed_generation=generation,
            last_transition_time=before.last_transition_time if same and before else now.replace(microsecond=0),
        )
