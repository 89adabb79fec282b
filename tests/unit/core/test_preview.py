"""What `plan` says of every node: before and after, what blocks it, and how many are where."""

from typing import Any

import pytest
from tests.support.builders import (
    NodeBuilder,
    PolicyBuilder,
    ago,
    make_node,
    make_policy,
    make_record,
    make_report,
)
from tests.support.worlds import configured, make_world

from gpusharing.api.plan import PlannedNode, PlanReport
from gpusharing.core.preview import Preview
from gpusharing.core.world import World

PACK = make_policy("pack").sharing(4)


def plan(world: World, *applied: PolicyBuilder, deleted: tuple[str, ...] = (), everything: bool = True) -> PlanReport:
    return Preview.of(world, [policy.object() for policy in applied], deleted).report(everything=everything)


def only(report: PlanReport) -> PlannedNode:
    assert len(report.nodes) == 1, report
    return report.nodes[0]


def counts(report: PlanReport) -> dict[str, int]:
    return {key: count for key, count in report.summary.model_dump().items() if count}


def test_a_new_policy_adds_a_node_with_its_devices() -> None:
    report = plan(make_world(nodes=[make_node().gpus(8)]), PACK)
    node = only(report)
    assert (node.owner.before, node.owner.after) == ("", "pack")
    assert (node.config.before, node.config.after) == ("", PACK.rendered().name)
    assert node.change == "add"
    assert [(d.resource, d.before, d.after) for d in node.devices] == [("nvidia.com/gpu", 8, 32)]
    assert counts(report) == {"add": 1}
    assert [(policy.policy, policy.action, policy.owned) for policy in report.policies] == [("pack", "create", 1)]


def test_an_edit_changes_the_config_and_keeps_the_owner() -> None:
    node, record, served = configured(make_node(), PACK, make_report().gpus(2))
    world = make_world(nodes=[node], policies=[PACK], records=[record], reports=[served])
    edited = PACK.sharing(8)
    planned = only(plan(world, edited))
    assert (planned.owner.before, planned.owner.after) == ("pack", "pack")
    assert (planned.config.before, planned.config.after) == (PACK.rendered().name, edited.rendered().name)
    assert [(d.before, d.after) for d in planned.devices] == [(8, 16)]
    assert planned.change == "change"


def test_the_same_policy_again_is_nothing_to_do() -> None:
    node, record, served = configured(make_node(), PACK, make_report())
    world = make_world(nodes=[node], policies=[PACK], records=[record], reports=[served])
    assert counts(plan(world, PACK)) == {"unchanged": 1}
    assert plan(world, PACK, everything=False).nodes == []


def test_a_renamed_resource_goes_and_the_new_one_comes() -> None:
    renamed = make_policy("pack").sharing(4, renameByDefault=True)
    planned = only(plan(make_world(nodes=[make_node().gpus(8)]), renamed))
    assert [(d.resource, d.before, d.after) for d in planned.devices] == [
        ("nvidia.com/gpu", 8, 0),
        ("nvidia.com/gpu.shared", 0, 32),
    ]


def test_deleting_the_policy_releases_its_nodes() -> None:
    node, record, served = configured(make_node(), PACK, make_report().gpus(8))
    world = make_world(nodes=[node], policies=[PACK], records=[record], reports=[served])
    report = plan(world, deleted=("pack",))
    planned = only(report)
    assert (planned.change, planned.owner.after, planned.config.after) == ("release", "", "")
    assert [(d.before, d.after) for d in planned.devices] == [(32, 8)]
    assert [(policy.policy, policy.action) for policy in report.policies] == [("pack", "delete")]


def test_deleting_a_policy_hands_its_nodes_to_the_next() -> None:
    rest = make_policy("rest").born(ago(hours=1))
    node, record, _ = configured(make_node(), PACK, make_report())
    planned = only(plan(make_world(nodes=[node], policies=[PACK, rest], records=[record]), deleted=("pack",)))
    assert (planned.owner.before, planned.owner.after, planned.change) == ("pack", "rest", "change")


def test_a_dry_run_policy_is_planned_as_if_it_were_enforced_and_the_report_says_so() -> None:
    report = plan(make_world(nodes=[make_node()]), PACK.dry_run())
    assert only(report).change == "add"
    assert [policy.as_if_enforced for policy in report.policies] == [True]


def _manual() -> NodeBuilder:
    return make_node().manual("theirs")


@pytest.mark.parametrize(
    ("world", "change", "note"),
    [
        (lambda: {"nodes": [make_node().skipped()]}, "skipped", "gpusharing.io/skip"),
        (lambda: {"nodes": [_manual()]}, "manual", "adoptManual"),
        (lambda: {"nodes": [_manual()], "records_known": False}, "manual?", "no ConfigMaps"),
        (
            lambda: {
                "nodes": [make_node().config(PACK.rendered().name)],
                "policies": [make_policy("holder").dry_run()],
                "records": [make_record(make_node().build(), make_policy("holder"))],
            },
            "frozen",
            "holder",
        ),
    ],
    ids=["skip-label", "set-by-hand", "set-by-whom", "held-by-a-dry-run"],
)
def test_a_node_that_is_left_alone_is_skipped_and_says_why(world: Any, change: str, note: str) -> None:
    report = plan(make_world(**world()), PACK, everything=False)
    node = only(report)
    assert node.change == change
    assert note in " ".join(node.notes)
    assert node.config.before == node.config.after
    assert counts(report) == {"skipped": 1}


def test_a_foreign_configmap_is_named() -> None:
    foreign = {"metadata": {"name": "gpusharing-a", "namespace": "gpu-sharing-system"}, "data": {"their": "own"}}
    report = plan(make_world(nodes=[make_node()], configmaps=[foreign]), PACK)
    node = only(report)
    assert (node.change, node.owner.before) == ("refused", "")
    assert "gpusharing-a" in node.notes[0]


def test_a_node_left_alone_that_these_policies_do_not_name_is_no_business_of_the_plan() -> None:
    other = make_policy("other").selecting({"team": "b"})
    world = make_world(nodes=[_manual()], policies=[make_policy("cluster")])
    report = plan(world, other, everything=False)
    assert (report.nodes, counts(report)) == ([], {"unchanged": 1})


def test_a_manual_label_is_adopted_where_the_policy_says_so_and_the_note_says_what_was_there() -> None:
    node = only(plan(make_world(nodes=[_manual()]), PACK.adopting()))
    assert node.change == "add"
    assert "theirs" in node.notes[0]


def test_a_tie_is_noted_on_the_node_that_the_older_policy_keeps() -> None:
    older = make_policy("older").sharing(2)
    node, record, _ = configured(make_node(), older, make_report())
    report = plan(make_world(nodes=[node], policies=[older], records=[record]), PACK, everything=False)
    planned = only(report)
    assert planned.change == "unchanged"
    assert "pack ties with older" in planned.notes[0]
    assert counts(report) == {"unchanged": 1}


def test_a_policy_that_wins_nothing_says_so() -> None:
    above = make_policy("above").priority(10)
    report = plan(make_world(nodes=[make_node()], policies=[above]), PACK, make_policy("nowhere").selecting({"x": "y"}))
    notes = {policy.policy: policy.notes for policy in report.policies}
    assert "names no GPU node" in notes["nowhere"][0]
    assert "1 of 1 are owned by policies of higher rank" in notes["pack"][0]


def test_a_resource_that_the_node_cannot_have_is_noted() -> None:
    mixed = make_policy("mig").mig("mixed").sharing({"nvidia.com/mig-1g.5gb": 2})
    node = only(plan(make_world(nodes=[make_node()], reports=[make_report().gpus(1).mig(0, "1g.10gb")]), mixed))
    assert "cannot have nvidia.com/mig-1g.5gb" in node.notes


def test_a_change_that_the_controller_has_still_to_make_is_told_apart() -> None:
    world = make_world(
        nodes=[make_node("a"), make_node("b").model("NVIDIA-L4")],
        policies=[make_policy("p").selecting({"nvidia.com/gpu.product": "NVIDIA-L4"})],
    )
    report = plan(world, PACK.selecting({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}))
    notes = {node.node: node.notes for node in report.nodes}
    assert notes["a"] == []
    assert "not because of this plan" in notes["b"][0]


def test_a_label_moved_by_hand_is_a_repair() -> None:
    moved = make_node().manual("theirs")
    world = make_world(nodes=[moved], policies=[PACK], records=[make_record(moved.build(), PACK)])
    report = plan(world, PACK)
    assert (only(report).change, counts(report)) == ("repair", {"repair": 1})


def test_every_node_is_counted_once() -> None:
    kept, record, served = configured(make_node("kept"), PACK, make_report("kept"))
    nodes = [kept, make_node("new"), make_node("hand").manual("x"), make_node("off").skipped(), make_node("other")]
    world = make_world(nodes=nodes, policies=[PACK], records=[record], reports=[served])
    report = plan(world, PACK)
    assert sum(report.summary.model_dump().values()) == len(nodes) == len(report.nodes)
