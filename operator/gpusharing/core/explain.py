"""Why a node has this config: every policy considered, which selector term failed, who won and by which rule."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusharing.core.desired_state import Outcome, Policy, assign
from gpusharing.core.matching import Node, is_gpu_node


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
        rule=_rule(assignment.outcome, winner, assignment.matched, ranked, gpu_node),
        considered=tuple(_considered(node, policy, winner, assignment.tied, gpu_node) for policy in ranked),
        config_name=winner.rendered.name if winner and winner.rendered else "",
        config_text=winner.rendered.text if winner and winner.rendered else "",
    )


def _considered(node: Node, policy: Policy, winner: Policy | None, tied: tuple[str, ...], gpu_node: bool) -> Considered:
    priority = policy.spec.priority if policy.spec else 0
    mode = policy.spec.mode if policy.spec else "invalid"
    failing = policy.selector.failing(node.labels) if policy.selector else ()
    matches = gpu_node and policy.selector is not None and not failing
    if policy.spec is None:
        why = f"its spec is invalid: {policy.problems[0]}"
    elif not gpu_node:
        why = "the node is no GPU node"
    elif failing:
        why = "does not match: " + "; ".join(
            f"{term} (the node has {node.labels.get(term.key, 'no such label')})" for term in failing
        )
    elif winner is policy:
        why = "owns the node"
    elif not policy.enforced:
        why = "matches, but mode dry-run takes no node"
    elif policy.name in tied:
        why = "matches, and ties on priority; the older policy wins"
    else:
        why = "matches, and loses by rank"
    return Considered(policy.name, priority, mode, matches, why)


def _rule(
    outcome: Outcome, winner: Policy | None, matched: tuple[str, ...], ranked: Sequence[Policy], gpu_node: bool
) -> str:
    match outcome:
        case Outcome.HANDS_OFF:
            return "the label gpusharing.io/skip=true asks to leave the node as it is"
        case Outcome.FROZEN:
            state = "in mode dry-run" if winner and winner.spec else "invalid"
            return f"the policy that holds the node is {state}, so the node stays as it is"
        case Outcome.UNCLAIMED:
            return "no enforced policy matches" if gpu_node else "no label and no report says that it has a GPU"
    if winner is None or winner.spec is None or len(matched) == 1:
        return "the only enforced policy that matches"
    second = next(policy for policy in ranked if policy.name == matched[1])
    if second.spec is not None and second.spec.priority != winner.spec.priority:
        return f"highest priority: {winner.spec.priority} before {second.spec.priority} of {second.name}"
    if second.created != winner.created:
        return f"equal priority as {second.name}, and older"
    return f"equal priority and age as {second.name}, and first by name"
