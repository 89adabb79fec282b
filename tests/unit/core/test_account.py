"""`explain`: why one node has its config, and how far that config is."""

from dataclasses import replace

from tests.support.builders import ago, make_node, make_policy, make_report
from tests.support.worlds import configured, make_world

from gpusharing.core.account import account

PACK = make_policy("pack").priority(10).sharing(4)


def test_every_policy_is_there_in_the_order_in_which_they_win_with_the_term_that_fails() -> None:
    other = make_policy("other").selecting({"team": "b"})
    rest = make_policy("rest").born(ago(hours=1))
    it = account(make_world(nodes=[make_node()], policies=[rest, other, PACK]), "a")
    assert [(policy.policy, policy.matches) for policy in it.considered] == [
        ("pack", True),
        ("other", False),
        ("rest", True),
    ]
    assert "team in (b)" in it.considered[1].why
    assert (it.owner, it.rule) == ("pack", "highest priority: 10 before 0 of rest")


def test_config_and_devices_are_shown_as_wanted_and_as_they_are() -> None:
    node, record, report = configured(make_node(), PACK, make_report().gpus(2))
    world = make_world(
        nodes=[node],
        policies=[PACK],
        records=[record],
        reports=[report.row("nvidia.com/gpu", advertised=7, in_use=3)],
    )
    it = account(world, "a")
    assert (it.state, it.detail) == ("CapacityMismatch", "nvidia.com/gpu: 7 advertised, 8 predicted")
    assert it.config.wanted == it.config.label == it.config.served == PACK.rendered().name
    assert it.config.rendered is not None
    assert it.config.rendered["sharing"]["timeSlicing"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]
    assert [(row.resource, row.predicted, row.advertised, row.in_use) for row in it.resources] == [
        ("nvidia.com/gpu", 8, 7, 3)
    ]


def test_gpus_of_placements_are_not_predicted_and_their_names_are_shown_as_they_are() -> None:
    node, record, report = configured(make_node(), PACK, make_report().gpus(2))
    name = "place.gpusharing.io/s0.p.team-a"
    report = report.reserved("Active", 1).row("nvidia.com/gpu", advertised=4, devices=4, healthy=4)
    report = report.row(name, advertised=1, devices=1, healthy=1, in_use=1)
    it = account(make_world(nodes=[node], policies=[PACK], records=[record], reports=[report]), "a")
    assert it.state == "Applied"
    assert [(row.resource, row.predicted, row.advertised) for row in it.resources] == [
        ("nvidia.com/gpu", 4, 4),
        (name, None, 1),
    ]


def test_in_layout_shared_allocatable_stands_for_what_the_kubelet_confirms() -> None:
    policy = make_policy("pack").sharing(4)
    node = make_node().gpus(2).config(policy.rendered("shared").name).allocatable(gpu=8)
    it = account(make_world(nodes=[node], policies=[policy], layout="shared"), "a")
    assert it.config.served is None
    assert [(row.resource, row.predicted, row.advertised) for row in it.resources] == [("nvidia.com/gpu", 8, 8)]


def test_a_node_that_is_left_alone_has_no_owner_and_names_the_one_it_would_have() -> None:
    it = account(make_world(nodes=[make_node().manual("theirs")], policies=[PACK]), "a")
    assert (it.owner, it.state, it.config.label) == ("", "ManuallyConfigured", "theirs")
    assert it.rule.startswith("pack would own it")
    assert "would own" in it.considered[0].why


def test_a_node_without_a_gpu_says_that_it_is_none() -> None:
    it = account(make_world(nodes=[make_node().without("nvidia.com/gpu.product")], policies=[PACK]), "a")
    assert (it.gpu_node, it.owner, it.state, it.resources) == (False, "", "Unclaimed", [])
    assert "GPU" in it.rule


def test_a_policy_with_an_invalid_spec_is_considered_too() -> None:
    it = account(make_world(nodes=[make_node()], policies=[PACK.invalid()]), "a")
    assert [(policy.mode, policy.matches) for policy in it.considered] == [("invalid", False)]


def test_devices_without_any_gpu_are_more_than_predicted() -> None:
    node, record, report = configured(make_node(), PACK, make_report().gpus(2))
    none_left = replace(report, inventory=())
    it = account(make_world(nodes=[node], policies=[PACK], records=[record], reports=[none_left]), "a")
    assert [(row.predicted, row.advertised) for row in it.resources] == [(0, 8)]
