"""`kubectl gpusharing plan` from a file: every policy edited, every node planned."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.bench import fleet
from tests.bench.bench_cluster import RECORDS, BenchCluster
from tests.bench.processes import environment
from tests.bench.rows import Row

from gpusharing.kube import paths

NODES = 1_000
RUNS = 3
CHANGES = 2  # the exit code of a plan that has something to do


async def plan_rows(cluster: BenchCluster) -> list[Row]:
    """Save what `kubectl get nodes,gsp,gpunodes,cm -o json` prints, and plan an edit of every policy.

    The reports of the plugins are made up here: nothing reports in this cluster yet.
    """
    saved, edited = cluster.local.folder / "cluster.json", cluster.local.folder / "policies.yaml"
    items = [
        *(await _saved(cluster, paths.NODES))[:NODES],
        *await _saved(cluster, paths.POLICIES),
        *(await _saved(cluster, RECORDS))[:NODES],
        *_reports(cluster),
    ]
    saved.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4))
    edited.write_text(yaml.safe_dump_all(_edited(number) for number in range(len(cluster.policies))))
    seconds = tuple(_plan(saved, edited) for _ in range(RUNS))
    size = f"{min(NODES, len(cluster.pools)):,} nodes × {len(cluster.policies)} policies"
    about = f"a file of {saved.stat().st_size / 1e6:.0f} MB"
    return [Row(f"kubectl gpusharing plan, {size}", statistics.median(seconds), "s", 2.0, about, samples=seconds)]


async def _saved(cluster: BenchCluster, path: str) -> list[dict[str, Any]]:
    """Objects as kubectl prints them: without managedFields, with apiVersion and kind."""
    version, kind = {
        paths.NODES: ("v1", "Node"),
        paths.POLICIES: ("gpusharing.io/v1alpha1", "GpuSharingPolicy"),
        RECORDS: ("v1", "ConfigMap"),
    }[path]
    items = await cluster.admin.list(path)
    for item in items:
        item["metadata"].pop("managedFields", None)
    return [{"apiVersion": version, "kind": kind, **item} for item in items]


def _reports(cluster: BenchCluster) -> Iterator[dict[str, Any]]:
    for number, pool in enumerate(cluster.pools[:NODES]):
        rendered = cluster.policies[pool].rendered
        assert rendered is not None
        yield fleet.report_object(number, rendered)


def _edited(number: int) -> dict[str, Any]:
    policy = fleet.policy_object(number)
    policy["spec"]["allocation"]["policy"] = "distributed"
    return policy


def _plan(saved: Path, edited: Path) -> float:
    program = Path(sys.executable).with_name("kubectl-gpusharing")
    command = [str(program), "plan", "-f", str(edited), "--from", str(saved)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    seconds = time.monotonic() - started
    if done.returncode != CHANGES:
        raise RuntimeError(f"plan ended with {done.returncode}: {done.stderr[-500:]}")
    return seconds
