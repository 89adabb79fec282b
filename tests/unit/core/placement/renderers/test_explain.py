"""`--explain`: why a pool takes as many nodes as it does."""

from dataclasses import replace

from gpusharing.core.placement.plan import Need, PoolPlan, Search
from gpusharing.core.placement.renderers.explain import explain

NEEDS = tuple(Need(name, f"{name} {count}") for name, count in (("policy", 1), ("a", 5), ("b", 4), ("c", 3), ("d", 3)))
FFD = Search(algorithm="ffd", needs=NEEDS, total="16", node_size=8, ffd_nodes=3)
POOL = PoolPlan("gpu", auto=True, nodes_resolved=3, lower_bound=2, proven_minimal=False, search=FFD)


def test_what_was_not_searched_may_be_tried() -> None:
    assert list(explain(POOL)) == [
        "pool gpu: 16 GPUs (policy 1, a 5, b 4, c 3, d 3) on nodes of 8 GPUs",
        "  fewer than 2 nodes cannot hold them (lower bound)",
        "  first fit decreasing: 3 nodes opened",
        "  result: 3 nodes, not proven to be the fewest; try --algorithm exact",
    ]


def test_a_search_says_how_far_it_went() -> None:
    search = replace(FFD, algorithm="exact", searched=True, trials=17)
    found = list(explain(replace(POOL, nodes_resolved=2, proven_minimal=True, search=search)))
    assert found[-2:] == ["  exact search: 17 places tried", "  result: 2 nodes, the fewest possible"]
    limited = replace(search, trials=50_000, limit_reached=True)
    assert list(explain(replace(POOL, search=limited)))[-2:] == [
        "  exact search: 50000 places tried, then its limit was reached",
        "  result: 3 nodes, not proven to be the fewest",
    ]


def test_a_fixed_pool_takes_what_it_says() -> None:
    fixed = PoolPlan("gpu", auto=False, nodes_resolved=1, search=replace(FFD, ffd_nodes=1, ffd_unplaced=("d",), idle=2))
    assert list(explain(fixed))[1:] == [
        "  first fit decreasing: 1 node opened, no room for d",
        "  result: 1 node, as the pool says",
        "  2 GPUs idle, because services own whole nodes",
    ]


def test_a_pool_may_have_nothing_to_explain() -> None:
    assert list(explain(PoolPlan("gpu", auto=True, skipped=True))) == [
        "pool gpu: nothing is planned for it; the notice says why"
    ]
    assert list(explain(PoolPlan("gpu", auto=False, nodes_resolved=2))) == [
        "pool gpu: 2 nodes, and no service that needs GPUs of its own"
    ]
