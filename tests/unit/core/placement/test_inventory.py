"""Which nodes and GPUs a placement in a cluster may be planned on."""

import pytest
from tests.support.builders import PolicyBuilder, make_node, make_policy, ranked

from gpusharing.core.desired_state import assign
from gpusharing.core.placement.inventory import reservable

NODE = make_node("a")
ALLOWING = make_policy("allowing").with_spec(allowPlacements=True)


@pytest.mark.parametrize(
    ("policies", "may"),
    {
        "no policy names the node": ([], False),
        "its policy does not allow it": ([make_policy()], False),
        "its policy allows it": ([ALLOWING], True),
        "its policy shares by time-slicing": ([ALLOWING.sharing(4)], True),
        "its policy shares by MPS, whose daemon holds the GPUs": ([ALLOWING.sharing(4, strategy="mps")], False),
        "only a policy allows it that loses": ([ALLOWING, make_policy("first").priority(9)], False),
        "only a policy allows it that is in mode dry-run": ([ALLOWING.dry_run()], False),
    }.values(),
)
def test_placements_may_reserve_where_the_owning_policy_allows_it(policies: list[PolicyBuilder], may: bool) -> None:
    order = ranked(*(policy.build() for policy in policies))
    assert reservable(assign(NODE.build(), order, holder=None)) is may


def test_a_node_that_an_invalid_policy_keeps_as_it_is_takes_nothing_new() -> None:
    holder = ALLOWING.invalid().build()
    assert not reservable(assign(NODE.build(), [], holder=holder))
