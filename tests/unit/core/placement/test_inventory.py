"""Which nodes and GPUs a placement in a cluster may be planned on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import PolicyBuilder, make_node, make_policy, ranked
from tests.support.planning import pool, service
from tests.support.stage import Stage, placement_object

from gpusharing.core.desired_state import assign
from gpusharing.core.placement.holders import holders
from gpusharing.core.placement.inventory import inventory, reservable
from gpusharing.core.placement.plan import Plan
from gpusharing.core.placement.planner import place
from gpusharing.core.placement.request import Request

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


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sets(st.integers(0, 3), max_size=2)), min_size=1, max_size=8),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from(["exact", "ffd"]),
    st.integers(1, 3),
)
def test_nodes_that_are_passed_over_would_have_changed_no_plan(
    nodes: list[tuple[int, set[int]]], needs: list[int], algorithm: str, most: int
) -> None:
    stage = Stage()
    for number, (gpus, busy) in enumerate(nodes):
        stage.node(f"n{number}", gpus)
        for index in busy:
            stage.change_gpu(f"n{number}", index, in_use=1)
    services = [service(f"s{at}", count) for at, count in enumerate(needs)]
    spec = {"pools": [pool("auto", None, maxNodes=most)], "services": services, "algorithm": algorithm}
    placement = stage.put(placement_object("p", spec))
    assert placement.spec is not None
    held, request = holders(stage.cluster, placement), Request(placement.spec)
    few, every = (inventory(stage.cluster, placement, placement.spec, held, set(), many=many) for many in (0, 99))
    one, other = place(request, few), place(request, every)
    assert isinstance(one, Plan) is isinstance(other, Plan)
    if isinstance(one, Plan) and isinstance(other, Plan):
        assert (one.slots, one.plan_hash) == (other.slots, other.plan_hash)
