"""One node, decided: who owns it, what is to be written, how far it is. The controller and `plan` both ask here."""

from collections.abc import Iterable, Mapping

from gpusharing.api.node import GpuNodeStatus
from gpusharing.core.desired_state import Outcome, Policy, assign
from gpusharing.core.matching import Node
from gpusharing.core.plan import NodePlan, Situation, plan_node
from gpusharing.core.progress import by_allocatable, by_report, lacking
from gpusharing.core.records import Record
from gpusharing.core.status import NodeState


def holds(policy: Policy, record: Record | None) -> bool:
    """Whether the record was written for this very policy, not for one deleted under the same name."""
    return record is not None and record.ours and record.policy == policy.name and record.policy_uid in {"", policy.uid}


def holder_of(record: Record | None, policies: Mapping[str, Policy]) -> Policy | None:
    """Return the policy that the record was written for, if it still exists."""
    policy = policies.get(record.policy) if record is not None else None
    return policy if policy is not None and holds(policy, record) else None


def evaluate(
    node: Node,
    ranked: Iterable[Policy],
    *,
    holder: Policy | None,
    record: Record | None,
    report: GpuNodeStatus | None,
    situation: Situation,
) -> NodeState:
    """Decide about one node from what is known of it."""
    assignment = assign(node, ranked, holder=holder, reports_gpus=report is not None and bool(report.gpus))
    plan = plan_node(node, assignment, record, situation)
    owner = assignment.policy
    if assignment.outcome is not Outcome.OWNED or owner is None or owner.rendered is None:
        return NodeState(node.name, assignment, plan)
    if situation.layout == "per-node":
        verdict = by_report(owner.rendered, report)
    else:
        verdict = by_allocatable(owner.rendered, node)
    return NodeState(node.name, assignment, plan, verdict, lacking(owner.rendered, node, report))


def plan_as_if_enforced(
    node: Node,
    ranked: Iterable[Policy],
    policy: Policy,
    *,
    record: Record | None,
    report: GpuNodeStatus | None,
    situation: Situation,
) -> NodePlan | None:
    """Return what a dry-run policy would do to the node if it were enforced; None = it would not own it.

    `policy` is the enforced copy (`as_enforced`); `ranked` may hold the original, which is left out.
    """
    candidates = sorted([*(other for other in ranked if other.name != policy.name), policy], key=lambda p: p.rank)
    other = next((other for other in candidates if other is not policy and holds(other, record)), None)
    assignment = assign(node, candidates, holder=other, reports_gpus=report is not None and bool(report.gpus))
    first = next((rival for rival in candidates if rival.enforced and rival.name in assignment.matched), None)
    if first is not policy and not holds(policy, record):
        return None
    return plan_node(node, assignment, record, situation)
