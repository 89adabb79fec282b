"""`status`: policies with their counts, nodes in groups, and what an admin should look at."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import NOW, PolicyBuilder, ago, make_node, make_policy, make_record, make_report
from tests.support.worlds import configured, make_world, objects_of

from gpusharing.api.meta import Condition
from gpusharing.api.overview import StatusReport
from gpusharing.api.policy import PolicyStatus
from gpusharing.core.overview import overview
from gpusharing.core.standing import Standing, detail, standing
from gpusharing.core.world import Objects, World, read_world

PACK = make_policy("pack").sharing(4)


def world_with_status(policy: PolicyBuilder, *conditions: Condition, observed: int = 1) -> World:
    status = PolicyStatus(observed_generation=observed, conditions=list(conditions))
    objects = objects_of(policies=[policy], nodes=[make_node()])
    objects["policies"][0]["status"] = status.to_wire()
    return read_world(Objects(**objects), now=NOW)


def condition(kind: str, status: str, reason: str, message: str = "m") -> Condition:
    return Condition.model_validate(
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(hours=1)}
    )


def problems(report: StatusReport) -> list[tuple[str, int | None]]:
    return [(problem.reason, problem.nodes) for problem in report.problems]


def test_nodes_are_grouped_by_model_owner_and_state() -> None:
    done, record, served = configured(make_node("done").gpus(8), PACK, make_report("done").gpus(8))
    world = make_world(
        nodes=[done, make_node("b").gpus(8), make_node("c").gpus(8), make_node("l4").model("NVIDIA-L4").gpus(1)],
        policies=[PACK.selecting({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})],
        records=[record],
        reports=[served],
    )
    report = overview(world)
    assert [(group.model, group.owner, group.state, group.nodes, group.gpus) for group in report.groups] == [
        ("NVIDIA-A100-SXM4-80GB", "pack", "Applied", 1, 8),
        ("NVIDIA-A100-SXM4-80GB", "pack", "Pending", 2, 16),
        ("NVIDIA-L4", "", "Unclaimed", 1, 1),
    ]
    assert (report.gpu_nodes, report.gpus) == (4, 25)
    assert report.states == {"Applied": 1, "Pending": 2, "Unclaimed": 1}
    assert report.nodes is None


def test_every_node_is_listed_only_when_asked_for() -> None:
    world = make_world(nodes=[make_node("b"), make_node("a").manual("theirs")], policies=[PACK])
    nodes = overview(world, every_node=True).nodes
    assert nodes is not None
    assert [(node.node, node.owner, node.config, node.state) for node in nodes] == [
        ("a", "", "theirs", "ManuallyConfigured"),
        ("b", "pack", "", "Pending"),
    ]


def test_policies_are_counted_now_and_ready_is_what_the_controller_said() -> None:
    report = overview(world_with_status(PACK, condition("Ready", "True", "Applied", "fine")))
    policy = report.policies[0]
    assert (policy.ready, policy.reason, policy.message) == ("True", "Applied", "fine")
    assert (policy.nodes.matched, policy.nodes.owned, policy.nodes.applied) == (1, 1, 0)
    assert (policy.allocation, policy.sharing, policy.mig) == ("distributed", "4x time-slicing", "none")
    assert policy.config == PACK.rendered().name


@pytest.mark.parametrize("observed", [0, 2], ids=["never", "an-older-generation"])
def test_a_silent_controller_is_a_problem(observed: int) -> None:
    status = condition("Ready", "True", "Applied")
    report = overview(world_with_status(PACK.generation(3), *([status] if observed else []), observed=observed))
    assert (report.policies[0].ready, report.policies[0].reason) == ("Unknown", "")
    assert "is it running?" in report.problems[0].message


def test_an_invalid_policy_is_shown_with_what_is_wrong() -> None:
    report = overview(make_world(policies=[PACK.invalid()]))
    assert report.policies[0].mode == "invalid"
    assert "InvalidSpec" in [problem.reason for problem in report.problems]


def test_a_wrong_capacity_a_tie_and_a_skipped_node_are_problems_with_names() -> None:
    short, record, served = configured(make_node("short"), PACK, make_report("short").gpus(2))
    tie = make_policy("tie").sharing(2).born(ago(hours=1))
    world = make_world(
        nodes=[short, make_node("off").skipped()],
        policies=[PACK, tie],
        records=[record],
        reports=[served.row("nvidia.com/gpu", advertised=7)],
    )
    found = {(problem.policy, problem.reason): problem for problem in overview(world).problems}
    assert "7 advertised, 8 predicted" in found["pack", "CapacityMismatch"].message
    assert found["pack", "Skipped"].nodes == 1
    assert "short (owned by pack)" in found["tie", "ConflictingPolicies"].message


def test_a_node_that_only_has_not_reported_yet_is_no_problem() -> None:
    node, record, _ = configured(make_node(), PACK, make_report())
    report = overview(make_world(nodes=[node], policies=[PACK], records=[record]))
    assert report.states == {"AwaitingReport": 1}
    assert [reason for reason, _ in problems(report)] == [""]


def test_what_only_the_controller_sees_is_taken_from_its_status() -> None:
    ready = condition("Ready", "True", "Applied")
    contested = condition("Degraded", "True", "LabelContested", "Something else keeps changing the label: a (kubectl).")
    report = overview(world_with_status(PACK, ready, contested))
    assert [(p.reason, p.message) for p in report.problems] == [("LabelContested", contested.message)]


def test_what_is_counted_now_is_not_repeated_from_the_status() -> None:
    ready = condition("Ready", "True", "Applied")
    degraded = condition("Degraded", "True", "CapacityMismatch", "as it was a minute ago")
    assert overview(world_with_status(PACK, ready, degraded)).problems == []


def test_an_empty_cluster_is_an_empty_report() -> None:
    report = overview(make_world())
    assert (report.gpu_nodes, report.policies, report.groups, report.problems) == (0, [], [], [])


def _state(**world: Any) -> tuple[Standing, str]:
    made = make_world(**world)
    state = made.state("a")
    word = standing(state, uncertain=made.uncertain("a"))
    return word, detail(state, word)


WRITTEN = configured(make_node(), PACK, make_report().gpus(2))
OURS = {"nodes": [WRITTEN[0]], "policies": [PACK], "records": [WRITTEN[1]]}
SHARED_NAME = PACK.rendered("shared").name
SHARED_OURS = {
    "layout": "shared",
    "nodes": [make_node().gpus(2).config(SHARED_NAME).allocatable(gpu=0)],
    "policies": [PACK],
    "records": [replace(WRITTEN[1], config=SHARED_NAME, data={})],
}


@pytest.mark.parametrize(
    ("world", "word", "why"),
    [
        ({**OURS, "reports": [WRITTEN[2]]}, Standing.APPLIED, ""),
        (OURS, Standing.AWAITING, "no report"),
        (
            {**OURS, "reports": [make_report().asked_for(PACK.rendered(), "no such GPU")]},
            Standing.REFUSED,
            "no such GPU",
        ),
        ({"nodes": [make_node()], "policies": [PACK]}, Standing.PENDING, PACK.rendered().name),
        ({**OURS, "policies": []}, Standing.RELEASING, ""),
        ({"nodes": [make_node().skipped()], "policies": [PACK]}, Standing.SKIPPED, ""),
        ({**OURS, "policies": [PACK.dry_run()]}, Standing.FROZEN, ""),
        ({"nodes": [make_node().manual("x")], "policies": [PACK]}, Standing.MANUAL, ""),
        ({"nodes": [make_node().manual("x")], "records_known": False}, Standing.UNCERTAIN, ""),
        (
            {
                "nodes": [make_node()],
                "policies": [PACK],
                "configmaps": [{"metadata": {"name": "gpusharing-a", "namespace": "x"}}],
            },
            Standing.FOREIGN,
            "gpusharing-a",
        ),
        ({"nodes": [make_node()]}, Standing.UNCLAIMED, ""),
        ({"nodes": [make_node()], "policies": [PACK], "layout": "shared"}, Standing.PENDING, "120 s"),
        (SHARED_OURS, Standing.GONE, "0 allocatable"),
        (
            {**OURS, "reports": [WRITTEN[2]], "policies": [PACK.mig("mixed").sharing({"nvidia.com/mig-1g.5gb": 2})]},
            Standing.PENDING,
            "cannot have nvidia.com/mig-1g.5gb",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Standing) else "",
)
def test_a_node_is_in_one_state_and_says_why(world: dict[str, Any], word: Standing, why: str) -> None:
    got, detail_ = _state(**world)
    assert got is word
    assert why in detail_


def test_every_standing_has_a_meaning() -> None:
    assert all(word.meaning for word in Standing)
    assert len({word.meaning for word in Standing}) == len(Standing)


def test_a_record_of_another_uid_leaves_the_node_pending() -> None:
    record = make_record(make_node().uid("old").build(), PACK)
    assert _state(nodes=[make_node().uid("new")], policies=[PACK], records=[record])[0] is Standing.PENDING
