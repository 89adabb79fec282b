"""Why a node has this config: every policy considered, which selector term failed, who won and by which rule."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusharing.core.desired_state import Assignment, Outcome, Policy, assign
from gpusharing.core.matching import Node, excluded_by, is_gpu_node


@dataclass(frozen=True, slots=True)
class Considered:
    """What one policy had to do with the node."""

    policy: str
    priority: int
    mode: str
    matches: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer."""

    node: str
    gpu_node: bool
    outcome: Outcome
    winner: str
    rule: str
    considered: tuple[Considered, ...]
    config_name: str
    config_text: str


def explain(node: Node, ranked: Sequence[Policy], *, holder: Policy | None, reports_gpus: bool) -> Explanation:
    """Explain the node's assignment; the decision is the very one that the controller takes."""
    assignment = assign(node, ranked, holder=holder, reports_gpus=reports_gpus)
    gpu_node = is_gpu_node(node, reports_gpus=reports_gpus)
    winner = assignment.policy
    return Explanation(
        node=node.name,
        gpu_node=gpu_node,
        outcome=assignment.outcome,
        winner=winner.name if winner else "",
        rule=_rule(node, assignment, [policy for policy in ranked if policy.name in assignment.matched], gpu_node),
        considered=tuple(_considered(node, policy, assignment, gpu_node) for policy in ranked),
        config_name=winner.rendered.name if winner and winner.rendered else "",
        config_text=winner.rendered.text if winner and winner.rendered else "",
    )


def _considered(node: Node, policy: Policy, assignment: Assignment, gpu_node: bool) -> Considered:
    priority = policy.spec.priority if policy.spec else 0
    mode = policy.spec.mode if policy.spec else "invalid"
    failing = policy.selector.failing(node.labels) if policy.selector else ()
    matches = gpu_node and policy.selector is not None and not failing
    if policy.spec is None:
        why = f"its spec is invalid: {policy.problems[0]}"
    elif not gpu_node:
        why = f"it may not have the node: {excluded_by(node) or _NO_GPU}"
    elif failing:
        why = "does not match: " + "; ".join(
            f"{term} (the node has {node.labels.get(term.key, 'no such label')})" for term in failing
        )
    elif policy is assignment.policy:
        why = "owns the node" if policy.enforced else "holds the node, and in mode dry-run keeps it as it is"
    elif not policy.enforced:
        why = "matches, but mode dry-run takes no node"
    elif assignment.outcome is not Outcome.OWNED:
        why = "matches, but the node is left as it is"
    elif policy.name in assignment.tied:
        why = "matches, and ties on priority; the older policy wins"
    else:
        why = "matches, and loses by rank"
    return Considered(policy.name, priority, mode, matches, why)


_NO_GPU = "no label and no report says that it has a GPU"


def _rule(node: Node, assignment: Assignment, matching: Sequence[Policy], gpu_node: bool) -> str:
    winner = assignment.policy
    match assignment.outcome:
        case Outcome.HANDS_OFF:
            return "the label gpusharing.io/skip=true asks to leave the node as it is"
        case Outcome.FROZEN:
            state = "in mode dry-run" if winner and winner.spec else "invalid"
            return f"the policy that holds the node is {state}, so the node stays as it is"
        case Outcome.UNCLAIMED:
            return "no enforced policy matches" if gpu_node else excluded_by(node) or _NO_GPU
    rivals = [policy for policy in matching if policy.enforced and policy is not winner]
    if winner is None or winner.spec is None or not rivals:
        return "the only enforced policy that matches"
    second = rivals[0]
    if second.spec is not None and second.spec.priority != winner.spec.priority:
        return f"highest priority: {winner.spec.priority} before {second.spec.priority} of {second.name}"
    if second.created != winner.created:
        return f"equal priority as {second.name}, and older"
    return f"equal priority and age as {second.name}, and first by name"
