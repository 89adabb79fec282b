"""10,000 nodes and 300 policies: the fleet is rolled out, its plugins report, and then nothing is left to do."""

import asyncio
import statistics
from itertools import pairwise

from tests.bench.bench_cluster import BenchCluster, Observer, say
from tests.bench.controller import controller
from tests.bench.rows import Row

from gpusharing.kube import paths

RESYNC_SECONDS = 24.0
RESYNCS = 3
STATUS_PACE = 2.0


async def many_rows(cluster: BenchCluster) -> list[Row]:
    """Roll out, report, restart, resync."""
    size = f"{len(cluster.pools):,} nodes × {len(cluster.policies)} policies"
    say(f"rolling out {size}")
    async with Observer(cluster.admin) as seen, controller(cluster.account_file, resync="1h") as running:
        started = await running.process.says("caches filled")
        await seen.quiet(15)
        rollout = max(seen.seen[paths.NODES]) - started.at
        peak = running.process.memory("VmHWM")
        say(f"  {rollout:.0f} s, stall {running.longest_stall:.2f} s, {peak:.0f} MB; reports come in")
        await cluster.report()
        await _settled(cluster)
        peak, stall = running.process.memory("VmHWM"), running.longest_stall
    wrong = await cluster.wrong_labels()
    assert not wrong, f"{len(wrong)} nodes have another config than their policy's: {wrong[:3]}"
    say(f"  stall {stall:.2f} s, {peak:.0f} MB; resyncs")
    return [
        Row(f"roll-out and reports, longest event-loop stall, {size}", stall, "s", 0.25, f"roll-out {rollout:.0f} s"),
        *await _resync_rows(cluster, size, peak),
    ]


async def _settled(cluster: BenchCluster) -> None:
    """Wait until no policy's status is written any more."""
    before = cluster.writes()
    while True:
        await asyncio.sleep(3 * STATUS_PACE)
        after = cluster.writes()
        if after["gpusharingpolicies/status"] == before["gpusharingpolicies/status"]:
            return
        before = after


async def _resync_rows(cluster: BenchCluster, size: str, peak: float) -> list[Row]:
    async with controller(cluster.account_file, resync=f"{RESYNC_SECONDS:.0f}s") as running:
        process = running.process
        filled = await process.says("caches filled")
        await process.says("resync", within=300)
        before = cluster.writes()
        await process.says("resync", times=RESYNCS + 1, within=300)
        written = cluster.writes() - before
        del written["leases"]
        memory = max(peak, process.memory("VmHWM"))
        stall, resident = running.longest_stall, process.memory()
    cpu = tuple(after.cpu - before.cpu for before, after in pairwise(process.said["resync"][: RESYNCS + 1]))
    return [
        Row(f"start-up to filled caches, {size}", filled.at - process.started, "s"),
        Row("resync with nothing to do, writes", written.total(), "writes", 0.0, f"{RESYNCS} resyncs"),
        Row(
            f"resync, CPU, {size}",
            statistics.median(cpu),
            "s",
            5.0,
            f"with all that the process does in {RESYNC_SECONDS:.0f} s",
            samples=cpu,
        ),
        Row(f"restart and resyncs, longest event-loop stall, {size}", stall, "s", 0.25),
        Row(f"memory, most resident, {size}", memory, "MB", 300.0, f"at rest after a restart {resident:.0f} MB"),
    ]
