"""Observed against desired → the writes of one node, in order. The controller makes them; `plan` prints them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpusharing.api import names
from gpusharing.core.desired_state import Assignment, Layout, Outcome
from gpusharing.core.matching import Node
from gpusharing.core.records import Record, needs_write, wanted_record
from gpusharing.core.sharedconfig import NOTHING_SHARED, SharedConfig


@dataclass(frozen=True, slots=True)
class ApplyRecord:
    """Write the node's record."""

    record: Record


@dataclass(frozen=True, slots=True)
class SetLabel:
    """Move the node's config label; `force` takes it from another field manager."""

    node: str
    uid: str
    value: str
    force: bool


@dataclass(frozen=True, slots=True)
class ReleaseLabel:
    """Give the label up: it goes, unless somebody else owns it too."""

    node: str
    uid: str


@dataclass(frozen=True, slots=True)
class RestoreLabel:
    """Put back the value that the label had before a policy adopted the node."""

    node: str
    uid: str
    value: str


@dataclass(frozen=True, slots=True)
class DeleteRecord:
    """Delete the node's record."""

    node: str


Action = ApplyRecord | SetLabel | ReleaseLabel | RestoreLabel | DeleteRecord


class Change(StrEnum):
    """What a plan does to a node."""

    ADD = "add"
    CHANGE = "change"
    RELEASE = "release"
    REPAIR = "repair"
    UNCHANGED = "unchanged"
    MANUAL = "manual"
    SKIPPED = "skipped"
    FROZEN = "frozen"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The writes of one node.

    `wait` = the label may move only then, as readers do not have its key yet. `dropped` = a value from before the
    adoption that cannot be put back, as nothing mounts a config of that name.
    """

    node: str
    change: Change
    before: str
    after: str
    actions: tuple[Action, ...] = ()
    wait: timedelta | None = None
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a plan needs to know besides node, assignment and record."""

    layout: Layout
    now: datetime
    shared: SharedConfig = NOTHING_SHARED
    sync_delay: timedelta = timedelta(seconds=120)
    # The label's value when we last saw it as assigned; tells a removed label from one not written yet.
    settled: str = ""


def plan_node(node: Node, assignment: Assignment, record: Record | None, situation: Situation) -> NodePlan:
    """Plan one node. The order is fixed: record, then label; label, then the record's end."""
    label = node.config_label
    match assignment.outcome:
        case Outcome.HANDS_OFF:
            return NodePlan(node.name, Change.SKIPPED, label, label)
        case Outcome.FROZEN:
            return NodePlan(node.name, Change.FROZEN, label, label)
        case Outcome.UNCLAIMED:
            return _release(node, record, situation)
        case _:
            return _own(node, assignment, record, situation)


def _own(node: Node, assignment: Assignment, record: Record | None, situation: Situation) -> NodePlan:
    policy = assignment.policy
    assert policy is not None, "an owned node has an owner: this is a bug, please report it"
    assert policy.spec is not None, "an owner has a spec: this is a bug, please report it"
    assert policy.rendered is not None, "an owner has a config: this is a bug, please report it"
    label, want = node.config_label, policy.rendered.name
    if not situation.shared.ours or (record is not None and not record.ours):
        return NodePlan(node.name, Change.REFUSED, label, label)
    held = record if record is not None and record.node_uid in {"", node.uid} else None
    manual = bool(label) and held is None and not node.label_is_ours
    if manual and not policy.spec.adopt_manual:
        return NodePlan(node.name, Change.MANUAL, label, label)
    previous_label = held.previous_label if held else label if manual else None
    wanted = wanted_record(node, policy, situation.layout, record, previous_label)
    actions: list[Action] = [ApplyRecord(wanted)] if needs_write(record, wanted) else []
    wait = None
    if label != want:
        if situation.layout == "shared":
            wait = situation.shared.visible_in(want, situation.now, situation.sync_delay)
            wait = situation.sync_delay if wait is None else wait
        if not wait:
            wait = None
            foreign = bool(label) and node.label_managers != (names.FIELD_MANAGER,)
            actions.append(SetLabel(node.name, node.uid, want, force=foreign))
    return NodePlan(node.name, _kind(node, held, wanted, situation), label, want, tuple(actions), wait)


def _kind(node: Node, held: Record | None, wanted: Record, situation: Situation) -> Change:
    label = node.config_label
    if held is None:
        if not node.label_is_ours:
            return Change.ADD
        return Change.REPAIR if label == wanted.config else Change.CHANGE
    if held.config != wanted.config or held.policy_uid != wanted.policy_uid:
        # Where the label is as we assigned it, the record alone was changed, and not by us.
        harmed = held.config != wanted.config and situation.settled == label == wanted.config
        return Change.REPAIR if harmed else Change.CHANGE
    if label != wanted.config:
        # A label that is still ours, or at the former value, is a pass that was cut short or waits for the readers (a
        # foreign edit takes the ownership with it); an absent one too, unless it was there.
        interrupted = node.label_is_ours or label in wanted.data or label == (wanted.previous_label or "")
        return Change.CHANGE if interrupted and situation.settled != wanted.config else Change.REPAIR
    return Change.REPAIR if needs_write(held, wanted) else Change.UNCHANGED


def _release(node: Node, record: Record | None, situation: Situation) -> NodePlan:
    label = node.config_label
    if record is not None and not record.ours:
        record = None
    if record is None and not node.label_is_ours:
        return NodePlan(node.name, Change.UNCHANGED, label, label)
    actions: list[Action] = []
    after, dropped = label, ""
    if node.label_is_ours:
        restored = record.previous_label if record else None
        if restored and (situation.layout == "per-node" or restored in situation.shared.data):
            actions.append(RestoreLabel(node.name, node.uid, restored))
            after = restored
        else:
            dropped = restored or ""
            actions.append(ReleaseLabel(node.name, node.uid))
            after = "" if len(node.label_managers) == 1 else label
    if record is not None:
        actions.append(DeleteRecord(node.name))
    return NodePlan(node.name, Change.RELEASE, label, after, tuple(actions), dropped=dropped)
