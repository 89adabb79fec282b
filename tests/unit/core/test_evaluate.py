"""The one decision that the controller and `plan` share, and a dry run's plan as if it were enforced."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import NOW, PolicyBuilder, make_node, make_policy, make_record, make_report, ranked

from gpusharing.core.desired_state import Layout, Outcome, as_enforced
from gpusharing.core.evaluate import evaluate, holder_of, holds, plan_as_if_enforced
from gpusharing.core.matching import Node
from gpusharing.core.plan import Change, NodePlan, Situation
from gpusharing.core.progress import Progress
from gpusharing.core.records import Record
from gpusharing.core.status import NodeState

NODE = make_node("a")
POLICY = make_policy().sharing(4)
NAME = POLICY.rendered().name
RECORD = make_record(NODE.build(), POLICY)


def decided(node: Node, record: Record | None = None, layout: Layout = "per-node", **fields: Any) -> NodeState:
    policies = {"p": POLICY.build(layout)}
    arguments = {"holder": holder_of(record, policies), "record": record, "report": None, **fields}
    return evaluate(node, ranked(*policies.values()), situation=Situation(layout, NOW), **arguments)


def test_an_owned_node_has_its_plan_and_its_progress() -> None:
    report = make_report("a").serving(POLICY.rendered()).build()
    state = decided(NODE.config(NAME).build(), RECORD, report=report)
    assert (state.owner, state.written, state.verdict.progress) == ("p", True, Progress.APPLIED)


def test_in_layout_shared_allocatable_is_asked_and_no_report() -> None:
    node = NODE.config(POLICY.rendered("shared").name).gpus(2).allocatable(gpu=8).build()
    report = make_report("a").build()
    assert decided(node, layout="shared", report=report).verdict.progress is Progress.APPLIED


def test_a_node_without_labels_counts_if_its_plugin_reports_gpus() -> None:
    bare = NODE.without("nvidia.com/gpu.product").build()
    assert decided(bare).assignment.outcome is Outcome.UNCLAIMED
    assert decided(bare, report=make_report("a").build()).assignment.outcome is Outcome.OWNED
    assert decided(bare, report=make_report("a").gpus(0).build()).assignment.outcome is Outcome.UNCLAIMED


def test_what_the_node_cannot_have_is_said() -> None:
    wants_mig = make_policy().mig("mixed").sharing({"nvidia.com/mig-1g.5gb": 2})
    state = evaluate(
        NODE.build(), [wants_mig.build()], holder=None, record=None, report=None, situation=Situation("per-node", NOW)
    )
    assert state.lacking == ("nvidia.com/mig-1g.5gb",)


def test_of_a_node_that_nobody_owns_no_progress_is_judged() -> None:
    state = decided(NODE.skipped().build(), RECORD)
    assert (state.plan.change, state.verdict.progress, state.lacking) == (Change.SKIPPED, Progress.AWAITING, ())


class TestHolder:
    @pytest.mark.parametrize(
        ("record", "policy", "want"),
        [
            (RECORD, POLICY, True),
            (RECORD, POLICY.uid("recreated"), False),
            (replace(RECORD, policy_uid=""), POLICY, True),
            (RECORD, make_policy("q"), False),
            (replace(RECORD, ours=False), POLICY, False),
            (None, POLICY, False),
        ],
        ids=["its own", "recreated under the name", "without a uid", "another", "a foreign ConfigMap", "no record"],
    )
    def test_a_record_is_held_by_the_very_policy_it_was_written_for(
        self, record: Record | None, policy: PolicyBuilder, want: bool
    ) -> None:
        built = policy.build()
        assert holds(built, record) is want
        assert holder_of(record, {built.name: built}) is (built if want else None)


class TestPlanAsIfEnforced:
    DRY = POLICY.dry_run()

    def plan(
        self, node: Node, *others: PolicyBuilder, record: Record | None = None, dry: PolicyBuilder = DRY
    ) -> NodePlan | None:
        policies = ranked(dry.build(), *(other.build() for other in others))
        return plan_as_if_enforced(
            node,
            policies,
            as_enforced(dry.build()),
            record=record,
            report=None,
            situation=Situation("per-node", NOW),
        )

    def change(self, *args: Any, **kwargs: Any) -> Change | None:
        plan = self.plan(*args, **kwargs)
        return plan.change if plan else None

    def test_a_free_node_would_be_added(self) -> None:
        plan = self.plan(NODE.build())
        assert plan is not None
        assert (plan.change, plan.before, plan.after) == (Change.ADD, "", NAME)

    def test_a_node_of_a_lower_priority_would_change(self) -> None:
        other = make_policy("other").priority(-1)
        record = make_record(NODE.build(), other)
        assert self.change(NODE.config(record.config).build(), other, record=record) is Change.CHANGE

    def test_a_node_of_a_higher_priority_is_none_of_its_business(self) -> None:
        assert self.change(NODE.build(), make_policy("other").priority(1)) is None

    def test_a_node_that_it_does_not_match_neither(self) -> None:
        assert self.change(NODE.build(), dry=self.DRY.selecting({"team": "x"})) is None

    def test_a_node_that_it_holds_and_no_longer_matches_would_be_released(self) -> None:
        node = NODE.config(NAME).build()
        assert self.change(node, record=RECORD, dry=self.DRY.selecting({"team": "x"})) is Change.RELEASE

    def test_a_node_that_it_holds_as_it_wants_it_would_not_change(self) -> None:
        assert self.change(NODE.config(NAME).build(), record=RECORD) is Change.UNCHANGED

    def test_a_node_that_it_holds_and_a_higher_one_matches_would_be_handed_over(self) -> None:
        plan = self.plan(NODE.config(NAME).build(), make_policy("other").priority(1), record=RECORD)
        assert plan is not None
        assert (plan.change, plan.after) == (Change.CHANGE, make_policy("other").rendered().name)

    def test_a_node_under_skip_would_be_skipped(self) -> None:
        assert self.change(NODE.skipped().build()) is Change.SKIPPED

    def test_also_if_another_dry_run_ranks_higher(self) -> None:
        assert self.change(NODE.skipped().build(), make_policy("other").priority(1).dry_run()) is Change.SKIPPED

    def test_a_node_that_another_dry_run_keeps_would_stay_as_it_is(self) -> None:
        other = make_policy("other").dry_run()
        record = make_record(NODE.build(), other)
        assert self.change(NODE.config(record.config).build(), other, record=record) is Change.FROZEN

    def test_what_it_says_is_what_is_then_planned(self) -> None:
        enforced = evaluate(
            NODE.build(),
            [POLICY.build()],
            holder=None,
            record=None,
            report=None,
            situation=Situation("per-node", NOW),
        )
        assert self.plan(NODE.build()) == enforced.plan
