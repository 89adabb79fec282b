"""Which nodes a policy matches or holds: those that its status counts, and that a change of it concerns."""

from collections.abc import Set as AbstractSet

from gpusharing.core.status import NodeState


class Members:
    """Policy → its nodes, as far as these were decided about."""

    def __init__(self) -> None:
        self.nodes: dict[str, set[str]] = {}

    def of(self, policy: str) -> AbstractSet[str]:
        """Return the nodes of a policy."""
        return self.nodes.get(policy, frozenset())

    def move(self, node: str, before: NodeState | None, after: NodeState | None) -> set[str]:
        """Take in what was decided about a node; None = nothing. Returns every policy that this concerns."""
        was, now = _policies(before), _policies(after)
        for policy in was - now:
            self.nodes[policy].discard(node)
        for policy in now - was:
            self.nodes.setdefault(policy, set()).add(node)
        return was | now


def _policies(state: NodeState | None) -> set[str]:
    if state is None:
        return set()
    return {*state.assignment.matched, *([state.owner] if state.owner else [])}
