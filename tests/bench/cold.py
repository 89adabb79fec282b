"""From cold: nothing is written yet; every node gets its record and its label, by controller and by bare loop."""

import json
import statistics
import time
from collections import Counter
from dataclasses import dataclass

from tests.bench.bench_cluster import RECORDS, BenchCluster, Observer, say
from tests.bench.controller import controller
from tests.bench.processes import Process
from tests.bench.rows import Row, median_ratio

from gpusharing.kube import paths

ROUNDS = 3
STATUS_PACE = 2.0
QUIET_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ColdRun:
    """What one run of the controller showed."""

    seconds: float
    start_up: float
    stall: float
    cpu: float
    memory: float
    # how long writes were counted for, and how many there were, by resource
    counted: float
    writes: Counter[str]


async def cold_rows(cluster: BenchCluster, policies: int) -> list[Row]:
    """Three rounds of controller and bare loop, in turns the one and the other first."""
    ours: list[ColdRun] = []
    bare: list[float] = []
    for round_number in range(ROUNDS):
        for who in ("controller", "bare loop")[:: 1 if round_number % 2 == 0 else -1]:
            await cluster.back_to_cold()
            await cluster.create_policies(policies)
            if who == "controller":
                ours.append(await run_controller(cluster))
                say(f"round {round_number + 1}, {who}: {ours[-1]}")
            else:
                bare.append(await run_bare_loop(cluster))
                say(f"round {round_number + 1}, {who}: {bare[-1]:.2f} s")
    return _rows(ours, bare, len(cluster.pools), policies)


def _rows(ours: list[ColdRun], bare: list[float], nodes: int, policies: int) -> list[Row]:
    size = f"{nodes:,} nodes × {policies} policies"
    seconds = tuple(run.seconds for run in ours)
    start_ups = tuple(run.start_up for run in ours)
    per_node = max((run.writes["nodes"] + run.writes["configmaps"]) / nodes for run in ours)
    statuses = max(run.writes["gpusharingpolicies/status"] / policies / (run.counted / STATUS_PACE) for run in ours)
    return [
        Row(f"start-up to filled caches, {size}", statistics.median(start_ups), "s", 5.0, samples=start_ups),
        Row(
            f"cold, first to last write, {size}",
            median_ratio(seconds, bare),
            "×",
            1.15,
            f"controller {statistics.median(seconds):.1f} s, bare loop {statistics.median(bare):.1f} s",
            samples=(*seconds, *bare),
        ),
        Row(
            "cold, node and ConfigMap writes per changed node",
            per_node,
            "writes",
            2.0,
            "; ".join(f"{count} {what}" for what, count in ours[-1].writes.most_common()),
        ),
        Row("cold, status writes per policy and 2 s", statuses, "writes", 1.0),
        Row(f"cold, longest event-loop stall, {size}", max(run.stall for run in ours), "s", 0.25),
        Row(f"cold, CPU of the controller, {size}", statistics.median(run.cpu for run in ours), "s"),
    ]


async def run_controller(cluster: BenchCluster) -> ColdRun:
    before = cluster.writes()
    async with Observer(cluster.admin) as seen, controller(cluster.account_file) as running:
        filled = await running.process.says("caches filled")
        await _written(cluster, seen)
        seconds, cpu = seen.first_to_last(), running.process.cpu
        await seen.quiet(QUIET_SECONDS)
        writes = cluster.writes() - before
        counted = time.monotonic() - filled.at
        stall, memory = running.longest_stall, running.process.memory("VmHWM")
    wrong = await cluster.wrong_labels()
    assert not wrong, f"{len(wrong)} nodes have another config than their policy's: {wrong[:3]}"
    return ColdRun(seconds, filled.at - running.process.started, stall, cpu, memory, counted, writes)


async def run_bare_loop(cluster: BenchCluster) -> float:
    file = cluster.local.folder / "writes.json"
    file.write_text(json.dumps(await cluster.writes_to_make()))
    async with Observer(cluster.admin) as seen:
        process = await Process.start("tests.bench.bareloop", str(cluster.account_file), str(file))
        try:
            await process.says("written", within=600)
            await _written(cluster, seen)
        finally:
            await process.stop()
    wrong = await cluster.wrong_labels()
    assert not wrong, f"{len(wrong)} nodes have another config than their policy's: {wrong[:3]}"
    return seen.first_to_last()


async def _written(cluster: BenchCluster, seen: Observer) -> None:
    """Wait until every node and every record was written once."""
    count = len(cluster.pools)
    await seen.until(lambda: len(seen.seen[paths.NODES]) >= count and len(seen.seen[RECORDS]) >= count)
