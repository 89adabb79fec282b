"""Runs everything, prints one table and writes bench-results/<moment>.json. `python -m tests.bench --scale small`."""

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass

from tests.bench.allocation import allocation_rows
from tests.bench.bench_cluster import BenchCluster, say
from tests.bench.cold import cold_rows
from tests.bench.deviceplugin import plugin_rows, resting_plugin
from tests.bench.events import event_rows
from tests.bench.many import many_rows
from tests.bench.placement import placement_rows
from tests.bench.plan import plan_rows
from tests.bench.processes import compile_all
from tests.bench.rows import Row, keep, machine, print_table
from tests.support.cluster.local import LocalCluster


@dataclass(frozen=True, slots=True)
class Scale:
    """How many nodes and policies."""

    nodes: int
    policies: int
    many_nodes: int
    many_policies: int


SCALES = {"small": Scale(200, 50, 1_000, 300), "full": Scale(2_000, 50, 10_000, 300)}


async def run(scale: Scale, rows: list[Row]) -> None:
    """Fill `rows` stage by stage, so that what was measured is kept whatever comes after."""
    compile_all()
    say("in-node plugin at rest: CPU; it stays, its memory is read at the end")
    async with resting_plugin() as resting:
        rows.append(await resting.cpu())
        try:
            await _run_the_rest(scale, rows)
        finally:
            rows.append(resting.memory())


async def _run_the_rest(scale: Scale, rows: list[Row]) -> None:
    say("allocation")
    rows += await asyncio.to_thread(allocation_rows)
    say("placement")
    rows += await asyncio.to_thread(placement_rows)
    local = await asyncio.to_thread(LocalCluster.start)
    try:
        cluster = await BenchCluster.start(local)
        try:
            rows += await plugin_rows(cluster)
            say(f"creating {scale.nodes:,} nodes")
            await cluster.grow_nodes(scale.nodes, scale.policies)
            rows += await cold_rows(cluster, scale.policies)
            say("one node event at a time")
            rows += await event_rows(cluster)
            rows += await plan_rows(cluster)
            say(f"creating nodes up to {scale.many_nodes:,}")
            await cluster.create_policies(scale.many_policies)
            await cluster.grow_nodes(scale.many_nodes, scale.many_policies)
            rows += await many_rows(cluster)
        finally:
            await cluster.close()
    finally:
        local.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SCALES), default="full", help="small: a few minutes, no verdict")
    scale = parser.parse_args().scale
    about = {"scale": scale, "machine": machine()}
    started, rows = time.monotonic(), list[Row]()
    try:
        asyncio.run(run(SCALES[scale], rows))
    finally:
        if rows:
            print_table(rows, f"gpu-sharing-operator, {about['machine']}")
            say(f"kept in {keep(rows, about)}, after {time.monotonic() - started:.0f} s")
    return 0 if scale == "small" or all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
