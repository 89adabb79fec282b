"""The plan as plain data: what `place -o json` prints, and what its hash is taken of (guide, section 6.10)."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from gpusharing.core.placement.plan import Assignment, Outcome, PoolPlan, Refusal, ServicePlan, Slot
from gpusharing.core.placement.problems import Problem


def document(outcome: Outcome) -> dict[str, Any]:
    """Return the plan, or `{"errors": [...]}` and nothing else."""
    if isinstance(outcome, Refusal):
        return {"errors": [_problem(each) for each in outcome.errors]}
    return {
        "planHash": outcome.plan_hash,
        "leadSlot": outcome.lead_slot,
        "seesAll": list(outcome.sees_all),
        "warnings": [_problem(each) for each in outcome.warnings],
        "notices": [_problem(each) for each in outcome.notices],
        "pools": {each.name: _pool(each) for each in outcome.pools},
        "slots": {each.name: _slot(each) for each in outcome.slots},
        "services": [_service(each) for each in outcome.services],
    }


def hash_of(lead_slot: str | None, sees_all: Sequence[str], slots: Sequence[Slot]) -> str:
    """Return the SHA-256 of what is assigned, and where. What was observed (free GPUs, exports) is not in it."""
    assigned = {each.name: {"node": each.node, "assigned": _assigned(each)} for each in slots}
    canonical = {"leadSlot": lead_slot, "seesAll": list(sees_all), "slots": assigned}
    return hashlib.sha256(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _problem(problem: Problem) -> dict[str, str]:
    said = {"code": str(problem.code), "message": problem.message}
    return {**said, "hint": problem.hint} if problem.hint else said


def _pool(pool: PoolPlan) -> dict[str, Any]:
    if pool.skipped:
        return {"skipped": True}
    resolved: dict[str, Any] = {"nodesResolved": pool.nodes_resolved}
    if pool.auto:
        resolved |= {"lowerBoundNodes": pool.lower_bound, "provenMinimal": pool.proven_minimal}
    return resolved


def _slot(slot: Slot) -> dict[str, Any]:
    node = {"node": slot.node} if slot.node else {}
    return {**node, "assigned": _assigned(slot), "free": list(slot.free), "exported": list(slot.exported)}


def _assigned(slot: Slot) -> dict[str, Any]:
    return {each.service: _assignment(each) for each in slot.assigned}


def _assignment(assignment: Assignment) -> dict[str, Any]:
    """Return what is known of it; a GPU list known only at run time is `fromEnv`."""
    said: dict[str, Any] = {"indexes": list(assignment.indexes)}
    if assignment.from_env:
        said = {"fromEnv": assignment.from_env}
    if assignment.uuids:
        said["uuids"] = list(assignment.uuids)
    more = {
        "shares": assignment.shares,
        "rank": assignment.rank,
        "instances": assignment.instances,
        "firstInstance": assignment.first_instance,
    }
    return said | {key: value for key, value in more.items() if value is not None}


def _service(service: ServicePlan) -> dict[str, Any]:
    said: dict[str, Any] = {"name": service.name, "gpusNeeded": service.gpus_needed, "why": service.why}
    if service.slots:
        said["slots"] = list(service.slots)
    if service.port is not None:
        said["port"] = service.port
    return said
