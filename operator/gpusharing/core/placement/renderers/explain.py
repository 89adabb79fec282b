"""`--explain`: why each pool takes as many nodes as it does, so that `auto` surprises nobody (guide, O7)."""

from collections.abc import Iterator

from gpusharing.core.placement.plan import PoolPlan, Search


def explain(pool: PoolPlan) -> Iterator[str]:
    """Yield the sentences for one pool."""
    if pool.skipped:
        yield f"pool {pool.name}: nothing is planned for it; the notice says why"
        return
    search = pool.search
    if search is None:
        yield f"pool {pool.name}: {_nodes(pool.nodes_resolved)}, and no service that needs GPUs of its own"
        return
    needs = ", ".join(need.text for need in search.needs)
    yield f"pool {pool.name}: {search.total} GPUs ({needs}) on nodes of {search.node_size} GPUs"
    if pool.auto and pool.lower_bound != 1:
        yield f"  fewer than {_nodes(pool.lower_bound or 0)} cannot hold them (lower bound)"
    yield f"  first fit decreasing: {_found(search)}"
    if search.searched:
        yield f"  exact search: {_searched(search)}"
    yield f"  result: {_result(pool, search)}"
    if search.idle:
        yield f"  {search.idle} GPUs idle, because services own whole nodes"


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def _found(search: Search) -> str:
    opened = f"{_nodes(search.ffd_nodes)} opened"
    return f"{opened}, no room for {', '.join(search.ffd_unplaced)}" if search.ffd_unplaced else opened


def _searched(search: Search) -> str:
    tried = f"{search.trials} places tried"
    return f"{tried}, then its limit was reached" if search.limit_reached else tried


def _result(pool: PoolPlan, search: Search) -> str:
    if not pool.auto:
        return f"{_nodes(pool.nodes_resolved)}, as the pool says"
    if pool.proven_minimal:
        return f"{_nodes(pool.nodes_resolved)}, the fewest possible"
    advice = "" if search.searched else "; try --algorithm exact"
    return f"{_nodes(pool.nodes_resolved)}, not proven to be the fewest{advice}"
