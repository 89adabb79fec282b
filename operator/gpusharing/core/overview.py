"""The whole picture of a world: policies, nodes that are alike, and what an admin should look at."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from gpusharing.api.meta import Condition
from gpusharing.api.overview import NodeGroup, NodeOverview, OverviewProblem, PolicyOverview, StatusReport
from gpusharing.api.policy import PolicyStatus
from gpusharing.api.reasons import ConditionType, Reason
from gpusharing.core.capacity import gpu_count
from gpusharing.core.desired_state import Policy
from gpusharing.core.standing import NOT_OURS, detail, standing
from gpusharing.core.status import Tally, sharing_words
from gpusharing.core.world import World

# What a tally calls a node → the reason word. Nodes that only have not reported yet are no problem.
_PROBLEMS = {
    Reason.FOREIGN_CONFIGMAP: Reason.FOREIGN_CONFIGMAP,
    Reason.CONFIG_REFUSED: Reason.CONFIG_REFUSED,
    Reason.CAPACITY_MISMATCH: Reason.CAPACITY_MISMATCH,
    Reason.PLUGIN_GONE: Reason.PLUGIN_GONE,
    Reason.NO_INVENTORY: Reason.NO_INVENTORY,
    Reason.UNSUPPORTED_BY_NODES: Reason.UNSUPPORTED_BY_NODES,
    "conflicting": Reason.CONFLICTING_POLICIES,
    "skipped": Reason.SKIPPED,
}
# Only the controller sees these: it makes the writes.
_REPORTED = {Reason.WRITE_FAILED, Reason.LABEL_CONTESTED, Reason.ALLOCATION_UNSUPPORTED}


def overview(world: World, *, every_node: bool = False) -> StatusReport:
    """Return the picture; with `every_node` node by node too."""
    tallies = {policy.name: Tally(policy.name) for policy in world.ranked}
    groups: Counter[tuple[str, str, str]] = Counter()
    gpus: Counter[tuple[str, str, str]] = Counter()
    nodes = []
    for state in world.states():
        for policy in {*state.assignment.matched, state.owner} & tallies.keys():
            tallies[policy].add(state)
        word = standing(state, uncertain=world.uncertain(state.node))
        node = world.nodes[state.node]
        owner = "" if word in NOT_OURS else state.owner
        group = (node.model, owner, str(word))
        groups[group] += 1
        gpus[group] += gpu_count(world, state.node) or 0
        if every_node:
            nodes.append(
                NodeOverview(
                    node=state.node,
                    model=node.model,
                    owner=owner,
                    config=node.config_label,
                    state=word,
                    detail=detail(state, word),
                )
            )
    states: Counter[str] = Counter()
    for (_, _, word_), count in groups.items():
        states[word_] += count
    return StatusReport(
        layout=world.layout,
        gpu_nodes=groups.total(),
        gpus=gpus.total(),
        states=dict(sorted(states.items())),
        policies=[_policy(policy, tallies[policy.name], world.statuses.get(policy.name)) for policy in world.ranked],
        groups=[
            NodeGroup(model=model, owner=owner, state=word_, nodes=count, gpus=gpus[model, owner, word_])
            for (model, owner, word_), count in sorted(groups.items())
        ],
        problems=[
            problem
            for policy in world.ranked
            for problem in _problems(policy, tallies[policy.name], world.statuses.get(policy.name))
        ],
        nodes=nodes if every_node else None,
    )


def _policy(policy: Policy, counted: Tally, status: PolicyStatus | None) -> PolicyOverview:
    spec = policy.spec
    ready = _condition(policy, status, ConditionType.READY)
    return PolicyOverview(
        policy=policy.name,
        priority=spec.priority if spec else 0,
        mode=mode_of(policy),
        allocation=spec.allocation.policy if spec else "",
        sharing=sharing_words(spec) if spec else "",
        mig=spec.mig_strategy if spec else "",
        config=policy.rendered.name if policy.rendered else "",
        nodes=counted.node_counts(),
        ready=ready.status if ready else "Unknown",
        reason=ready.reason if ready else "",
        message=ready.message if ready else "",
    )


def mode_of(policy: Policy) -> Literal["enforce", "dry-run", "invalid"]:
    """Return the policy's mode, or that its spec is invalid."""
    return policy.spec.mode if policy.spec else "invalid"


def _condition(policy: Policy, status: PolicyStatus | None, kind: ConditionType) -> Condition | None:
    """Return what the controller says of this very generation."""
    if status is None or status.observed_generation != policy.generation:
        return None
    return next((condition for condition in status.conditions if condition.type == kind), None)


def _problems(policy: Policy, counted: Tally, status: PolicyStatus | None) -> Iterator[OverviewProblem]:
    if _condition(policy, status, ConditionType.READY) is None:
        message = "the controller has not looked at this generation yet: is it running?"
        yield OverviewProblem(policy=policy.name, reason="", message=message)
    if policy.spec is None:
        message = "; ".join(map(str, policy.problems))
        yield OverviewProblem(policy=policy.name, reason=Reason.INVALID_SPEC, message=message)
    for kind, reason in _PROBLEMS.items():
        if count := counted.count(kind):
            yield OverviewProblem(policy=policy.name, reason=reason, nodes=count, message=counted.say(kind))
    degraded = _condition(policy, status, ConditionType.DEGRADED)
    if degraded is not None and degraded.reason in _REPORTED:
        yield OverviewProblem(policy=policy.name, reason=degraded.reason, message=degraded.message)
