"""Preferred allocation: ids in to ids out, beside a short Go restatement of the reference's algorithms in the same run.

`python -m tests.bench.allocation` prints these rows alone.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from tests.bench.rows import Row, print_table
from tests.support import pluginprocess
from tests.support.allocation import gpu, ids_of, whole_gpus

from gpusharing.api.scenarioreport import PolicyResult
from gpusharing.api.sharing import Allocation
from gpusharing.cli.scenariofile import read_scenario
from gpusharing.core.allocation import partition
from gpusharing.core.allocation.prefer import Preferences, prefer, preferences
from gpusharing.core.allocation.request import AllocationRequest
from gpusharing.core.devices import Inventory, Link
from gpusharing.core.resources import Device, Resource
from gpusharing.core.simulation.comparison import simulate

REFERENCE = Path(__file__).parent / "reference"
# GPUs, shares of each, size of the request, goal in µs for packed, what NVIDIA's plugin was measured at
REQUESTS = (
    (8, 10, 1, 10.0, "27 µs"),
    (8, 64, 16, 40.0, "1.0 ms"),
    (16, 128, 32, 150.0, "7.1 ms"),
    (16, 128, 256, 250.0, "48.9 ms"),
)
FREE = 0.6
# of each request; more, until it took so many seconds
RUNS, SECONDS = 100, 0.3
# over the socket
CALLS = 500
# of the slower Go programme
REFERENCE_RUNS = 7
PACKED_128 = """\
version: v1
flags: {plugin: {sharedDevicesAllocationPolicy: packed}}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 128}]}}
"""
TOPOLOGIES, ALIGNED_GPUS = 200, 16
SCENARIOS = Path(__file__).parents[2] / "config" / "scenarios"


@dataclass(frozen=True, slots=True)
class Node:
    """Shares of GPUs with some of them free, in the order that a kubelet might send."""

    ids: tuple[str, ...]
    available: tuple[str, ...]
    preferences: Preferences


def allocation_rows() -> list[Row]:
    """Measure. Takes about a minute, most of it for the optima of the topologies."""
    with tempfile.TemporaryDirectory() as folder:
        programme = Path(folder) / "reference"
        subprocess.run(["go", "build", "-o", str(programme), "."], cwd=REFERENCE, check=True)
        shares = [*_greedy_rows(programme), _growth_row(), asyncio.run(_call_row())]
        return [*shares, *_aligned_rows(programme), *_free_gpu_rows(), *_split_rows()]


# --- shares


def _greedy_rows(programme: Path) -> Iterator[Row]:
    for policy, factor in (("packed", 1), ("distributed", 2)):
        for gpus, replicas, size, goal, recorded in REQUESTS:
            node = _node(gpus, replicas, policy)
            samples = _microseconds(node, size)
            job = {"kind": "greedy", "policy": policy, "devices": node.ids, "available": node.available, "size": size}
            (answer,) = _ask(programme, [{**job, "repeat": REFERENCE_RUNS}])
            ours, go = statistics.median(samples), statistics.median(answer["ns"]) / 1e3
            yield Row(
                f"{policy}, {gpus} × {replicas} shares, size {size}",
                ours,
                "µs",
                goal * factor,
                f"{go:,.0f} µs by the Go restatement, {go / ours:.1f} ×; NVIDIA's own: {recorded}",
                samples,
            )


def _growth_row() -> Row:
    """The least of each: a longer list meets more of whatever else the machine does."""
    per_id = {}
    for replicas in (128, 1024):
        node = _node(16, replicas, "packed")
        per_id[replicas] = min(_microseconds(node, 32)) / len(node.available)
    about = f"{1000 * per_id[128]:.0f} and {1000 * per_id[1024]:.0f} ns per available id"
    return Row("packed, cost per id, 16 × 1024 against 16 × 128", per_id[1024] / per_id[128], "×", 1.5, about)


def _node(gpus: int, replicas: int, policy: str) -> Node:
    uuids = [f"GPU-{at:08x}-1234-5678-9abc-{at:012x}" for at in range(gpus)]
    devices = tuple(Device(f"{uuid}::{at}", uuid, uuid) for uuid in uuids for at in range(replicas))
    inventory = Inventory(gpus=tuple(gpu(at, uuid) for at, uuid in enumerate(uuids)))
    made = preferences(
        Resource("nvidia.com/gpu", devices, replicas=replicas), inventory, Allocation.model_validate({"policy": policy})
    )
    ids = tuple(device.id for device in devices)
    return Node(ids, _free(ids, Random(1)), made)


def _free(ids: Sequence[str], random: Random) -> tuple[str, ...]:
    return tuple(random.sample(ids, int(FREE * len(ids))))


def _microseconds(node: Node, size: int) -> tuple[float, ...]:
    """Each time with strings of its own: their hashes are not known yet, as when they come from a socket."""
    samples, until = list[float](), time.perf_counter() + SECONDS
    while len(samples) < RUNS or time.perf_counter() < until:
        available = [each[:9] + each[9:] for each in node.available]
        started = time.perf_counter()
        choice = prefer(AllocationRequest(available, size), node.preferences)
        samples.append((time.perf_counter() - started) * 1e6)
        assert len(choice.ids) == size
    return tuple(samples)


async def _call_row() -> Row:
    """The plugin as a process, asked over its socket as a kubelet does; the time is the caller's, in Python, too."""
    random, samples = Random(1), list[float]()
    async with pluginprocess.bench(PACKED_128, pluginprocess.gpus(16)) as folder, folder.plugin():
        await folder.listed(16 * 128, 16 * 128)
        manager = folder.kubelet.manager
        endpoint, ids = manager.endpoints[pluginprocess.GPU][-1], sorted(manager.healthy[pluginprocess.GPU])
        for _ in range(CALLS):
            available, size = _free(ids, random), random.choice((1, 8, 32, 128))
            started = time.perf_counter()
            chosen = await folder.kubelet.prefer(endpoint, available, (), size)
            samples.append((time.perf_counter() - started) * 1e3)
            assert len(chosen) == size
    median, worst = statistics.median(samples), statistics.quantiles(samples, n=100)[98]
    name = "whole GetPreferredAllocation over the socket, 16 × 128 shares, p99"
    return Row(name, worst, "ms", 10.0, f"median {median:.1f} ms; sizes 1 to 128", tuple(samples))


# --- whole GPUs


def _aligned_rows(programme: Path) -> Iterator[Row]:
    topologies = [_topology(seed) for seed in range(TOPOLOGIES)]
    optima = [answer["optima"] for answer in _ask(programme, [{"kind": "optimum", "scores": it} for it in topologies])]
    calls: dict[int, list[float]] = {size: [] for size in range(1, ALIGNED_GPUS + 1)}
    tables, below = [], []
    for scores, best in zip(topologies, optima, strict=True):
        made, milliseconds = _timed(partial(_table, scores))
        tables.append(milliseconds)
        for size, samples in calls.items():
            choice, milliseconds = _timed(partial(prefer, AllocationRequest(ids_of(made), size), made))
            samples.append(milliseconds)
            assert len(choice.ids) == size
        below.append(max(_below(scores, size, best[size]) for size in range(2, ALIGNED_GPUS)))
    name = f"aligned, {ALIGNED_GPUS} GPUs, {TOPOLOGIES} random topologies"
    slowest = max(calls, key=lambda size: statistics.median(calls[size]))
    (answer,) = _ask(programme, [{"kind": "aligned", "scores": topologies[0], "size": 4, "repeat": 1}])
    about = (
        f"size {slowest} of 1 to 16; enumeration in Go, size 4: {answer['ns'][0] / 1e6:,.0f} ms; NVIDIA's: to 20.8 s"
    )
    yield Row(f"{name}, a call", statistics.median(calls[slowest]), "ms", 20.0, about, tuple(calls[slowest]))
    yield Row(f"{name}, table", statistics.median(tables), "ms", 100.0, "once per topology", tuple(tables))
    yield Row(f"{name}, below the optimum", 100 * max(below), "%", 7.0, f"mean {100 * statistics.mean(below):.1f} %")


def _below(scores: Sequence[Sequence[int]], size: int, best: int) -> float:
    """How far the partition that the choice comes from is below the best one."""
    sets = partition.search(scores, (), size)
    return 1 - sum(scores[one][other] for each in sets for one, other in combinations(each, 2)) / best


def _topology(seed: int) -> list[list[int]]:
    """Pair scores: any PCIe distance, NVLinks between two of five pairs."""
    random = Random(seed)
    scores = [[0] * ALIGNED_GPUS for _ in range(ALIGNED_GPUS)]
    for one, other in combinations(range(ALIGNED_GPUS), 2):
        nvlinks = random.randint(1, 18) if random.random() < 0.4 else 0
        scores[one][other] = scores[other][one] = random.choice([10, 20, 30, 40, 50, 60]) + 100 * nvlinks
    return scores


def _table(scores: Sequence[Sequence[int]]) -> Preferences:
    uuids = [f"GPU-{at:02}" for at in range(ALIGNED_GPUS)]
    links = {
        (uuids[one], uuids[other]): Link(60 - scores[one][other] % 100, scores[one][other] // 100)
        for one, other in combinations(range(ALIGNED_GPUS), 2)
    }
    return whole_gpus(links, uuids)


# --- in simulated time


def _free_gpu_rows() -> Iterator[Row]:
    """MIG devices under swinging load, beside NVIDIA's buckets in the same run."""
    results = _simulated("mig-swinging-load")
    packed, nvidia = results["packed"].free_gpus.median, results["nvidia-packed"].free_gpus.median
    of_ideal, ideal = results["packed"].of_ideal, results["packed"].ideal_free_gpus.median
    assert of_ideal
    about = f"{packed:.2f} of {ideal:.2f}; the worst seed {100 * (1 - of_ideal.lowest):.0f} %"
    yield Row("MIG scenario, packed, free GPUs below the ideal", 100 * (1 - of_ideal.median), "%", 10.0, about)
    about = f"{nvidia:.2f} of {packed:.2f} GPUs: packed keeps {packed / nvidia:.0f} ×"
    yield Row("MIG scenario, buckets by MIG id, free GPUs beside packed's", 100 * nvidia / packed, "%", 100 / 8, about)


def _split_rows() -> Iterator[Row]:
    """Shares of several sizes: how many of the requests that one GPU could hold are split."""
    results = _simulated("time-sliced-inference")
    for name, goal in (("packed, keepTogether: preferred", 0.0), ("packed", None), ("nvidia-packed", None)):
        result = results[name]
        split = 100 * result.split_needlessly / result.could_stay_together
        about = f"of {result.could_stay_together:,}; GPUs that stay free: {result.free_gpus.median:.2f}"
        also = "; NVIDIA's own: 55 to 73 %" if result.reference else ""
        yield Row(f"inference scenario, {name}, split needlessly", split, "%", goal, about + also)


def _simulated(name: str) -> dict[str, PolicyResult]:
    report = simulate(read_scenario(str(SCENARIOS / f"{name}.yaml")))
    return {result.policy: result for result in report.policies}


# --- the Go programme


def _ask(programme: Path, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "\n".join(map(json.dumps, jobs))
    done = subprocess.run([str(programme)], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    value = call()
    return value, (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    rows = allocation_rows()
    print_table(rows, "allocation")
    sys.exit(0 if all(row.ok for row in rows) else 1)
