"""Whatever stands in the cluster, and wherever a pass is cut: the writes of a plan lead to a plan without writes.

The cluster is the model of `tests/support/cluster_model.py`; the decisions are those of the controller.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.support.builders import NOW, PolicyBuilder, ago, make_node, make_policy, make_record, ranked
from tests.support.cluster_model import Conflict, PaperCluster

from gpusharing.api import names
from gpusharing.core.desired_state import Layout, Outcome, Policy
from gpusharing.core.evaluate import evaluate, holder_of
from gpusharing.core.plan import Action, ApplyRecord, Change, NodePlan, SetLabel, Situation
from gpusharing.core.records import Record
from gpusharing.core.sharedconfig import NOTHING_SHARED, SharedConfig

NODE = make_node("a")
POLICIES: dict[str, PolicyBuilder] = {
    "enforced": make_policy("enforced").sharing(4).born(ago(days=9)),
    "edited": make_policy("enforced").sharing(8).born(ago(days=9)),
    "adopting": make_policy("adopting").sharing(2).priority(1).adopting(),
    "dry-run": make_policy("dry-run").sharing(3).dry_run(),
    "was-enforced": make_policy("enforced").sharing(4).dry_run().born(ago(days=9)),
    "elsewhere": make_policy("enforced").sharing(4).selecting({"team": "x"}),
    "recreated": make_policy("enforced").sharing(4).uid("recreated"),
    "broken": make_policy("enforced").invalid(),
}
TEXTS = {b.rendered().name: b.rendered().text for key, b in POLICIES.items() if key != "broken"}
CONFIGS = sorted(TEXTS)
LAYOUTS: list[Layout] = ["per-node", "shared"]


@dataclass
class World:
    """A cluster, the policies of the moment, and the clock."""

    cluster: PaperCluster
    policies: list[Policy]
    layout: Layout
    shared: SharedConfig = NOTHING_SHARED

    def plan(self, *, everything_visible: bool = True) -> NodePlan:
        shared = self.shared
        if everything_visible:
            texts = {policy.rendered.name: policy.rendered.text for policy in self.policies if policy.rendered}
            data = {**shared.data, **texts}
            shared = SharedConfig(data=data, written=dict.fromkeys(data, ago(days=1)))
        record = self.cluster.record()
        return evaluate(
            self.cluster.observed(),
            ranked(*self.policies),
            holder=holder_of(record, {policy.name: policy for policy in self.policies}),
            record=record,
            report=None,
            situation=Situation(self.layout, NOW, shared=shared, sync_delay=timedelta(seconds=120)),
        ).plan

    def run(self, *, until: int | None = None) -> NodePlan:
        """Carry a plan out, or its first few writes."""
        plan = self.plan()
        for action in plan.actions[:until]:
            served = self._served()
            self.cluster.apply(action)
            self._nothing_is_lost(action, served)
        return plan

    def _served(self) -> set[str]:
        """The config that the node's plugin runs and reads from the record: the label's, unless somebody damaged it."""
        record, label = self.cluster.record(), self.cluster.label
        intact = record is not None and record.data.get(label) == TEXTS.get(label, "")
        return {label} if intact and self.layout == "per-node" else set()

    def _nothing_is_lost(self, action: Action, served: set[str]) -> None:
        """A label names a config that its plugin can read, before and after it moves."""
        record = self.cluster.record()
        if isinstance(action, ApplyRecord):
            assert record is not None
            assert served <= set(record.data)
        if isinstance(action, SetLabel) and self.layout == "per-node":
            assert record is not None
            assert action.value in record.data
            assert record.node_uid == action.uid


OURS, THEIRS, RESTORED = names.FIELD_MANAGER, "kubectl-label", names.RESTORING_FIELD_MANAGER
FOREIGN_OWNERS = [frozenset({THEIRS}), frozenset({RESTORED}), frozenset({THEIRS, RESTORED})]
OWNERS = [frozenset({OURS}), frozenset({OURS, THEIRS}), *FOREIGN_OWNERS]
DAMAGES: list[dict[str, Any]] = [
    {},
    {"ours": False},
    {"node_uid": "gone"},
    {"node_uid": ""},
    {"data": {}},
    {"data": {"notes": "mine"}},
    {"config": ""},
    {"policy": "", "policy_uid": ""},
]


def labels(owners: list[frozenset[str]]) -> st.SearchStrategy[tuple[str, frozenset[str]]]:
    return st.tuples(st.sampled_from([*CONFIGS, "theirs", "stray-00000000"]), st.sampled_from(owners))


def records(damages: list[dict[str, Any]]) -> st.SearchStrategy[Record]:
    """A record in any state that a crash, a person or an older policy can leave."""
    return st.builds(
        lambda key, previous, damage: replace(
            make_record(NODE.build(), POLICIES[key], previous_label=previous), **damage
        ),
        st.sampled_from(["enforced", "edited", "adopting", "dry-run"]),
        st.sampled_from([None, "theirs"]),
        st.sampled_from(damages),
    )


ANY_LABEL = st.just(("", frozenset[str]())) | labels(OWNERS)
ANY_RECORD = st.none() | records(DAMAGES)
SELDOM = st.sampled_from([False, False, False, True])


def worlds(
    *,
    label: st.SearchStrategy[tuple[str, frozenset[str]]] = ANY_LABEL,
    record: st.SearchStrategy[Record | None] = ANY_RECORD,
    skipped: st.SearchStrategy[bool] = SELDOM,
) -> st.SearchStrategy[World]:
    """Any state of one node."""
    policies = st.lists(st.sampled_from(sorted(POLICIES)), max_size=3, unique_by=lambda key: POLICIES[key].name)
    return st.builds(_world, label, record, skipped, policies, st.sampled_from(LAYOUTS))


def _world(
    label: tuple[str, frozenset[str]], record: Record | None, skipped: bool, keys: list[str], layout: Layout
) -> World:
    node = NODE.skipped() if skipped else NODE
    cluster = PaperCluster(node, *label, {"a": record} if record else {})
    return World(cluster, [POLICIES[key].build(layout) for key in keys], layout)


def snapshot(world: World) -> tuple[Any, ...]:
    cluster = world.cluster
    return (cluster.label, cluster.managers, dict(cluster.records))


@given(worlds())
def test_after_two_passes_there_is_nothing_left_to_write(world: World) -> None:
    event(str(world.plan().change))
    world.run()
    world.run()
    assert world.plan().actions == ()
    assert world.plan().wait is None


@given(worlds(), st.lists(st.integers(0, 2), max_size=4))
def test_a_pass_that_ends_after_any_write_leads_to_the_same_place(world: World, cuts: list[int]) -> None:
    whole = World(
        PaperCluster(world.cluster.node, world.cluster.label, world.cluster.managers, dict(world.cluster.records)),
        world.policies,
        world.layout,
    )
    for _ in range(3):
        whole.run()
    for cut in cuts:
        world.run(until=cut)
    for _ in range(3):
        world.run()
    assert snapshot(world) == snapshot(whole)


@given(
    worlds(),
    st.lists(st.tuples(st.lists(st.sampled_from(sorted(POLICIES)), max_size=2), st.integers(0, 2)), max_size=4),
)
def test_also_if_the_policies_change_between_the_cuts(world: World, edits: list[Any]) -> None:
    for keys, cut in edits:
        world.policies = list({POLICIES[key].name: POLICIES[key].build(world.layout) for key in keys}.values())
        world.run(until=cut)
    world.run()
    world.run()
    assert world.plan().actions == ()


@given(worlds())
def test_an_owned_node_ends_with_label_and_record_as_its_owner_wants_them(world: World) -> None:
    plan = world.plan()
    if plan.change not in {Change.ADD, Change.CHANGE, Change.REPAIR}:
        return
    world.run()
    world.run()
    record = world.cluster.record()
    assert record is not None
    assert (world.cluster.label, record.config) == (plan.after, plan.after)
    assert world.plan().change is Change.UNCHANGED


@given(worlds(skipped=st.just(False)))
def test_a_released_node_ends_without_anything_of_ours(world: World) -> None:
    world.policies = []
    world.run()
    world.run()
    assert OURS not in world.cluster.managers
    record = world.cluster.record()
    assert record is None or not record.ours


@given(worlds())
def test_what_a_plan_says_the_label_will_be_it_is(world: World) -> None:
    plan = world.run()
    assert world.cluster.label == plan.after


NOBODY_S = records([{"ours": False}, {"node_uid": "gone"}])


@given(worlds(label=labels(FOREIGN_OWNERS), record=st.none() | NOBODY_S))
def test_a_label_that_is_not_ours_is_not_touched_unless_adopted(world: World) -> None:
    cluster, plan = world.cluster, world.plan()
    owner = next((policy for policy in world.policies if policy.rendered and policy.rendered.name == plan.after), None)
    before = (cluster.label, cluster.managers)
    world.run()
    world.run()
    adopted = plan.change is Change.ADD and owner is not None and owner.spec is not None and owner.spec.adopt_manual
    assert adopted or (cluster.label, cluster.managers) == before


@given(worlds(skipped=st.just(True)) | worlds(record=records([{"policy": "dry-run", "policy_uid": "uid-dry-run"}])))
def test_a_node_under_skip_or_kept_by_a_dry_run_is_not_written_to(world: World) -> None:
    world.policies = [*(policy for policy in world.policies if policy.name != "dry-run"), POLICIES["dry-run"].build()]
    assert world.plan().change in {Change.SKIPPED, Change.FROZEN}
    before = snapshot(world)
    world.run()
    assert (snapshot(world), world.cluster.writes) == (before, 0)


@given(worlds(record=records([{"ours": False}])))
def test_a_foreign_configmap_is_neither_written_nor_deleted(world: World) -> None:
    record = world.cluster.record()
    world.run()
    world.run()
    assert world.cluster.record() == record


@given(worlds())
def test_no_write_is_without_effect(world: World) -> None:
    plan = world.plan()
    for action in plan.actions:
        before = snapshot(world)
        world.cluster.apply(action)
        assert snapshot(world) != before, action


@given(st.sampled_from(LAYOUTS), st.sampled_from(["theirs", *CONFIGS]))
def test_an_adopted_node_gets_its_value_back(layout: Layout, value: str) -> None:
    cluster = PaperCluster(NODE, value, frozenset({THEIRS}))
    mounted = SharedConfig(data={value: "version: v1"})
    world = World(cluster, [POLICIES["adopting"].build(layout)], layout, mounted)
    world.run()
    assert cluster.label == POLICIES["adopting"].rendered(layout).name
    world.policies = []
    world.run()
    world.run()
    assert (cluster.label, cluster.record()) == (value, None)
    assert OURS not in cluster.managers


@given(worlds())
def test_in_layout_shared_no_label_moves_to_a_key_that_readers_do_not_have(world: World) -> None:
    world.layout = "shared"
    world.policies = [policy for policy in world.policies if policy.rendered]
    plan = world.plan(everything_visible=False)
    assert not any(isinstance(action, SetLabel) for action in plan.actions)
    owned = plan.change in {Change.ADD, Change.CHANGE, Change.REPAIR}
    assert (plan.wait is not None) == (owned and plan.before != plan.after)


def test_the_model_refuses_what_a_server_would_refuse() -> None:
    cluster = PaperCluster(NODE, "theirs", frozenset({THEIRS}))
    with pytest.raises(Conflict, match="kubectl-label"):
        cluster.apply(SetLabel("a", "uid-a", "ours", force=False))
    with pytest.raises(AssertionError, match="another uid"):
        cluster.apply(SetLabel("a", "uid-b", "ours", force=True))
    assert cluster.label == "theirs"


def test_outcomes_of_all_kinds_are_reached() -> None:
    """The states above are not all of one kind: each outcome has one that is known to lead there."""
    by_outcome = {
        Outcome.OWNED: (["enforced"], NODE),
        Outcome.UNCLAIMED: (["elsewhere"], NODE),
        Outcome.HANDS_OFF: (["enforced"], NODE.skipped()),
        Outcome.FROZEN: (["was-enforced"], NODE),
    }
    changes = set()
    for keys, node in by_outcome.values():
        record = make_record(NODE.build(), POLICIES["enforced"])
        cluster = PaperCluster(node, record.config, frozenset({OURS}), {"a": record})
        changes.add(World(cluster, [POLICIES[key].build() for key in keys], "per-node").plan().change)
    assert changes == {Change.UNCHANGED, Change.RELEASE, Change.SKIPPED, Change.FROZEN}
