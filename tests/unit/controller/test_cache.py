"""What the cache takes in, which keys follow, and what it concludes."""

from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import (
    NodeBuilder,
    PolicyBuilder,
    ReportBuilder,
    make_node,
    make_policy,
    make_record,
    make_report,
)

from gpusharing.api import names
from gpusharing.controller.cache import Cache, is_record
from gpusharing.controller.keys import SHARED_KEY, Key
from gpusharing.core.desired_state import Layout, Outcome
from gpusharing.core.plan import Change
from gpusharing.core.progress import Progress
from gpusharing.core.records import Record, record_object
from gpusharing.core.repairs import Repairs
from gpusharing.core.sharedconfig import SharedConfig

GONE_AFTER = 30.0
FOUR = make_policy("four").sharing(4)
EIGHT = make_policy("eight").sharing(8)


def new_cache(layout: Layout = "per-node") -> Cache:
    return Cache(layout, sync_delay=timedelta(seconds=120), plugin_gone_after=GONE_AFTER)


def seen_at(version: int, obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def put(cache: Cache, *builders: NodeBuilder | PolicyBuilder | ReportBuilder | Record) -> set[Key]:
    """Take these in. Returns the keys."""
    keys: set[Key] = set()
    for builder in builders:
        match builder:
            case NodeBuilder():
                keys |= cache.put_node(builder.object())
            case PolicyBuilder():
                keys |= cache.put_policy(builder.object())
            case ReportBuilder():
                keys |= cache.put_report(builder.object())
            case Record():
                keys |= cache.put_record(record_object(builder, names.NAMESPACE))
    return keys


def decided(cache: Cache, *nodes: str, at: float = 0.0) -> set[Key]:
    """Decide about these nodes, or all. Returns the keys."""
    return {key for name in nodes or sorted(cache.nodes) for key in cache.evaluate(name, at)}


def node_keys(*nodes: str) -> set[Key]:
    return {("node", name) for name in nodes}


def with_status(policy: PolicyBuilder, version: int, **status: Any) -> dict[str, Any]:
    return {**seen_at(version, policy.object()), "status": status}


# --- policies


def test_a_new_policy_brings_up_itself_and_every_node_that_it_names() -> None:
    cache = new_cache()
    put(cache, make_node("a").label("team", "x"), make_node("b"), make_node("cpu").without(names.PRODUCT_LABEL))
    decided(cache)
    policy = make_policy("p").selecting({"team": "x"})
    assert put(cache, policy) == {("policy", "p"), ("node", "a")}
    assert put(cache, EIGHT) == {("policy", "eight"), *node_keys("a", "b")}


def test_a_new_spec_brings_up_the_nodes_of_the_old_selector_and_of_the_new_one() -> None:
    cache = new_cache()
    put(cache, make_node("a").label("team", "x"), make_node("b").label("team", "y"), make_node("c"))
    put(cache, make_policy("p").selecting({"team": "x"}))
    decided(cache)
    moved = make_policy("p").selecting({"team": "y"}).generation(2)
    assert put(cache, moved) == {("policy", "p"), *node_keys("a", "b")}


def test_a_policy_whose_generation_is_the_same_brings_up_nothing() -> None:
    cache = new_cache()
    put(cache, make_node(), FOUR)
    decided(cache)
    assert cache.put_policy(seen_at(7, FOUR.object())) == set()
    assert cache.policies["four"].resource_version == "7"


def test_a_policy_created_anew_under_the_name_is_another_policy() -> None:
    cache = new_cache()
    put(cache, make_node(), FOUR)
    decided(cache)
    assert put(cache, FOUR.uid("uid-of-the-next")) == {("policy", "four"), ("node", "a")}


def test_a_status_that_somebody_changed_brings_up_its_policy_and_no_node() -> None:
    cache = new_cache()
    put(cache, make_node())
    cache.put_policy(with_status(FOUR, 1, observedGeneration=1, configName="x"))
    decided(cache)
    assert cache.put_policy(with_status(FOUR, 2, observedGeneration=1)) == {("policy", "four")}
    assert cache.put_policy(with_status(FOUR, 3, observedGeneration=1)) == set()


def test_a_status_that_cannot_be_read_counts_as_none() -> None:
    cache = new_cache()
    cache.put_policy(with_status(FOUR, 1, observedGeneration="many"))
    assert cache.policies["four"].status.observed_generation is None


def test_an_invalid_policy_still_brings_up_the_nodes_that_it_held() -> None:
    cache = new_cache()
    node = make_node().config(FOUR.rendered().name)
    put(cache, node, make_node("b"), FOUR, make_record(node.build(), FOUR))
    decided(cache)
    assert put(cache, FOUR.invalid().generation(2)) == {("policy", "four"), *node_keys("a", "b")}
    decided(cache)
    assert cache.states["a"].assignment.outcome is Outcome.FROZEN
    assert cache.states["b"].assignment.outcome is Outcome.UNCLAIMED


def test_a_deleted_policy_brings_up_its_nodes_and_those_that_it_holds_by_record() -> None:
    cache = new_cache()
    held = make_node("held").label("team", "y")
    put(cache, make_node("a").label("team", "x"), held, make_node("c"))
    policy = make_policy("p").selecting({"team": "x"})
    put(cache, policy, make_record(held.build(), policy))
    decided(cache)
    assert cache.bury("policy", policy.object()["metadata"]) == node_keys("a", "held")
    assert cache.ranked == ()


def test_the_deletion_of_a_former_policy_of_the_name_is_none() -> None:
    cache = new_cache()
    put(cache, FOUR.uid("uid-of-the-next"))
    assert cache.bury("policy", FOUR.object()["metadata"]) == set()
    assert "four" in cache.policies


def test_policies_are_ranked_whatever_the_order_in_which_they_came() -> None:
    cache = new_cache()
    put(cache, FOUR, EIGHT.priority(10), make_policy("p").priority(5))
    assert [policy.name for policy in cache.ranked] == ["eight", "p", "four"]
    cache.drop_policy("eight")
    assert [policy.name for policy in cache.ranked] == ["p", "four"]


# --- nodes


def test_a_heartbeat_is_a_no_op() -> None:
    cache = new_cache()
    node = make_node().allocatable(gpu=8)
    assert put(cache, node) == node_keys("a")
    beat = seen_at(2, node.object())
    beat["status"] = {**beat["status"], "conditions": [{"type": "Ready", "lastHeartbeatTime": "now"}]}
    beat["metadata"]["annotations"] = {"example.com/beat": "2"}
    assert cache.put_node(beat) == set()


@pytest.mark.parametrize(
    "changed",
    [
        make_node().label("team", "x"),
        make_node().config("x"),
        make_node().uid("uid-of-the-next"),
        make_node().allocatable(gpu=8),
    ],
    ids=["label", "config-label", "uid", "allocatable"],
)
def test_a_change_of_what_is_decided_by_brings_the_node_up(changed: NodeBuilder) -> None:
    cache = new_cache()
    put(cache, make_node())
    assert put(cache, changed) == node_keys("a")


def test_another_owner_of_the_label_is_a_change_too() -> None:
    cache = new_cache()
    put(cache, make_node().config("x"))
    assert put(cache, make_node().config("x", "kubectl-label")) == node_keys("a")


def test_the_answer_to_a_metadata_only_write_does_not_forget_allocatable() -> None:
    cache = new_cache("shared")
    put(cache, make_node().allocatable(gpu=8))
    put(cache, make_node().config("x"))
    assert cache.nodes["a"].allocatable == {"nvidia.com/gpu": 8}
    put(cache, make_node().uid("uid-of-the-next"))
    assert cache.nodes["a"].allocatable is None


def test_a_node_created_anew_starts_without_the_history_of_the_one_before() -> None:
    cache = new_cache()
    node = make_node().config(FOUR.rendered().name)
    put(cache, node, FOUR, make_record(node.build(), FOUR))
    decided(cache)
    cache.repairs["a"] = Repairs(3, 0.0, "argocd")
    cache.write_errors["a"] = "refused"
    cache.held.add("a")
    assert cache.settled == {"a": FOUR.rendered().name}
    put(cache, make_node().uid("uid-of-the-next"))
    assert (cache.settled, cache.repairs, cache.write_errors, cache.held) == ({}, {}, {}, set())


def test_a_deleted_node_is_brought_up_once_and_its_policies_when_it_is_forgotten() -> None:
    cache = new_cache()
    put(cache, make_node(), make_node("b"), FOUR)
    decided(cache)
    assert cache.bury("node", make_node().object()["metadata"]) == node_keys("a")
    assert cache.bury("node", make_node().object()["metadata"]) == set()
    assert cache.forget_state("a") == {("policy", "four")}
    assert [state.node for state in cache.states_of("four")] == ["b"]


def test_the_deletion_of_a_former_node_of_the_name_is_none() -> None:
    cache = new_cache()
    put(cache, make_node().uid("uid-of-the-next"))
    assert cache.bury("node", make_node().object()["metadata"]) == set()


def test_deciding_about_a_node_that_is_gone_decides_nothing() -> None:
    cache = new_cache()
    put(cache, make_node(), FOUR)
    decided(cache)
    cache.drop_node("a")
    assert cache.evaluate("a", 0.0) == set()


def test_a_node_out_of_scope_belongs_to_nobody() -> None:
    cache = new_cache()
    put(cache, FOUR)
    cache.put_node(make_node().object(), in_scope=False)
    decided(cache)
    assert cache.states["a"].assignment.outcome is Outcome.UNCLAIMED
    assert cache.put_node(make_node().object()) == node_keys("a")  # the watch shows it: it is in scope now


# --- reports


def test_a_report_brings_its_node_up_only_where_it_says_something_else() -> None:
    cache = new_cache()
    report = make_report().serving(FOUR.rendered())
    assert put(cache, report) == node_keys("a")
    assert cache.put_report(seen_at(2, report.object())) == set()
    assert put(cache, report.sick(0)) == node_keys("a")


def test_a_report_that_cannot_be_read_counts_as_none() -> None:
    cache = new_cache()
    put(cache, make_report())
    broken = make_report().object()
    broken["status"] = {"gpus": "many"}
    assert cache.put_report(broken) == node_keys("a")
    assert cache.reports == {}
    assert cache.put_report(broken) == set()


def test_a_report_of_gpus_makes_a_node_without_labels_a_gpu_node() -> None:
    cache = new_cache()
    put(cache, make_node().without(names.PRODUCT_LABEL), FOUR)
    decided(cache)
    assert cache.states["a"].owner == ""
    put(cache, make_report())
    assert decided(cache) == {("policy", "four")}
    assert put(cache, EIGHT.priority(5)) == {("policy", "eight"), ("node", "a")}


def test_a_deleted_report_brings_its_node_up() -> None:
    cache = new_cache()
    put(cache, make_report())
    assert cache.bury("report", make_report().object()["metadata"]) == node_keys("a")
    assert cache.bury("report", make_report().object()["metadata"]) == set()


# --- records


def test_a_record_brings_its_node_up_only_where_it_differs() -> None:
    cache = new_cache()
    record = make_record(make_node().build(), FOUR)
    assert put(cache, record) == node_keys("a")
    assert put(cache, record) == set()
    assert put(cache, make_record(make_node().build(), EIGHT)) == node_keys("a")


def test_a_record_that_stops_being_ours_is_a_change() -> None:
    cache = new_cache()
    record = make_record(make_node().build(), FOUR)
    put(cache, record)
    foreign = record_object(record, names.NAMESPACE)
    foreign["metadata"]["labels"] = {}
    assert cache.put_record(foreign) == node_keys("a")
    assert not cache.records["a"].ours


def test_a_record_that_we_deleted_is_not_brought_back_by_a_list_that_began_before() -> None:
    cache = new_cache()
    obj = seen_at(5, record_object(make_record(make_node().build(), FOUR), names.NAMESPACE))
    cache.put_record(obj)
    cache.deleted_record("a")
    assert cache.put_record(obj) == set()
    assert cache.records == {}
    assert cache.put_record(seen_at(7, obj)) == node_keys("a")


@pytest.mark.parametrize(
    ("name", "shared", "want"),
    [
        ("gpusharing-a", None, True),
        ("kube-root-ca.crt", None, False),
        ("gpusharing-all", (names.NAMESPACE, "gpusharing-all"), False),
        ("gpusharing-all", ("gpu-operator", "gpusharing-all"), True),
    ],
)
def test_a_record_is_known_by_its_name_unless_it_is_the_shared_configmap(
    name: str, shared: tuple[str, str] | None, want: bool
) -> None:
    assert is_record({"metadata": {"name": name, "namespace": names.NAMESPACE}}, shared) is want


# --- decisions


def test_a_decision_concerns_the_policies_that_match_or_matched_and_nobody_twice() -> None:
    cache = new_cache()
    put(cache, make_node(), FOUR, EIGHT.priority(10))
    assert decided(cache) == {("policy", "four"), ("policy", "eight")}
    assert decided(cache) == set()
    cache.drop_policy("eight")
    assert decided(cache) == {("policy", "four")}
    assert [state.owner for state in cache.states_of("four")] == ["four"]


def test_a_policy_counts_the_nodes_that_it_matches_and_those_that_it_keeps_frozen() -> None:
    cache = new_cache()
    kept = make_node("kept").config(FOUR.rendered().name)
    put(cache, kept, make_node("b"), make_record(kept.build(), FOUR))
    put(cache, FOUR.dry_run().selecting({"team": "nobody"}))
    decided(cache)
    assert [state.node for state in cache.states_of("four")] == ["kept"]


def test_the_label_is_settled_once_it_was_seen_as_the_record_says() -> None:
    cache = new_cache()
    want = FOUR.rendered().name
    put(cache, make_node(), FOUR, make_record(make_node().build(), FOUR))
    decided(cache)
    assert cache.settled == {}
    assert cache.states["a"].plan.change is Change.CHANGE  # a pass that was cut short, not a removed label
    put(cache, make_node().config(want))
    decided(cache)
    assert cache.settled == {"a": want}
    put(cache, make_node())
    decided(cache)
    assert cache.states["a"].plan.change is Change.REPAIR


def test_a_refused_write_is_told_until_there_is_nothing_to_write() -> None:
    cache = new_cache()
    node = make_node().config(FOUR.rendered().name)
    put(cache, node, make_record(node.build(), FOUR), EIGHT)
    cache.write_errors["a"] = "403"
    decided(cache)
    assert cache.states["a"].write_error == "403"
    cache.drop_policy("eight")
    put(cache, FOUR)
    assert decided(cache) == {("policy", "four")}
    assert cache.states["a"].write_error == ""
    assert cache.write_errors == {}


def test_a_contest_is_told_with_who_fights_until_ten_quiet_minutes_have_passed() -> None:
    cache = new_cache()
    put(cache, make_node(), FOUR)
    cache.repairs["a"] = Repairs(3, 100.0, "argocd")
    decided(cache, at=101)
    assert cache.states["a"].contested_by == "argocd"
    decided(cache, at=701)
    assert cache.states["a"].contested_by == ""


def test_a_contest_by_nobody_known_is_told_too() -> None:
    cache = new_cache()
    put(cache, make_node(), FOUR)
    cache.repairs["a"] = Repairs(3, 100.0, "")
    decided(cache, at=101)
    assert cache.states["a"].contested_by == "an unnamed manager"


def test_a_release_is_held_no_longer_once_somebody_claims_the_node() -> None:
    cache = new_cache()
    node = make_node().config(FOUR.rendered().name)
    put(cache, node, make_record(node.build(), FOUR))
    decided(cache)
    cache.held.add("a")
    decided(cache)
    assert cache.held == {"a"}
    put(cache, EIGHT)
    decided(cache)
    assert cache.held == set()


def test_a_dry_run_is_planned_as_if_it_were_enforced_and_changes_nothing() -> None:
    cache = new_cache()
    put(cache, make_node(), FOUR, EIGHT.dry_run().priority(10))
    decided(cache)
    before = dict(cache.states)
    enforced = EIGHT.priority(10).build()
    plan = cache.plan_as_if_enforced("a", enforced)
    assert plan is not None
    assert (plan.change, plan.after) == (Change.ADD, EIGHT.rendered().name)
    assert cache.plan_as_if_enforced("a", EIGHT.priority(-1).build()) is None
    assert cache.states == before
    assert before["a"].owner == "four"


# --- a plugin that is gone


def gone(cache: Cache, at: float) -> Progress:
    decided(cache, "a", at=at)
    return cache.states["a"].verdict.progress


def with_devices(count: int) -> NodeBuilder:
    return make_node().gpus(2).config(FOUR.rendered("shared").name).allocatable(gpu=count)


def test_no_devices_count_as_a_plugin_that_is_gone_only_when_they_have_lasted() -> None:
    cache = new_cache("shared")
    put(cache, with_devices(0), FOUR)
    assert gone(cache, 100) is Progress.AWAITING
    assert cache.patience.ends_in("a", 110) == 20
    assert gone(cache, 129) is Progress.AWAITING
    assert gone(cache, 130) is Progress.GONE
    assert cache.patience.ends_in("a", 140) == 0


def test_devices_that_come_back_end_the_wait_and_the_next_one_begins_anew() -> None:
    cache = new_cache("shared")
    put(cache, with_devices(0), FOUR)
    gone(cache, 100)
    put(cache, with_devices(8))
    assert gone(cache, 120) is Progress.APPLIED
    assert cache.patience.ends_in("a", 120) is None
    put(cache, with_devices(0))
    assert gone(cache, 125) is Progress.AWAITING
    assert cache.patience.ends_in("a", 125) == GONE_AFTER


# --- the shared ConfigMap


def test_configs_in_use_are_those_of_owned_nodes_and_the_values_that_labels_and_records_still_have() -> None:
    cache = new_cache("shared")
    moving = make_node("moving").config("former")
    recorded = make_record(make_node("gone").build(), EIGHT)
    put(cache, moving, make_node("by-hand").manual("theirs"), make_node("skipped").skipped(), FOUR, recorded)
    decided(cache)
    configs, labelled = cache.configs_in_use()
    four = FOUR.rendered("shared")
    assert configs == {four.name: four.text}
    assert labelled == {"former", "theirs", recorded.config}


def test_configs_of_nodes_that_are_left_alone_are_not_wanted() -> None:
    cache = new_cache("shared")
    put(cache, make_node("by-hand").manual("theirs"), make_node("skipped").skipped(), FOUR)
    decided(cache)
    assert cache.configs_in_use()[0] == {}


def test_a_node_that_moves_brings_the_shared_configmap_up_in_its_layout_alone() -> None:
    shared, per_node = new_cache("shared"), new_cache()
    for cache in (shared, per_node):
        put(cache, make_node(), FOUR)
    assert SHARED_KEY in decided(shared)
    assert SHARED_KEY not in decided(per_node)
    put(shared, make_node().gpus(2).allocatable(gpu=8))
    assert decided(shared) == {("policy", "four")}  # how far it is, not where it moves


def test_a_change_of_the_shared_configmap_brings_up_the_nodes_that_wait_for_it_or_were_refused() -> None:
    cache = new_cache("shared")
    done = make_node("done").config(FOUR.rendered("shared").name)
    put(cache, make_node("waits"), done, FOUR, make_record(done.build(), FOUR))
    decided(cache)
    text = FOUR.rendered("shared").text
    assert cache.put_shared(SharedConfig({"x": text}, exists=True)) == {SHARED_KEY, ("node", "waits")}
    assert cache.put_shared(SharedConfig({"x": text}, exists=True)) == set()


def test_a_foreign_shared_configmap_refuses_every_node_and_its_end_brings_them_up() -> None:
    cache = new_cache("shared")
    put(cache, make_node(), FOUR)
    decided(cache)
    assert ("node", "a") in cache.put_shared(SharedConfig(exists=True, ours=False))
    decided(cache)
    assert cache.states["a"].plan.change is Change.REFUSED
    assert cache.put_shared(SharedConfig()) == {SHARED_KEY, ("node", "a")}
