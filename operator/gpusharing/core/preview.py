"""What applying or deleting policies would do: every node's plan in the world as it would be, before and after."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpusharing.api.plan import (
    BeforeAfter,
    ChangeWord,
    DeviceChange,
    PlannedNode,
    PlannedPolicy,
    PlanReport,
    PlanTotals,
)
from gpusharing.core.capacity import devices_now, devices_under
from gpusharing.core.desired_state import Outcome, as_enforced
from gpusharing.core.plan import Change, NodePlan
from gpusharing.core.records import record_name
from gpusharing.core.status import NodeState, Tally
from gpusharing.core.world import World

LEFT_ALONE = {Change.MANUAL, Change.SKIPPED, Change.FROZEN, Change.REFUSED}
UNCERTAIN: Literal["manual?"] = "manual?"


@dataclass(frozen=True, slots=True)
class Preview:
    """The worlds before and after, and which policies make the difference."""

    before: World
    after: World
    applied: tuple[str, ...]
    deleted: tuple[str, ...]
    dry_run: frozenset[str]

    @classmethod
    def of(cls, world: World, applied: Sequence[Mapping[str, Any]], deleted: Iterable[str] = ()) -> "Preview":
        """Look ahead: these policies applied (one in mode dry-run as if it were enforced), those deleted."""
        gone = tuple(sorted(set(deleted)))
        after = world.without_policies(gone).with_policies(applied)
        names = tuple(sorted({str(obj["metadata"]["name"]) for obj in applied}))
        planned = {name: after.policies[name] for name in names}
        dry_run = frozenset(name for name, policy in planned.items() if policy.spec and not policy.enforced)
        after = replace(after, policies={**after.policies, **{name: as_enforced(planned[name]) for name in dry_run}})
        return cls(world, after, names, gone, dry_run)

    def report(self, *, everything: bool = False) -> PlanReport:
        """Return every node that changes or has notes; with `everything` the unchanged ones too."""
        tallies = {name: Tally(name) for name in self.applied}
        counts = dict.fromkeys(PlanTotals.model_fields, 0)
        nodes: list[PlannedNode] = []
        for state in self.after.states():
            for name in state.assignment.matched:
                if name in tallies:
                    tallies[name].add(state)
            kind = self._kind(state)
            counts[kind] += 1
            notes = self._notes(state)
            if everything or notes or kind != "unchanged":
                nodes.append(self._planned(state, notes))
        policies = [self._policy(counted) for counted in tallies.values()]
        policies += [_deleted(name) for name in self.deleted if name not in tallies]
        return PlanReport(
            layout=self.after.layout,
            policies=sorted(policies, key=lambda policy: policy.policy),
            summary=PlanTotals(**counts),
            nodes=nodes,
        )

    def _word(self, state: NodeState) -> ChangeWord:
        return UNCERTAIN if self.after.uncertain(state.node) else state.plan.change.value

    def _kind(self, state: NodeState) -> str:
        """Return under which total the node counts; one left alone counts as skipped where these policies name it."""
        if state.plan.change not in LEFT_ALONE and not self.after.uncertain(state.node):
            return state.plan.change.value
        return "skipped" if self._concerned(state) else "unchanged"

    def _concerned(self, state: NodeState) -> bool:
        record = self.before.records.get(state.node)
        held = record is not None and record.ours and record.policy in self.deleted
        return held or not set(self.applied).isdisjoint(state.assignment.matched)

    def _planned(self, state: NodeState, notes: list[str]) -> PlannedNode:
        record, plan = self.before.records.get(state.node), state.plan
        holder = record.policy if record is not None and record.ours else ""
        left_alone = plan.change in LEFT_ALONE or self.after.uncertain(state.node)
        winner = state.owner if state.assignment.outcome is Outcome.OWNED else ""
        return PlannedNode(
            node=state.node,
            model=self.after.nodes[state.node].model,
            owner=BeforeAfter(before=holder, after=holder if left_alone else winner),
            config=BeforeAfter(before=plan.before, after=plan.before if left_alone else plan.after),
            change=self._word(state),
            devices=self._devices(plan, left_alone=left_alone),
            notes=notes,
        )

    def _devices(self, plan: NodePlan, *, left_alone: bool) -> list[DeviceChange]:
        before = devices_now(self.before, plan.node)
        after = before if left_alone or plan.before == plan.after else devices_under(self.after, plan.node, plan.after)
        return [
            DeviceChange(
                resource=name,
                before=None if before is None else before.get(name, 0),
                after=None if after is None else after.get(name, 0),
            )
            for name in sorted({*(before or ()), *(after or ())})
        ]

    def _notes(self, state: NodeState) -> list[str]:
        """Return what keeps the node, or these policies on it, from changing."""
        notes = []
        plan, concerned = state.plan, self._concerned(state)
        if concerned and self.after.uncertain(state.node):
            notes.append("nobody can tell who set the config label: the saved file has no ConfigMaps")
        elif concerned and (reason := _left_alone(state)):
            notes.append(reason)
        elif (plan.actions or plan.wait) and self.before.state(state.node).plan == plan:
            notes.append("not because of this plan: the controller has still to do it")
        if plan.change not in LEFT_ALONE:
            notes += [
                f"{name} ties with {state.owner} on priority and changes nothing: the older wins; set spec.priority"
                for name in state.assignment.tied
                if name in self.applied
            ]
        if state.lacking and state.owner in self.applied:
            notes.append(f"cannot have {', '.join(state.lacking)}")
        if plan.change is Change.ADD and plan.before:
            notes.append(f"{plan.before}, set by hand, is recorded and put back when the policy lets go")
        if plan.dropped:
            notes.append(f"{plan.dropped}, set by hand once, cannot be put back: no mounted config has that name")
        return notes

    def _policy(self, counted: Tally) -> PlannedPolicy:
        return PlannedPolicy(
            policy=counted.policy,
            action="update" if counted.policy in self.before.policies else "create",
            as_if_enforced=counted.policy in self.dry_run,
            matched=counted.matched,
            owned=counted.owned,
            notes=list(_policy_notes(counted)),
        )


def _policy_notes(counted: Tally) -> Iterator[str]:
    if not counted.matched:
        yield "names no GPU node"
    if counted.outranked and not counted.owned:
        yield f"owns none of them: {counted.outranked} of {counted.matched} are owned by policies of higher rank"


def _deleted(name: str) -> PlannedPolicy:
    return PlannedPolicy(policy=name, action="delete", as_if_enforced=False, matched=0, owned=0, notes=[])


def _left_alone(state: NodeState) -> str:
    """Return why the node is left as it is; empty = it is not."""
    match state.plan.change:
        case Change.SKIPPED:
            return "left as it is: it carries the label gpusharing.io/skip"
        case Change.MANUAL:
            return "left as it is: its label was set by hand; spec.adoptManual: true takes it over"
        case Change.FROZEN:
            return f"left as it is: {state.owner}, which holds it, is in mode dry-run or invalid"
        case Change.REFUSED:
            return f"left as it is: the ConfigMap {record_name(state.node)} is not ours, and is never overwritten"
        case _:
            return ""
