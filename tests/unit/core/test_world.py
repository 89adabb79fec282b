"""A world is what the controller would see; with a kubectl dump it is as good as can be known."""

import pytest
from tests.support.builders import NOW, ago, make_node, make_policy, make_record, make_report, ranked
from tests.support.worlds import configured, make_world, objects_of

from gpusharing.api import names
from gpusharing.core.desired_state import Outcome
from gpusharing.core.plan import Change
from gpusharing.core.records import record_object
from gpusharing.core.world import Objects, layout_of, read_world


def test_policies_stand_in_the_order_in_which_they_win() -> None:
    low, old, young = make_policy("z"), make_policy("y").priority(1), make_policy("x").priority(1).born(ago(hours=1))
    world = make_world(policies=[low, young, old])
    assert [policy.name for policy in world.ranked] == ["y", "x", "z"]


def test_states_cover_gpu_nodes_and_what_is_ours_and_nothing_else() -> None:
    policy = make_policy()
    former = make_node("former").without(names.PRODUCT_LABEL).config(policy.rendered().name)
    world = make_world(
        nodes=[make_node("b"), make_node("a"), make_node("cpu").without(names.PRODUCT_LABEL), former], policies=[policy]
    )
    assert [state.node for state in world.states()] == ["a", "b", "former"]


def test_a_node_that_only_a_report_calls_a_gpu_node_counts() -> None:
    world = make_world(
        nodes=[make_node().without(names.PRODUCT_LABEL)], policies=[make_policy()], reports=[make_report()]
    )
    assert world.state("a").assignment.outcome is Outcome.OWNED


def test_a_dump_without_managed_fields_is_decided_as_the_cluster_itself() -> None:
    policy = make_policy().sharing(4)
    node, record, report = configured(make_node(), policy, make_report())
    objects = objects_of(nodes=[node], records=[record], reports=[report])
    live = read_world(Objects(**objects), now=NOW)
    for obj in objects["nodes"]:
        del obj["metadata"]["managedFields"]
    dumped = read_world(Objects(**objects), now=NOW)
    assert dumped.state("a") == live.state("a")
    assert dumped.state("a").plan.change is Change.RELEASE


def test_a_label_that_no_record_explains_stays_somebody_elses() -> None:
    policy = make_policy().sharing(4)
    node = make_node().manual("theirs")
    objects = objects_of(nodes=[node], policies=[policy], records=[make_record(node.build(), policy)])
    del objects["nodes"][0]["metadata"]["managedFields"]
    world = read_world(Objects(**objects), now=NOW)
    assert not world.nodes["a"].label_is_ours


@pytest.mark.parametrize(("known", "want"), [(True, False), (False, True)], ids=["with-configmaps", "without"])
def test_without_configmaps_nobody_can_tell_who_set_a_label(known: bool, want: bool) -> None:
    world = make_world(nodes=[make_node("a").manual("x"), make_node("b")], records_known=known)
    assert world.uncertain("a") is want
    assert not world.uncertain("b")


def test_an_applied_policy_keeps_the_age_and_uid_of_its_namesake() -> None:
    old = make_policy("p").uid("u1").born(ago(days=9)).generation(7)
    file = make_policy("p").uid("of another cluster").born(ago(days=900)).sharing(4)
    policy = make_world(policies=[old]).with_policies([file.object()]).policies["p"]
    assert (policy.uid, policy.created, policy.generation) == ("u1", ago(days=9), 7)
    assert policy.spec is not None
    assert policy.spec.sharing is not None


def test_a_new_policy_is_younger_than_all_whatever_its_file_says() -> None:
    world = make_world(policies=[make_policy("z").born(ago(seconds=1))])
    after = world.with_policies([make_policy("a").born(ago(days=900)).object()])
    assert [policy.name for policy in after.ranked] == ["z", "a"]


def test_an_applied_policy_is_ranked_by_its_new_priority() -> None:
    world = make_world(policies=[make_policy("a"), make_policy("b")])
    after = world.with_policies([make_policy("b").priority(5).object()])
    assert list(after.ranked) == ranked(*after.policies.values())
    assert after.ranked[0].name == "b"


def test_a_deleted_policy_is_gone_and_the_rest_stays() -> None:
    world = make_world(policies=[make_policy("a"), make_policy("b")])
    assert list(world.without_policies(["a", "never there"]).policies) == ["b"]


def test_a_report_that_cannot_be_read_counts_as_none() -> None:
    objects = objects_of(nodes=[make_node()], reports=[make_report()])
    objects["reports"][0]["status"] = {"gpus": "eight"}
    assert read_world(Objects(**objects), now=NOW).reports == {}


def test_the_layout_is_what_the_records_say() -> None:
    policy, node = make_policy(), make_node().build()
    record = make_record(node, policy)
    full = record_object(record, names.NAMESPACE)
    empty = {**full, "data": {}}
    foreign = {"metadata": {"name": "gpusharing-b", "namespace": names.NAMESPACE}, "data": {}}
    shared = {"metadata": {"name": names.SHARED_CONFIGMAP, "labels": {names.MANAGED_LABEL: "true"}}}
    assert layout_of([]) == "per-node"
    assert layout_of([full]) == "per-node"
    assert layout_of([foreign]) == "per-node"
    assert layout_of([empty]) == "shared"
    assert layout_of([shared]) == "shared"
    assert layout_of([shared, full]) == "per-node"


def test_in_layout_per_node_allocatable_is_not_looked_at_and_in_shared_it_is() -> None:
    nodes = [make_node().allocatable(gpu=8)]
    assert make_world(nodes=nodes).nodes["a"].allocatable is None
    assert make_world(nodes=nodes, layout="shared").nodes["a"].allocatable == {"nvidia.com/gpu": 8}
