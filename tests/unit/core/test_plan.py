"""One node's plan: every kind of change, the order of writes, and what is never touched."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import NOW, NodeBuilder, PolicyBuilder, ago, make_node, make_policy, make_record

from gpusharing.api import names
from gpusharing.core.desired_state import Assignment, Layout, Outcome
from gpusharing.core.plan import (
    ApplyRecord,
    Change,
    DeleteRecord,
    NodePlan,
    ReleaseLabel,
    RestoreLabel,
    SetLabel,
    Situation,
    plan_node,
)
from gpusharing.core.records import Record
from gpusharing.core.sharedconfig import SharedConfig

OLD, NEW = make_policy().sharing(2), make_policy().sharing(4)
OLD_NAME, NEW_NAME = OLD.rendered().name, NEW.rendered().name
NODE = make_node("a")
HELD = make_record(NODE.build(), NEW)
HELD_OLD = make_record(NODE.build(), OLD)
FOREIGN = replace(HELD, ours=False)


def situation(layout: Layout = "per-node", **fields: Any) -> Situation:
    return Situation(layout, NOW, **fields)


def owned(
    node: NodeBuilder, record: Record | None, policy: PolicyBuilder = NEW, layout: Layout = "per-node", **fields: Any
) -> NodePlan:
    assignment = Assignment(Outcome.OWNED, policy.build(layout), (policy.name,))
    return plan_node(node.build(), assignment, record, situation(layout, **fields))


def unclaimed(node: NodeBuilder, record: Record | None, layout: Layout = "per-node", **fields: Any) -> NodePlan:
    return plan_node(node.build(), Assignment(Outcome.UNCLAIMED), record, situation(layout, **fields))


def kinds(plan: NodePlan) -> list[str]:
    return [type(action).__name__ for action in plan.actions]


class TestAdd:
    def test_the_record_is_written_then_the_label(self) -> None:
        plan = owned(NODE, None)
        assert plan == NodePlan(
            "a", Change.ADD, "", NEW_NAME, (ApplyRecord(HELD), SetLabel("a", "uid-a", NEW_NAME, force=False))
        )

    def test_a_node_that_was_created_anew_is_new_whatever_its_old_record_says(self) -> None:
        plan = owned(NODE.uid("new"), HELD)
        assert (plan.change, kinds(plan)) == (Change.ADD, ["ApplyRecord", "SetLabel"])
        assert plan.actions[0] == ApplyRecord(replace(HELD, node_uid="new"))
        assert plan.actions[1] == SetLabel("a", "new", NEW_NAME, force=False)


class TestChange:
    def test_the_record_keeps_both_configs_and_comes_first(self) -> None:
        plan = owned(NODE.config(OLD_NAME), HELD_OLD)
        record = replace(HELD, data={**HELD.data, **HELD_OLD.data})
        assert plan == NodePlan(
            "a", Change.CHANGE, OLD_NAME, NEW_NAME, (ApplyRecord(record), SetLabel("a", "uid-a", NEW_NAME, force=False))
        )

    def test_a_pass_that_was_cut_after_the_record_moves_the_label_alone(self) -> None:
        record = replace(HELD, data={**HELD.data, **HELD_OLD.data})
        plan = owned(NODE.config(OLD_NAME), record)
        assert (plan.change, kinds(plan)) == (Change.CHANGE, ["SetLabel"])

    def test_a_first_pass_that_was_cut_after_the_record_too(self) -> None:
        plan = owned(NODE, HELD)
        assert (plan.change, kinds(plan)) == (Change.CHANGE, ["SetLabel"])

    def test_another_policy_with_the_same_config_takes_the_record_over_and_leaves_the_label(self) -> None:
        plan = owned(NODE.config(NEW_NAME), HELD, make_policy("q").sharing(4))
        assert (plan.change, kinds(plan), plan.before, plan.after) == (
            Change.CHANGE,
            ["ApplyRecord"],
            NEW_NAME,
            NEW_NAME,
        )

    def test_a_policy_that_was_recreated_takes_its_own_record_over(self) -> None:
        plan = owned(NODE.config(NEW_NAME), HELD, NEW.uid("recreated"))
        assert (plan.change, kinds(plan)) == (Change.CHANGE, ["ApplyRecord"])

    def test_a_label_of_ours_whose_record_is_gone_moves_on(self) -> None:
        plan = owned(NODE.config(OLD_NAME), None)
        assert (plan.change, kinds(plan)) == (Change.CHANGE, ["ApplyRecord", "SetLabel"])
        assert plan.actions[1] == SetLabel("a", "uid-a", NEW_NAME, force=False)

    def test_a_label_that_somebody_else_owns_too_is_taken_by_force_or_it_would_conflict_for_ever(self) -> None:
        plan = owned(NODE.config(OLD_NAME, names.FIELD_MANAGER, "argocd"), HELD_OLD)
        assert plan.actions[-1] == SetLabel("a", "uid-a", NEW_NAME, force=True)


class TestUnchanged:
    def test_nothing_is_written(self) -> None:
        assert owned(NODE.config(NEW_NAME), HELD) == NodePlan("a", Change.UNCHANGED, NEW_NAME, NEW_NAME)

    def test_a_second_owner_of_the_same_value_is_no_reason_to_write(self) -> None:
        assert owned(NODE.config(NEW_NAME, names.FIELD_MANAGER, "argocd"), HELD).change is Change.UNCHANGED

    def test_a_foreign_key_in_the_record_is_no_reason_to_write(self) -> None:
        assert owned(NODE.config(NEW_NAME), replace(HELD, data={**HELD.data, "x": "y"})).change is Change.UNCHANGED

    def test_a_node_without_gpus_that_we_never_touched_is_not_touched(self) -> None:
        assert unclaimed(NODE.manual("theirs"), None) == NodePlan("a", Change.UNCHANGED, "theirs", "theirs")


class TestRepair:
    def test_a_label_that_was_edited_is_put_back_by_force(self) -> None:
        plan = owned(NODE.manual("theirs"), HELD)
        assert (plan.change, plan.before) == (Change.REPAIR, "theirs")
        assert plan.actions == (SetLabel("a", "uid-a", NEW_NAME, force=True),)

    def test_a_label_that_was_removed_is_put_back_if_it_was_there(self) -> None:
        plan = owned(NODE, HELD, settled=NEW_NAME)
        assert (plan.change, plan.actions) == (Change.REPAIR, (SetLabel("a", "uid-a", NEW_NAME, force=False),))

    def test_a_label_that_was_set_back_to_the_former_value_is_put_back_if_it_had_moved(self) -> None:
        record = replace(HELD, data={**HELD.data, **HELD_OLD.data})
        assert owned(NODE.manual(OLD_NAME), record, settled=NEW_NAME).change is Change.REPAIR

    @pytest.mark.parametrize(
        "record",
        [
            replace(HELD, data={}),
            replace(HELD, data={NEW_NAME: "edited"}),
            replace(HELD, policy="somebody"),
            replace(HELD, node_uid=""),
        ],
        ids=["emptied", "text edited", "annotation edited", "owner removed"],
    )
    def test_a_record_that_was_damaged_is_written_again(self, record: Record) -> None:
        plan = owned(NODE.config(NEW_NAME), record)
        assert (plan.change, plan.actions) == (Change.REPAIR, (ApplyRecord(HELD),))

    def test_a_record_that_was_deleted_is_written_again(self) -> None:
        plan = owned(NODE.config(NEW_NAME), None)
        assert (plan.change, plan.actions) == (Change.REPAIR, (ApplyRecord(HELD),))


class TestManual:
    def test_a_label_that_a_person_set_is_left_alone(self) -> None:
        assert owned(NODE.manual("theirs"), None) == NodePlan("a", Change.MANUAL, "theirs", "theirs")

    def test_also_if_it_happens_to_be_the_value_that_we_would_set(self) -> None:
        assert owned(NODE.manual(NEW_NAME), None).change is Change.MANUAL

    def test_also_if_the_owners_of_the_label_are_not_known(self) -> None:
        assert owned(NODE.label(names.CONFIG_LABEL, "theirs"), None).change is Change.MANUAL

    def test_also_a_value_that_we_had_put_back(self) -> None:
        assert owned(NODE.config("theirs", names.RESTORING_FIELD_MANAGER), None).change is Change.MANUAL

    def test_also_on_a_node_that_was_created_anew_with_a_label(self) -> None:
        assert owned(NODE.uid("new").config("theirs", "kubelet"), HELD).change is Change.MANUAL


class TestAdoption:
    def test_the_old_value_is_recorded_before_the_label_moves(self) -> None:
        plan = owned(NODE.manual("theirs"), None, NEW.adopting())
        assert plan.change is Change.ADD
        assert plan.actions == (
            ApplyRecord(replace(HELD, previous_label="theirs")),
            SetLabel("a", "uid-a", NEW_NAME, force=True),
        )

    def test_cut_after_the_record_it_goes_on_and_does_not_lose_the_old_value(self) -> None:
        record = replace(HELD, previous_label="theirs")
        plan = owned(NODE.manual("theirs"), record, NEW.adopting())
        assert (plan.change, plan.actions) == (Change.CHANGE, (SetLabel("a", "uid-a", NEW_NAME, force=True),))

    def test_a_later_change_keeps_the_old_value(self) -> None:
        plan = owned(NODE.config(OLD_NAME), replace(HELD_OLD, previous_label="theirs"))
        record = plan.actions[0]
        assert isinstance(record, ApplyRecord)
        assert record.record.previous_label == "theirs"

    def test_a_policy_that_stops_adopting_keeps_what_it_has(self) -> None:
        record = replace(HELD, previous_label="theirs")
        assert owned(NODE.config(NEW_NAME), record, NEW).change is Change.UNCHANGED

    def test_a_label_that_nobody_had_set_has_no_old_value(self) -> None:
        record = owned(NODE, None, NEW.adopting()).actions[0]
        assert isinstance(record, ApplyRecord)
        assert record.record.previous_label is None


class TestRelease:
    def test_the_label_goes_then_the_record(self) -> None:
        plan = unclaimed(NODE.config(NEW_NAME), HELD)
        assert plan == NodePlan("a", Change.RELEASE, NEW_NAME, "", (ReleaseLabel("a", "uid-a"), DeleteRecord("a")))

    def test_an_adopted_value_is_put_back(self) -> None:
        plan = unclaimed(NODE.config(NEW_NAME), replace(HELD, previous_label="theirs"))
        assert plan == NodePlan(
            "a", Change.RELEASE, NEW_NAME, "theirs", (RestoreLabel("a", "uid-a", "theirs"), DeleteRecord("a"))
        )

    def test_a_label_that_somebody_else_owns_too_stays(self) -> None:
        plan = unclaimed(NODE.config(NEW_NAME, names.FIELD_MANAGER, "argocd"), HELD)
        assert (plan.after, kinds(plan)) == (NEW_NAME, ["ReleaseLabel", "DeleteRecord"])

    def test_a_label_that_somebody_took_over_is_left_to_them(self) -> None:
        plan = unclaimed(NODE.manual("theirs"), replace(HELD, previous_label="before"))
        assert (plan.after, kinds(plan)) == ("theirs", ["DeleteRecord"])

    def test_cut_after_the_label_the_record_still_goes(self) -> None:
        plan = unclaimed(NODE, HELD)
        assert (plan.change, kinds(plan)) == (Change.RELEASE, ["DeleteRecord"])

    def test_cut_after_an_adopted_value_was_put_back_it_is_not_taken_away_again(self) -> None:
        node = NODE.config("theirs", names.RESTORING_FIELD_MANAGER)
        plan = unclaimed(node, replace(HELD, previous_label="theirs"))
        assert (plan.after, kinds(plan)) == ("theirs", ["DeleteRecord"])

    def test_a_label_of_ours_without_a_record_goes(self) -> None:
        plan = unclaimed(NODE.config(NEW_NAME), None)
        assert (plan.change, kinds(plan)) == (Change.RELEASE, ["ReleaseLabel"])

    def test_a_configmap_that_is_not_ours_is_not_deleted(self) -> None:
        assert kinds(unclaimed(NODE.config(NEW_NAME), FOREIGN)) == ["ReleaseLabel"]
        assert unclaimed(NODE, FOREIGN).change is Change.UNCHANGED

    def test_in_layout_shared_an_adopted_value_is_put_back_if_it_has_a_key(self) -> None:
        record = replace(HELD, previous_label="theirs")
        mounted = SharedConfig(data={"theirs": "version: v1"})
        assert kinds(unclaimed(NODE.config(NEW_NAME), record, "shared", shared=mounted))[0] == "RestoreLabel"
        plan = unclaimed(NODE.config(NEW_NAME), record, "shared")
        assert (kinds(plan)[0], plan.after, plan.dropped) == ("ReleaseLabel", "", "theirs")


class TestLeftAlone:
    @pytest.mark.parametrize("node", [NODE, NODE.manual("x"), NODE.config(OLD_NAME)], ids=["bare", "manual", "ours"])
    @pytest.mark.parametrize("record", [None, HELD_OLD, FOREIGN], ids=["no record", "a record", "a foreign one"])
    @pytest.mark.parametrize(
        ("outcome", "change"), [(Outcome.HANDS_OFF, Change.SKIPPED), (Outcome.FROZEN, Change.FROZEN)]
    )
    def test_nothing_is_written(
        self, node: NodeBuilder, record: Record | None, outcome: Outcome, change: Change
    ) -> None:
        plan = plan_node(node.build(), Assignment(outcome, NEW.build()), record, situation())
        label = node.build().config_label
        assert plan == NodePlan("a", change, label, label)

    def test_a_configmap_of_the_record_s_name_that_is_not_ours_is_refused_never_forced(self) -> None:
        for node in (NODE, NODE.manual("x"), NODE.config(OLD_NAME)):
            plan = owned(node, FOREIGN, NEW.adopting())
            assert (plan.change, plan.actions) == (Change.REFUSED, ())

    def test_also_the_shared_one_of_layout_shared(self) -> None:
        foreign = SharedConfig(exists=True, ours=False)
        plan = owned(NODE, None, NEW.adopting(), layout="shared", shared=foreign)
        assert (plan.change, plan.actions, plan.wait) == (Change.REFUSED, (), None)


class TestLayoutShared:
    NAME = NEW.rendered("shared").name
    RECORD = replace(HELD, config=NAME, data={})
    DELAY = timedelta(seconds=120)

    def shared(self, **age: float) -> SharedConfig:
        return SharedConfig(data={self.NAME: "x"}, written={self.NAME: ago(**age)})

    def test_the_record_is_written_at_once_and_the_label_waits_for_the_key(self) -> None:
        plan = owned(NODE, None, layout="shared")
        assert (plan.change, plan.actions, plan.wait) == (Change.ADD, (ApplyRecord(self.RECORD),), self.DELAY)

    def test_then_for_the_readers(self) -> None:
        plan = owned(NODE, self.RECORD, layout="shared", shared=self.shared(seconds=100))
        assert (plan.actions, plan.wait, plan.after) == ((), timedelta(seconds=20), self.NAME)

    def test_then_it_moves(self) -> None:
        plan = owned(NODE, self.RECORD, layout="shared", shared=self.shared(seconds=120))
        assert (plan.actions, plan.wait) == ((SetLabel("a", "uid-a", self.NAME, force=False),), None)

    def test_a_change_that_waits_for_its_readers_is_no_repair(self) -> None:
        """The record is written, the label is still ours and at the old value: nobody has drifted."""
        old = OLD.rendered("shared").name
        waiting = owned(NODE.config(old), self.RECORD, layout="shared", shared=self.shared(seconds=1), settled=old)
        moving = owned(NODE.config(old), self.RECORD, layout="shared", shared=self.shared(hours=1), settled=old)
        assert (waiting.change, moving.change) == (Change.CHANGE, Change.CHANGE)

    def test_a_label_that_somebody_edited_is_one(self) -> None:
        plan = owned(NODE.manual("theirs"), self.RECORD, layout="shared", shared=self.shared(hours=1))
        assert (plan.change, plan.actions) == (Change.REPAIR, (SetLabel("a", "uid-a", self.NAME, force=True),))

    def test_a_label_that_is_right_waits_for_nothing(self) -> None:
        assert owned(NODE.config(self.NAME), self.RECORD, layout="shared").wait is None

    def test_the_delay_is_a_setting(self) -> None:
        assert owned(NODE, None, layout="shared", sync_delay=timedelta(seconds=12)).wait == timedelta(seconds=12)

    def test_no_delay_moves_the_label_as_soon_as_the_key_is_there(self) -> None:
        written = self.shared(seconds=0)
        plan = owned(NODE, self.RECORD, layout="shared", shared=written, sync_delay=timedelta(0))
        assert (kinds(plan), plan.wait) == (["SetLabel"], None)
