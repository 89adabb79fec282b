"""Planning a placement of forty services on nodes of 16 GPUs: times, and what the exact search is worth.

`python -m tests.bench.placement` prints these rows alone.
"""

import gc
import statistics
import sys
import time
from collections.abc import Iterator

from tests.bench.rows import Row, median_ratio, print_table
from tests.support.placementmixes import MIXES, NODE_GPUS, SERVICES, mixed, mixed_fractions

from gpusharing.api.placement import PlacementSpec
from gpusharing.core.placement.algorithms.exact import MAX_TRIALS
from gpusharing.core.placement.plan import Plan, PoolPlan
from gpusharing.core.placement.planner import place
from gpusharing.core.placement.request import Request

SEEDS = range(100)
FRACTION_SEEDS = range(30)
# milliseconds that the slowest plan of a mix may take (placement guide, section 11)
GOALS = {"LLM-like": 15.0}
WORST = 50.0
RUNS = 3


def placement_rows() -> list[Row]:
    """Measure. Takes some ten seconds."""
    gc.collect()
    gc.disable()  # a full collection of this process takes longer than a plan
    try:
        return [*map(_mix_row, MIXES), _limit_row()]
    finally:
        gc.enable()


def _mix_row(mix: str) -> Row:
    exact, times = zip(*(_planned(mixed(mix, seed)) for seed in SEEDS), strict=True)
    _, ffd = zip(*(_planned(mixed(mix, seed, "ffd")) for seed in SEEDS), strict=True)
    won = sum(pool.search.ffd_nodes - pool.nodes_resolved for pool in exact if pool.search)
    proven = 100 * sum(bool(pool.proven_minimal) for pool in exact) / len(exact)
    trials = max(pool.search.trials for pool in exact if pool.search)
    ratio = median_ratio(times, ffd)
    about = (
        f"median {statistics.median(times):.1f} ms, {ratio:.2f} × ffd; {proven:.0f} % proven, {won} nodes won back, at "
        f"most {trials:,} trials"
    )
    name = f"place, {mix}, {SERVICES} services on {NODE_GPUS}-GPU nodes, worst of {len(SEEDS)}"
    return Row(name, max(times), "ms", GOALS.get(mix, WORST), about, times)


def _limit_row() -> Row:
    """The searches that end at the limit: fractions, which never gather into few states as whole GPUs do."""
    times = tuple(took for pool, took in _all_fractions() if pool.search and pool.search.limit_reached)
    about = f"{len(times)} of {len(FRACTION_SEEDS)} meet it; fractions of 10 shares beside whole GPUs"
    name = f"place, at the limit of {MAX_TRIALS:,} trials, worst"
    return Row(name, max(times), "ms", WORST, about, times)


def _all_fractions() -> Iterator[tuple[PoolPlan, float]]:
    return (_planned(mixed_fractions(seed)) for seed in FRACTION_SEEDS)


def _planned(spec: PlacementSpec) -> tuple[PoolPlan, float]:
    """The pool and the milliseconds of CPU that the plan took, the best of a few runs: nobody else's work counts."""
    samples = []
    for _ in range(RUNS):
        started = time.process_time()
        plan = place(Request(spec))
        samples.append((time.process_time() - started) * 1e3)
        assert isinstance(plan, Plan)
    return plan.pools[0], min(samples)


if __name__ == "__main__":
    rows = placement_rows()
    print_table(rows, "placement")
    sys.exit(0 if all(row.ok for row in rows) else 1)
