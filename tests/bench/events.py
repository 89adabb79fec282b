"""One node event → its label written, beside the same two writes without a controller, in turns."""

import asyncio
import statistics
import time

from tests.bench import fleet
from tests.bench.bench_cluster import BenchCluster, Observer
from tests.bench.controller import controller
from tests.bench.rows import Row

from gpusharing.api import names
from gpusharing.core.desired_state import Policy
from gpusharing.core.matching import read_node
from gpusharing.core.plan import ApplyRecord, SetLabel
from gpusharing.core.records import wanted_record
from gpusharing.kube import paths
from gpusharing.kube.apply import apply_action

SAMPLES = 30
SPACING_SECONDS = 0.3


async def event_rows(cluster: BenchCluster) -> list[Row]:
    """Move nodes to another pool, one by one; a node that the controller leaves alone is written by hand in between."""
    ours: list[float] = []
    bare: list[float] = []
    spare = len(cluster.pools) - 1
    async with Observer(cluster.admin) as seen, controller(cluster.account_file) as running:
        await running.process.says("caches filled")
        await _set_hands_off(cluster, spare, "true")
        await seen.quiet(5)
        for number in range(SAMPLES):
            ours.append(await _move(cluster, seen, number))
            await asyncio.sleep(SPACING_SECONDS)
            bare.append(await _write_by_hand(cluster, seen, spare, cluster.policies[number % len(cluster.policies)]))
            await asyncio.sleep(SPACING_SECONDS)
    await _set_hands_off(cluster, spare, None)
    beyond = (statistics.median(ours) - statistics.median(bare)) * 1000
    return [
        Row(
            f"one node event → its label, {len(cluster.pools):,} nodes, beyond the bare writes",
            beyond,
            "ms",
            60.0,
            f"{statistics.median(ours) * 1000:.0f} ms, the two writes alone {statistics.median(bare) * 1000:.0f} ms",
            samples=(*ours, *bare),
        )
    ]


async def _move(cluster: BenchCluster, seen: Observer, number: int) -> float:
    """Seconds from the node's change, as a watch shows it, to the change of its config label."""
    pool = (cluster.pools[number] + 1) % len(cluster.policies)
    name, rendered = fleet.node_name(number), cluster.policies[pool].rendered
    assert rendered is not None
    await cluster.admin.merge(f"{paths.NODES}/{name}", {"metadata": {"labels": fleet.moved_to(pool)}})
    cluster.pools[number] = pool
    await seen.until(lambda: rendered.name in seen.labelled.get(name, {}), within=60)
    return seen.labelled[name][rendered.name] - seen.moved[name][str(pool)]


async def _set_hands_off(cluster: BenchCluster, number: int, value: str | None) -> None:
    body = {"metadata": {"labels": {names.SKIP_LABEL: value}}}
    await cluster.admin.merge(f"{paths.NODES}/{fleet.node_name(number)}", body)


async def _write_by_hand(cluster: BenchCluster, seen: Observer, number: int, policy: Policy) -> float:
    """Seconds from the first of the controller's two writes to the change of the label, as a watch shows it."""
    name, rendered = fleet.node_name(number), policy.rendered
    assert rendered is not None
    found = await cluster.admin.list(paths.NODES, field=f"metadata.name={name}", only_metadata=True)
    node = read_node(found[0])
    seen.labelled.pop(name, None)
    started = time.monotonic()
    record = ApplyRecord(wanted_record(node, policy, "per-node", None, None))
    await apply_action(cluster.account, record, names.NAMESPACE)
    await apply_action(cluster.account, SetLabel(name, node.uid, rendered.name, force=False), names.NAMESPACE)
    await seen.until(lambda: rendered.name in seen.labelled.get(name, {}), within=60)
    return seen.labelled[name][rendered.name] - started
