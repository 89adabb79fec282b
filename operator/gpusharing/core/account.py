"""One node in full: why it has its owner, and how far the owner's config has come on it."""

from gpusharing.api.explanation import ConsideredPolicy, ExplainedResource, Explanation, NodeConfig
from gpusharing.core.advertise import predicted, predicted_from_labels
from gpusharing.core.capacity import gpu_count
from gpusharing.core.evaluate import holder_of
from gpusharing.core.explain import explain
from gpusharing.core.gfd import read_labels
from gpusharing.core.overview import mode_of
from gpusharing.core.reports import shared_gpus
from gpusharing.core.reservations import is_place
from gpusharing.core.standing import NOT_OURS, detail, standing
from gpusharing.core.status import NodeState
from gpusharing.core.world import World

_WOULD_OWN = "would own the node, were it not left as it is"


def account(world: World, name: str) -> Explanation:
    """Explain one node of the world."""
    node, report, state = world.nodes[name], world.reports.get(name), world.state(name)
    holder = holder_of(world.records.get(name), world.policies)
    why = explain(node, world.ranked, holder=holder, reports_gpus=world.reports_gpus(name))
    word = standing(state, uncertain=world.uncertain(name))
    owner = state.assignment.policy
    return Explanation(
        node=name,
        model=node.model,
        gpus=gpu_count(world, name),
        gpu_node=why.gpu_node,
        owner="" if word in NOT_OURS else why.winner,
        rule=f"{why.winner} would own it: {why.rule}" if word in NOT_OURS else why.rule,
        state=word,
        detail=detail(state, word),
        config=NodeConfig(
            wanted=why.config_name,
            label=node.config_label,
            served=report.config.served if report else None,
            error=report.config.error if report else "",
            rendered=owner.rendered.config.canonical() if owner and owner.rendered else None,
        ),
        resources=_resources(world, state),
        considered=[
            ConsideredPolicy(
                policy=policy.policy,
                priority=policy.priority,
                mode=mode_of(world.policies[policy.policy]),
                matches=policy.matches,
                why=_WOULD_OWN if word in NOT_OURS and policy.policy == why.winner else policy.why,
            )
            for policy in why.considered
        ],
    )


def _resources(world: World, state: NodeState) -> list[ExplainedResource]:
    node, report = world.nodes[state.node], world.reports.get(state.node)
    rows = {row.name: row for row in report.resources} if report else {}
    owner = state.assignment.policy
    config = owner.rendered.config if owner and owner.rendered else None
    wanted = None
    if config is not None and report is not None:
        wanted = predicted(config, shared_gpus(report), rows)
    elif config is not None:
        wanted = predicted_from_labels(config, read_labels(node.labels, node.allocatable))
    seen = {name: row.advertised for name, row in rows.items()} if report else dict(node.allocatable or {})
    return [
        ExplainedResource(
            resource=name,
            # of a placement's name the config says nothing
            predicted=None if wanted is None or is_place(name) else wanted.get(name, 0),
            advertised=seen.get(name, 0) if seen else None,
            in_use=rows[name].in_use if name in rows else None,
        )
        for name in sorted({*(wanted or ()), *seen})
    ]
