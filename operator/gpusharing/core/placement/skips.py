"""Pools that nothing is planned for, and why (guide, sections 3.6 and 6.2)."""

from collections.abc import Sequence

from gpusharing.api.placement import Pool
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.problems import Code, Problem


def unknown_size(pool: Pool) -> Problem:
    """Return why a fixed pool of unknown size is skipped."""
    return _skipped(pool, "has no gpusPerNode and there is no inventory")


def as_the_reference_does(pool: Pool, demands: Sequence[Demand]) -> Problem | None:
    """Return the notice that the pool is skipped, the error that it needs a node count, or None (compat only)."""
    exclusive = [each.name for each in demands if each.exclusive]
    if pool.nodes == "auto":
        if not exclusive:
            return None
        message = f"pool '{pool.name}' has nodes: auto but holds services with exclusiveNodes ({', '.join(exclusive)})"
        return Problem(Code.EXCLUSIVE_NEEDS_COUNT, f"{message}; give a node count", pool=pool.name)
    if exclusive:
        return _skipped(pool, f"holds services with exclusiveNodes ({', '.join(exclusive)})")
    owners = [each for each in demands if each.owner]
    if owners and all(each.leftover is not None for each in owners):
        return _skipped(pool, f"has no service with GPUs of its own beside {_names(owners)}")
    unknown = [each for each in owners if each.leftover is None and not each.evenly and not each.pinned]
    if pool.nodes > 1 and unknown:
        return _skipped(pool, f"has {pool.nodes} nodes and the need per node of {_names(unknown)} is not known")
    return None


def _names(demands: Sequence[Demand]) -> str:
    return ", ".join(each.name for each in demands)


def _skipped(pool: Pool, why: str) -> Problem:
    return Problem(Code.POOL_SKIPPED, f"pool '{pool.name}' {why}; nothing is planned for it", pool=pool.name)
