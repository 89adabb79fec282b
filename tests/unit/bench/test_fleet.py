"""The bench's nodes are as large as real ones, each is named by the policy of its pool alone, and nothing is random."""

import json
from functools import cache

import pytest
from tests.bench import fleet

from gpusharing.core.desired_state import Outcome, Policy, assign, compile_policy
from gpusharing.core.matching import read_node
from gpusharing.core.reports import read_report

POLICIES = 60


@cache
def compiled() -> list[Policy]:
    policies = [compile_policy(fleet.policy_object(number), "per-node") for number in range(POLICIES)]
    return sorted(policies, key=lambda policy: policy.rank)


def test_the_same_number_is_the_same_object() -> None:
    for make in (lambda: fleet.node_object(7, 50), lambda: fleet.node_status(7), lambda: fleet.policy_object(7)):
        assert make() == make()


def test_names_are_unique() -> None:
    assert len({fleet.node_name(number) for number in range(10_000)}) == 10_000


def test_a_node_is_about_as_large_as_a_kubelet_makes_it() -> None:
    node = fleet.node_object(0, POLICIES)
    node["status"] |= fleet.node_status(0)
    assert 13_000 < len(json.dumps(node, separators=(",", ":"))) < 17_000  # managedFields come on top
    assert len(node["status"]["images"]) == fleet.IMAGES


@pytest.mark.parametrize("number", range(POLICIES))
def test_the_policy_of_the_pool_owns_the_node_and_no_other_names_it(number: int) -> None:
    assignment = assign(read_node(fleet.node_object(number, POLICIES)), compiled(), holder=None)
    assert assignment.outcome is Outcome.OWNED
    assert assignment.matched == (fleet.policy_name(number),)


def test_moving_a_node_moves_it_to_the_next_policy() -> None:
    node = fleet.node_object(3, POLICIES)
    node["metadata"]["labels"] |= fleet.moved_to(4)
    assert assign(read_node(node), compiled(), holder=None).matched == (fleet.policy_name(4),)


def test_every_policy_is_valid_and_has_a_config_of_its_own() -> None:
    rendered = [policy.rendered for policy in compiled()]
    assert len({config.name for config in rendered if config}) == POLICIES


def test_a_report_is_one_that_the_controller_reads() -> None:
    config = compiled()[0].rendered
    assert config is not None
    report = read_report(fleet.report_object(0, config))
    assert report is not None
    assert report.config.served == config.name
    assert len(report.gpus) == 8
