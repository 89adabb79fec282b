"""The conditions of decision 17, as a table: sentence → nodes → what stands in the status, and how kstatus reads it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, PolicyBuilder, make_policy, make_record

from gpusharing.api.meta import Condition
from gpusharing.api.policy import PlanSummary, PolicyStatus
from gpusharing.core.desired_state import Assignment, Layout, Outcome, Policy
from gpusharing.core.matching import Node
from gpusharing.core.plan import ApplyRecord, Change, NodePlan
from gpusharing.core.progress import Progress, Verdict
from gpusharing.core.status import (
    MESSAGE_MAX,
    NodeState,
    Tally,
    plan_summary,
    policy_status,
    sharing_words,
    tally,
    unsupported_allocation,
)

POLICY = make_policy("p").sharing(4)
RIVAL = make_policy("rival").build()
MINE = POLICY.build()
NAME = POLICY.rendered().name
WRITE = ApplyRecord(make_record(Node("n", "u", {}), POLICY))


# --- nodes, by what they are to policy `p`


def own(name: str = "a", progress: Progress = Progress.APPLIED, detail: str = "", **fields: Any) -> NodeState:
    """Owned and written; how far it is says `progress`."""
    return NodeState(
        name,
        Assignment(Outcome.OWNED, MINE, ("p",)),
        NodePlan(name, Change.UNCHANGED, NAME, NAME),
        Verdict(progress, detail),
        **fields,
    )


def planned(name: str, change: Change, *, writes: bool = True, wait: timedelta | None = None) -> NodeState:
    """Owned, and not written yet."""
    plan = NodePlan(name, change, "", NAME, (WRITE,) if writes else (), wait)
    return replace(own(name), plan=plan)


def manual(name: str = "a") -> NodeState:
    return replace(own(name), plan=NodePlan(name, Change.MANUAL, "theirs", "theirs"))


def refused(name: str = "a") -> NodeState:
    return replace(own(name), plan=NodePlan(name, Change.REFUSED, "", ""))


def skipped(name: str = "a", *, matched: bool = True) -> NodeState:
    assignment = Assignment(Outcome.HANDS_OFF, matched=("p",) if matched else ())
    return NodeState(name, assignment, NodePlan(name, Change.SKIPPED, "", ""))


def tied(name: str = "a") -> NodeState:
    assignment = Assignment(Outcome.OWNED, RIVAL, ("rival", "p"), ("p",))
    return NodeState(name, assignment, NodePlan(name, Change.UNCHANGED, "x", "x"))


def outranked(name: str = "a") -> NodeState:
    assignment = Assignment(Outcome.OWNED, RIVAL, ("rival", "p"))
    return NodeState(name, assignment, NodePlan(name, Change.UNCHANGED, "x", "x"))


def frozen(name: str = "a", owner: Policy = MINE, matched: tuple[str, ...] = ("p",)) -> NodeState:
    return NodeState(name, Assignment(Outcome.FROZEN, owner, matched), NodePlan(name, Change.FROZEN, NAME, NAME))


def released(name: str = "a") -> NodeState:
    """Held by `p` until now, and matched by nobody."""
    return NodeState(name, Assignment(Outcome.UNCLAIMED), NodePlan(name, Change.RELEASE, NAME, "", (WRITE,)))


def unclaimed(name: str = "a") -> NodeState:
    """Matched by `p` in dry-run, owned by nobody."""
    return NodeState(name, Assignment(Outcome.UNCLAIMED, matched=("p",)), NodePlan(name, Change.UNCHANGED, "", ""))


def status_of(
    *states: NodeState,
    policy: PolicyBuilder = POLICY,
    previous: PolicyStatus | None = None,
    layout: Layout = "per-node",
    **fields: Any,
) -> PolicyStatus:
    before = previous or PolicyStatus()
    return policy_status(policy.build(layout), tally("p", states), before, NOW, layout=layout, **fields)


def kstatus(status: PolicyStatus, generation: int = 1) -> str:
    """What kstatus concludes: the order of its checks is that of cli-utils (GitOps tools wait on it)."""
    conditions = {condition.type: condition.status for condition in status.conditions}
    if status.observed_generation != generation:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions["Ready"] == "True" else "InProgress"


@dataclass(frozen=True)
class Row:
    """A policy's nodes and what stands in its status: the conditions as `Type=Status/Reason`."""

    states: list[NodeState]
    want: str
    verdict: str
    policy: PolicyBuilder = POLICY
    layout: Layout = "per-node"


MISMATCH = "1 advertised, 8 predicted"
TABLE = {
    # --- Ready
    "all owned nodes serve the config": Row([own("a"), own("b")], "Ready=True/Applied Applied=True/Applied", "Current"),
    "the selector names no node": Row([], "Ready=True/NoMatchingNodes", "Current"),
    "all nodes lost to higher priorities": Row([outranked("a"), outranked("b")], "Ready=True/Superseded", "Current"),
    "a dry run without nodes": Row([], "Ready=True/DryRun", "Current", POLICY.dry_run()),
    "a dry run over free nodes": Row([unclaimed()], "Ready=True/DryRun", "Current", POLICY.dry_run()),
    "a dry run that keeps nodes": Row([frozen()], "Ready=True/DryRun", "Current", POLICY.dry_run()),
    # --- Reconciling
    "a node is not written yet": Row(
        [own("a"), planned("b", Change.ADD)],
        "Ready=Unknown/AwaitingReport Reconciling=True/AwaitingReport Applied=Unknown/AwaitingReport",
        "InProgress",
    ),
    "a node waits for the kubelets to see its config": Row(
        [planned("a", Change.CHANGE, writes=False, wait=timedelta(seconds=9))],
        "Ready=Unknown/AwaitingReport Reconciling=True/AwaitingReport Applied=Unknown/AwaitingReport",
        "InProgress",
    ),
    "a node has not reported yet": Row(
        [own("a"), own("b", Progress.AWAITING, "no report of this config yet")],
        "Ready=Unknown/AwaitingReport Reconciling=True/AwaitingReport Applied=Unknown/AwaitingReport",
        "InProgress",
    ),
    "labels do not tell how many devices there are": Row(
        [own("a"), own("b", Progress.NO_INVENTORY, "labels do not tell")],
        "Ready=Unknown/NoInventory Reconciling=True/NoInventory Applied=Unknown/NoInventory",
        "InProgress",
    ),
    "a node refuses the config": Row(
        [own("a"), own("b", Progress.REFUSED, "no MIG")],
        "Ready=False/ConfigRefused Reconciling=True/ConfigRefused Applied=False/ConfigRefused "
        "Degraded=True/ConfigRefused",
        "InProgress",
    ),
    "a node advertises another number": Row(
        [own("a", Progress.MISMATCH, MISMATCH)],
        "Ready=False/CapacityMismatch Reconciling=True/CapacityMismatch Applied=False/CapacityMismatch "
        "Degraded=True/CapacityMismatch",
        "InProgress",
    ),
    "a node has no devices at all": Row(
        [own("a", Progress.GONE, "0 allocatable")],
        "Ready=False/CapacityMismatch Reconciling=True/CapacityMismatch Applied=False/CapacityMismatch "
        "Degraded=True/PluginGone",
        "InProgress",
    ),
    "a refusal outweighs a mismatch, and a mismatch a wait": Row(
        [own("a", Progress.AWAITING), own("b", Progress.MISMATCH), own("c", Progress.REFUSED)],
        "Ready=False/ConfigRefused Reconciling=True/ConfigRefused Applied=False/ConfigRefused "
        "Degraded=True/ConfigRefused",
        "InProgress",
    ),
    "a write is refused": Row(
        [replace(planned("a", Change.ADD), write_error="nodes is forbidden")],
        "Ready=Unknown/AwaitingReport Reconciling=True/AwaitingReport Applied=Unknown/AwaitingReport "
        "Degraded=True/WriteFailed",
        "InProgress",
    ),
    "a ConfigMap of the record's name is foreign": Row(
        [refused()],
        "Ready=Unknown/AwaitingReport Reconciling=True/AwaitingReport Applied=Unknown/AwaitingReport "
        "Degraded=True/ForeignConfigMap",
        "InProgress",
    ),
    # --- Stalled
    "every node is under skip": Row(
        [skipped("a"), skipped("b")], "Ready=False/AllNodesSkipped Stalled=True/AllNodesSkipped", "Failed"
    ),
    "every node was configured by hand": Row(
        [manual()], "Ready=False/AllNodesSkipped Stalled=True/AllNodesSkipped", "Failed"
    ),
    "every node is kept by another policy in dry-run": Row(
        [frozen("a", RIVAL)], "Ready=False/AllNodesSkipped Stalled=True/AllNodesSkipped", "Failed"
    ),
    "all nodes lost to ties": Row(
        [tied("a"), tied("b")],
        "Ready=False/ConflictingPolicies Stalled=True/ConflictingPolicies Conflicted=True/ConflictingPolicies",
        "Failed",
    ),
    "ties and skipped nodes": Row(
        [tied("a"), skipped("b")],
        "Ready=False/ConflictingPolicies Stalled=True/ConflictingPolicies Conflicted=True/ConflictingPolicies",
        "Failed",
    ),
    "the spec is invalid": Row([], "Ready=False/InvalidSpec Stalled=True/InvalidSpec", "Failed", POLICY.invalid()),
    "the spec became invalid while nodes are owned": Row(
        [frozen()], "Ready=False/InvalidSpec Stalled=True/InvalidSpec", "Failed", POLICY.invalid()
    ),
    # --- Conflicted, and what does not stall
    "some ties, the rest outranked": Row(
        [tied("a"), outranked("b")], "Ready=True/Superseded Conflicted=True/ConflictingPolicies", "Current"
    ),
    "some ties, the rest owned": Row(
        [tied("a"), own("b")],
        "Ready=True/Applied Applied=True/Applied Conflicted=True/ConflictingPolicies",
        "Current",
    ),
    "some skipped, the rest owned": Row(
        [skipped("a"), manual("b"), own("c")], "Ready=True/Applied Applied=True/Applied", "Current"
    ),
    "some skipped, the rest outranked": Row([skipped("a"), outranked("b")], "Ready=True/Superseded", "Current"),
    "a node that is being released is none of the policy's": Row(
        [skipped("a"), released("b")], "Ready=False/AllNodesSkipped Stalled=True/AllNodesSkipped", "Failed"
    ),
    # --- Degraded, and what it does not take away
    "something fights over the label": Row(
        [own("a", contested_by="argocd")],
        "Ready=True/Applied Applied=True/Applied Degraded=True/LabelContested",
        "Current",
    ),
    "a node cannot have what is shared": Row(
        [own("a", lacking=("nvidia.com/mig-1g.5gb",))],
        "Ready=True/Applied Applied=True/Applied Degraded=True/UnsupportedByNodes",
        "Current",
    ),
    "NVIDIA's plugin ignores part of the allocation": Row(
        [own()],
        "Ready=True/Applied Applied=True/Applied Degraded=True/AllocationUnsupportedByPlugin",
        "Current",
        POLICY.allocating("spread"),
        "shared",
    ),
    "our own plugin does not": Row(
        [own()], "Ready=True/Applied Applied=True/Applied", "Current", POLICY.allocating("spread")
    ),
    "packed is known to NVIDIA's plugin": Row(
        [own()], "Ready=True/Applied Applied=True/Applied", "Current", POLICY.allocating("packed"), "shared"
    ),
}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
class TestConditions:
    def status(self, row: Row) -> PolicyStatus:
        return status_of(*row.states, policy=row.policy, layout=row.layout)

    def test_they_say(self, row: Row) -> None:
        got = " ".join(f"{c.type}={c.status}/{c.reason}" for c in self.status(row).conditions)
        assert got == row.want

    def test_kstatus_reads_them_as(self, row: Row) -> None:
        assert kstatus(self.status(row)) == row.verdict

    def test_each_says_why_in_a_sentence(self, row: Row) -> None:
        for condition in self.status(row).conditions:
            assert re.fullmatch(r"\S.*[.]", condition.message), condition.message

    def test_the_next_pass_over_the_same_nodes_writes_the_same(self, row: Row) -> None:
        once = self.status(row)
        later = NOW + timedelta(hours=1)
        again = policy_status(row.policy.build(row.layout), tally("p", row.states), once, later, layout=row.layout)
        assert again == once


# --- once Ready


READY = status_of(own())
TROUBLE: dict[str, Callable[[], NodeState]] = {
    "a node that joined later": lambda: planned("z", Change.ADD),
    "a mismatch": lambda: own("z", Progress.MISMATCH, MISMATCH),
    "a refusal": lambda: own("z", Progress.REFUSED, "no MIG"),
    "a plugin that is gone": lambda: own("z", Progress.GONE, "0 allocatable"),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
def test_once_ready_for_a_generation_later_trouble_does_not_take_it_away(trouble: Callable[[], NodeState]) -> None:
    status = status_of(own(), trouble(), previous=READY)
    assert kstatus(status) == "Current"
    types = [condition.type for condition in status.conditions]
    assert "Reconciling" not in types
    assert "Stalled" not in types
    applied = next(condition for condition in status.conditions if condition.type == "Applied")
    assert applied.status != "True"
    assert status.nodes.applied < status.nodes.owned


def test_trouble_that_lasts_is_said_once() -> None:
    once = status_of(own("z", Progress.MISMATCH, MISMATCH), previous=READY)
    twice = status_of(own("z", Progress.MISMATCH, MISMATCH), previous=once)
    assert twice == once
    assert once.conditions[0].message.count("This generation was ready before") == 1


def test_once_ready_all_nodes_skipped_does_not_stall() -> None:
    assert kstatus(status_of(skipped(), previous=READY)) == "Current"


def test_a_new_generation_takes_ready_away() -> None:
    policy = POLICY.generation(2)
    status = status_of(planned("a", Change.CHANGE), policy=policy, previous=READY)
    assert kstatus(status, generation=2) == "InProgress"


def test_a_spec_that_is_invalid_is_never_ready() -> None:
    assert kstatus(status_of(frozen(), policy=POLICY.invalid(), previous=READY)) == "Failed"


def test_a_status_of_an_older_generation_is_in_progress_for_kstatus() -> None:
    assert kstatus(READY, generation=2) == "InProgress"


# --- lastTransitionTime and observedGeneration


def at(status: PolicyStatus, kind: str) -> Condition:
    return next(condition for condition in status.conditions if condition.type == kind)


class TestTransitionTime:
    OLD = NOW - timedelta(days=1)

    def previous(self, *states: NodeState) -> PolicyStatus:
        return policy_status(MINE, tally("p", states), PolicyStatus(), self.OLD, layout="per-node")

    def test_it_stays_while_the_status_does(self) -> None:
        before = self.previous(planned("a", Change.ADD))
        status = status_of(own("a", Progress.AWAITING, "no report"), previous=before)
        assert at(status, "Ready").last_transition_time == self.OLD
        assert at(status, "Ready").message != at(before, "Ready").message

    def test_it_moves_with_the_status(self) -> None:
        status = status_of(own(), previous=self.previous(planned("a", Change.ADD)))
        assert at(status, "Ready").last_transition_time == NOW

    def test_a_condition_that_was_absent_begins_now(self) -> None:
        status = status_of(own("a", contested_by="x"), previous=self.previous(own()))
        assert at(status, "Degraded").last_transition_time == NOW
        assert at(status, "Ready").last_transition_time == self.OLD

    def test_another_reason_is_no_transition(self) -> None:
        before = self.previous(own("a", Progress.NO_INVENTORY))
        status = status_of(own("a", Progress.AWAITING), previous=before)
        assert (at(before, "Ready").reason, at(status, "Ready").reason) == ("NoInventory", "AwaitingReport")
        assert at(status, "Ready").last_transition_time == self.OLD

    def test_it_has_whole_seconds_or_every_write_would_differ_from_what_is_read_back(self) -> None:
        status = policy_status(MINE, tally("p", []), PolicyStatus(), NOW.replace(microsecond=7), layout="per-node")
        assert PolicyStatus.model_validate(status.to_wire()) == status


def test_every_condition_and_the_status_carry_the_generation() -> None:
    status = status_of(tied("a"), own("b", Progress.MISMATCH), policy=POLICY.generation(7))
    assert {status.observed_generation, *(condition.observed_generation for condition in status.conditions)} == {7}


# --- the rest of the status


def test_it_names_the_config_and_says_the_sharing_in_words() -> None:
    status = status_of(own(), policy=POLICY.allocating("packed"))
    rendered = POLICY.allocating("packed").rendered()
    assert (status.config_name, status.config_hash) == (rendered.name, rendered.digest)
    assert (status.allocation_policy, status.sharing) == ("packed", "4x time-slicing")


def test_an_invalid_spec_leaves_what_was_there() -> None:
    status = status_of(frozen(), policy=POLICY.invalid(), previous=READY)
    assert (status.config_name, status.config_hash, status.sharing, status.allocation_policy) == (
        READY.config_name,
        READY.config_hash,
        READY.sharing,
        READY.allocation_policy,
    )


def test_a_plan_stands_in_the_status_of_a_dry_run() -> None:
    summary = PlanSummary(add=3)
    assert status_of(policy=POLICY.dry_run(), plan=summary).plan == summary
    assert "plan" not in status_of(own()).to_wire()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (make_policy(), "none"),
        (make_policy().sharing(4), "4x time-slicing"),
        (make_policy().sharing(10, "mps"), "10x mps"),
        (make_policy().mig("mixed").sharing({"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 2}), "2-8x time-slicing"),
        (make_policy().mig("mixed").sharing({"nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 2}), "2x time-slicing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sharing_in_words(policy: PolicyBuilder, words: str) -> None:
    spec = policy.build().spec
    assert spec is not None
    assert sharing_words(spec) == words


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (make_policy(), ()),
        (make_policy().allocating("packed"), ()),
        (make_policy().allocating("spread", topology="preferred"), ("policy: spread", "topology: preferred")),
        (make_policy().allocating("packed", keepTogether="required"), ("keepTogether: required",)),
    ],
    ids=["defaults", "packed", "spread", "kept together"],
)
def test_what_nvidias_plugin_ignores(policy: PolicyBuilder, want: tuple[str, ...]) -> None:
    spec = policy.build().spec
    assert spec is not None
    assert unsupported_allocation(spec) == want


# --- counts and messages


def test_every_kind_of_node_is_counted_where_the_design_says() -> None:
    status = status_of(
        own("a"),
        own("b", Progress.AWAITING),
        own("c", Progress.MISMATCH),
        own("d", Progress.REFUSED),
        own("e", Progress.GONE),
        planned("f", Change.ADD),
        manual("g"),
        skipped("h"),
        tied("i"),
        outranked("j"),
        frozen("k", RIVAL),
    )
    assert status.nodes.model_dump() == {
        "matched": 11,
        "owned": 6,
        "updated": 5,
        "applied": 1,
        "conflicting": 1,
        "skipped": 3,
        "failed": 3,
    }


def test_a_node_under_skip_that_the_selector_does_not_name_is_not_counted() -> None:
    assert status_of(skipped(matched=False)).nodes.model_dump() == PolicyStatus().nodes.model_dump()


def test_a_dry_run_counts_the_nodes_that_its_selector_names() -> None:
    nodes = status_of(unclaimed("a"), outranked("b"), frozen("c"), policy=POLICY.dry_run()).nodes
    assert (nodes.matched, nodes.owned) == (3, 1)


def test_messages_name_the_first_nodes_and_how_many_more() -> None:
    message = at(status_of(*(own(f"n{i}", Progress.MISMATCH, "x") for i in range(5))), "Applied").message
    assert message == "5 of 5 nodes: n0 (x); n1 (x); n2 (x); and 2 more."


def test_messages_are_bounded_whatever_ten_thousand_nodes_say() -> None:
    long = "x" * 20000
    states = [
        *(own(f"n{i}", Progress.REFUSED, long) for i in range(5000)),
        *(replace(own(f"m{i}"), contested_by=long, write_error=long, lacking=(long,)) for i in range(2000)),
        *(tied(f"t{i}") for i in range(2000)),
        *(skipped(f"s{i}") for i in range(1000)),
    ]
    status = status_of(*states)
    assert status.nodes.matched == 10000
    assert all(len(condition.message) <= MESSAGE_MAX for condition in status.conditions)
    PolicyStatus.model_validate(status.to_wire())


def test_a_conflict_names_nodes_and_the_winner_and_what_to_do() -> None:
    message = at(status_of(tied("gpu-a")), "Conflicted").message
    assert "gpu-a (owned by rival)" in message
    assert "hint: set spec.priority" in message


def test_skipped_nodes_are_named_with_what_keeps_them() -> None:
    message = at(status_of(skipped("a"), manual("b"), frozen("c", RIVAL)), "Stalled").message
    assert "a (gpusharing.io/skip); b (configured by hand: theirs); c (kept as it is by rival)" in message


def test_everything_that_is_degraded_is_said_worst_first() -> None:
    state = replace(own("a", Progress.MISMATCH, "x"), write_error="e", contested_by="c", lacking=("l",))
    condition = at(status_of(state), "Degraded")
    assert condition.reason == "WriteFailed"
    order = ["refused a write", "keeps changing", "another number", "cannot have"]
    assert sorted(order, key=condition.message.index) == order


# --- laws

STATES: list[Callable[[str], NodeState]] = [
    own,
    lambda name: own(name, Progress.AWAITING, "no report"),
    lambda name: own(name, Progress.NO_INVENTORY, "no labels"),
    lambda name: own(name, Progress.MISMATCH, "1 advertised"),
    lambda name: own(name, Progress.REFUSED, "no MIG"),
    lambda name: own(name, Progress.GONE, "0 allocatable"),
    lambda name: own(name, contested_by="x"),
    lambda name: own(name, lacking=("nvidia.com/mig-1g.5gb",)),
    lambda name: planned(name, Change.ADD),
    lambda name: planned(name, Change.CHANGE, writes=False, wait=timedelta(seconds=1)),
    lambda name: replace(planned(name, Change.REPAIR), write_error="forbidden"),
    manual,
    refused,
    skipped,
    lambda name: skipped(name, matched=False),
    tied,
    outranked,
    frozen,
    lambda name: frozen(name, RIVAL),
    released,
    unclaimed,
]
populations = st.lists(st.sampled_from(STATES), max_size=8).map(
    lambda made: [make(f"n{number}") for number, make in enumerate(made)]
)
builders = st.sampled_from(
    [POLICY, POLICY.dry_run(), POLICY.invalid(), POLICY.generation(2), POLICY.allocating("spread")]
)


@given(populations, builders, populations, builders, st.sampled_from(["per-node", "shared"]))
def test_ready_reconciling_and_stalled_never_contradict_one_another(
    before: list[NodeState], was: PolicyBuilder, states: list[NodeState], policy: PolicyBuilder, layout: Layout
) -> None:
    previous = status_of(*before, policy=was, layout=layout)
    status = status_of(*states, policy=policy, previous=previous, layout=layout)
    conditions = {condition.type: condition for condition in status.conditions}
    assert len(conditions) == len(status.conditions)
    abnormal = {"Reconciling", "Stalled"} & set(conditions)
    assert len(abnormal) == (0 if conditions["Ready"].status == "True" else 1)
    assert all(
        conditions[kind].status == "True"
        for kind in {"Reconciling", "Stalled", "Conflicted", "Degraded"} & set(conditions)
    )
    assert kstatus(status, policy.number) == (
        "Current" if not abnormal else "Failed" if "Stalled" in abnormal else "InProgress"
    )


@given(populations, builders)
def test_the_status_is_read_back_as_it_was_written(states: list[NodeState], policy: PolicyBuilder) -> None:
    status = status_of(*states, policy=policy)
    assert PolicyStatus.model_validate(status.to_wire()) == status


@given(populations)
def test_the_counts_of_an_enforced_policy_add_up(states: list[NodeState]) -> None:
    states = [
        state for state in states if state.assignment.outcome is not Outcome.UNCLAIMED and state != frozen(state.node)
    ]
    counted = tally("p", states)
    nodes = counted.node_counts()
    assert nodes.matched == nodes.owned + nodes.conflicting + nodes.skipped + counted.outranked
    assert nodes.applied <= nodes.updated <= nodes.owned
    assert nodes.applied + nodes.failed <= nodes.updated


@given(populations, st.randoms())
def test_the_counts_do_not_depend_on_the_order_of_nodes(states: list[NodeState], random: Any) -> None:
    shuffled = list(states)
    random.shuffle(shuffled)
    assert tally("p", states).node_counts() == tally("p", shuffled).node_counts()


@given(populations)
def test_nodes_added_one_by_one_are_counted_as_all_at_once(states: list[NodeState]) -> None:
    counted = Tally("p")
    for state in states:
        counted.add(state)
    assert counted.node_counts() == tally("p", states).node_counts()


@given(populations, builders)
def test_ready_with_reason_applied_means_that_every_owned_node_is(
    states: list[NodeState], policy: PolicyBuilder
) -> None:
    status = status_of(*states, policy=policy)
    if status.conditions[0].reason == "Applied":
        assert status.nodes.applied == status.nodes.owned > 0


# --- a dry run's plan in short


class TestPlanSummary:
    def plan(self, node: str, change: Change) -> NodePlan:
        return NodePlan(node, change, "old", "new")

    def test_every_change_is_counted_as_the_reader_expects(self) -> None:
        summary = plan_summary(self.plan(change.value, change) for change in Change)
        assert (summary.add, summary.change, summary.release) == (1, 1, 1)
        assert (summary.unchanged, summary.skipped) == (2, 4)

    def test_the_sample_names_what_would_change_from_what_to_what(self) -> None:
        summary = plan_summary([self.plan("a", Change.CHANGE), self.plan("b", Change.UNCHANGED)])
        assert summary.to_wire()["sample"] == [{"node": "a", "from": "old", "to": "new"}]

    def test_the_sample_holds_the_first_ten_by_name_whatever_the_order(self) -> None:
        plans = [self.plan(f"n{number:02}", Change.ADD) for number in range(30)]
        for order in (plans, plans[::-1]):
            summary = plan_summary(order)
            assert summary.add == 30
            assert [entry.node for entry in summary.sample] == [f"n{number:02}" for number in range(10)]

    def test_of_nothing_it_is_all_zero(self) -> None:
        assert plan_summary([]) == PlanSummary()
