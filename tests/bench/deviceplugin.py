"""The in-node plugin beside a bare 40-line one, both against the kubelet double on this machine (decision 33)."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench.bench_cluster import BenchCluster, say
from tests.bench.processes import Process
from tests.bench.rows import Row
from tests.support.fakenvml import FakeDriver
from tests.support.kubeletdouble import KubeletDouble, Pod

from gpusharing.api import names
from gpusharing.kube import paths

GPU = names.GPU_RESOURCE
RESTARTS, STARTS, EDITS = 10, 5, 10
QUIET_SECONDS = 30.0
# the most that a node takes
NAMES = 32


async def plugin_rows(cluster: BenchCluster) -> list[Row]:
    """Every figure of the in-node plugin."""
    with tempfile.TemporaryDirectory(prefix="gsb") as folder:
        bench = PluginBench(Path(folder))
        say("in-node plugin: starts and restarts of the kubelet")
        rows = await bench.starts()
        rows += await bench.restarts()
        rows += await bench.admissions()
        say("in-node plugin: edits")
        rows += await bench.edits(cluster)
        say("in-node plugin: 1 and 32 names of placements")
        rows += await bench.names(cluster)
        say("in-node plugin: 16 × 128 shares, 60,000 devices")
        return rows + await bench.many()


def inventory(gpus: int) -> str:
    """An inventory of so many GPUs, as YAML."""
    lines = [f"- {{index: {n}, model: NVIDIA L40S, memoryMiB: 46068, numaNode: {n % 2}}}" for n in range(gpus)]
    return "\n".join(["name: bench", "gpus:", *lines, ""])


def config(replicas: int) -> str:
    """A config that shares every GPU so often."""
    return f"version: v1\nsharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: {replicas}}}]}}}}\n"


@asynccontextmanager
async def resting_plugin() -> AsyncIterator["Resting"]:
    """Run a plugin at rest beside all that is measured: its memory after ten minutes costs no time of its own."""
    with tempfile.TemporaryDirectory(prefix="gsr") as folder:
        async with PluginBench(Path(folder)).resting() as resting:
            yield resting


class Resting:
    """A plugin with its NVML worker, at rest."""

    def __init__(self, process: Process, bare_mib: float) -> None:
        self._process = process
        self._bare_mib = bare_mib

    async def cpu(self) -> Row:
        """Its CPU in a while in which nothing else is measured."""
        await asyncio.sleep(QUIET_SECONDS / 3)
        before, began = self._process.cpu_of_all, time.monotonic()
        await asyncio.sleep(QUIET_SECONDS)
        used = (self._process.cpu_of_all - before) / (time.monotonic() - began) * 1000
        return Row("plugin with its NVML worker, CPU at rest", used, "mCPU", 10.0)

    def memory(self) -> Row:
        """Its memory by now, and how old it is; the goal is one for ten minutes."""
        minutes = (time.monotonic() - self._process.started) / 60
        return Row(
            "plugin with its NVML worker, anonymous memory, 8 GPUs × 10",
            self._process.anonymous_mib,
            "MiB",
            70.0,
            f"bare {self._bare_mib:.0f}; after {minutes:.0f} min",
        )


class PluginBench:
    """Runs plugins in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kubelet = folder / "dp"
        self._kubelet.mkdir()
        self._config = folder / "config.yaml"
        self._inventory = folder / "inventory.yaml"
        self._states = 0

    def _write(self, gpus: int, replicas: int) -> None:
        self._inventory.write_text(inventory(gpus))
        self._config.write_text(config(replicas))

    @asynccontextmanager
    async def _ours(self, *flags: str, file: bool = True) -> AsyncIterator[Process]:
        """Run our plugin without a former state; `flags` win over what a simulated node gets."""
        self._states += 1
        given = {
            "kubelet-socket": str(self._kubelet / "kubelet.sock"),
            "pod-resources-socket": str(self._folder / "pod-resources" / "kubelet.sock"),
            "state-dir": str(self._folder / f"state-{self._states}"),
            "http-address": "127.0.0.1:0",
            "discovery": "simulated",
            "inventory": str(self._inventory),
            "report": "false",
        }
        given |= {"config-file": str(self._config)} if file else {}
        given |= dict(flag.split("=", 1) for flag in flags)
        arguments = [f"--{name}={value}" for name, value in given.items() if value]
        process = await Process.start("gpusharing", "device-plugin", *arguments)
        try:
            yield process
        finally:
            await process.stop()

    @asynccontextmanager
    async def _bare(self, count: int) -> AsyncIterator[Process]:
        process = await Process.start("tests.support.bareplugin", str(self._kubelet), GPU, str(count))
        try:
            yield process
        finally:
            await process.stop()

    @asynccontextmanager
    async def resting(self) -> AsyncIterator["Resting"]:
        """Run a plugin of 8 GPUs with 10 shares, by NVML, that nobody asks for anything."""
        self._write(8, 10)
        async with KubeletDouble(self._kubelet) as kubelet, self._bare(80) as bare:
            await kubelet.until(lambda: kubelet.count().get(GPU) == (80, 80), "the list", guard=60)
            least = bare.anonymous_mib
        driver = FakeDriver(self._folder, inventory(8))
        flags = ("discovery=", "inventory=", f"container-driver-root={driver.root}")
        async with KubeletDouble(self._kubelet) as kubelet, self._ours(*flags) as process:
            await kubelet.until(lambda: kubelet.count().get(GPU) == (80, 80), "the list", guard=60)
            yield Resting(process, least)

    async def starts(self) -> list[Row]:
        """From the start of the process to the list that the kubelet has counted."""
        self._write(8, 10)
        ours, bare = list[float](), list[float]()
        for _ in range(STARTS):
            async with KubeletDouble(self._kubelet) as kubelet, self._ours() as process:
                await kubelet.until(lambda: kubelet.count().get(GPU) == (80, 80), "the list", guard=60)
                ours.append(time.monotonic() - process.started)
            async with KubeletDouble(self._kubelet) as kubelet, self._bare(80) as process:
                await kubelet.until(lambda: kubelet.count().get(GPU) == (80, 80), "the list", guard=60)
                bare.append(time.monotonic() - process.started)
        return _beside("start to first list", ours, bare, 4.0, 1.5)

    async def restarts(self) -> list[Row]:
        """From the kubelet's new socket to the list that it has counted."""
        self._write(8, 10)
        async with KubeletDouble(self._kubelet) as kubelet, self._ours():
            ours = await self._restarted(kubelet)
        async with KubeletDouble(self._kubelet) as kubelet, self._bare(80):
            bare = await self._restarted(kubelet)
        return _beside("kubelet's new socket to first list", ours, bare, 3.0, 0.3)

    async def _restarted(self, kubelet: KubeletDouble) -> list[float]:
        await kubelet.until(lambda: kubelet.count().get(GPU) == (80, 80), "the list", guard=60)
        seconds = []
        for _ in range(RESTARTS):
            await kubelet.restart(down=0.3)
            began = time.monotonic()
            await kubelet.until(lambda: kubelet.count().get(GPU) == (80, 80), "the list again", guard=60)
            seconds.append(time.monotonic() - began)
        return seconds

    async def admissions(self) -> list[Row]:
        """A preference and an Allocate each, until every one of 8 × 64 shares is taken (P5)."""
        self._write(8, 64)
        seconds = list[float]()
        async with KubeletDouble(self._kubelet) as kubelet, self._ours():
            await kubelet.until(lambda: kubelet.count().get(GPU) == (512, 512), "the list", guard=60)
            for number in range(512 // 4):
                began = time.monotonic()
                await kubelet.admit(Pod(f"pod-{number}", limits={GPU: 4}))
                seconds.append(time.monotonic() - began)
        p99 = statistics.quantiles(seconds, n=100)[98]
        median = f"median {statistics.median(seconds) * 1000:.0f} ms"
        return [Row("preference and Allocate at the kubelet, 8 GPUs × 64, p99", p99, "s", 1.0, median, tuple(seconds))]

    async def edits(self, cluster: BenchCluster) -> list[Row]:
        """From the write of the node's label to the list at the kubelet; the plugin reports, as it does on a node."""
        self._write(8, 10)
        node, seconds = "bench-plugin", list[float]()
        data = {f"shares-{count}": config(count) for count in (4, 8)}
        record = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-hand"}, "data": data}
        await cluster.admin.create(paths.configmaps(names.NAMESPACE), record)
        await cluster.admin.create(paths.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        flags = (f"kubeconfig={cluster.local.kubeconfig}", f"node-name={node}", "change-spacing=0s")
        flags += (f"config-map={names.NAMESPACE}/by-hand", "report=true")
        async with KubeletDouble(self._kubelet) as kubelet, self._ours(*flags, file=False) as process:
            for number in range(EDITS):
                count = (4, 8)[number % 2]
                began = time.monotonic()
                label = {"metadata": {"labels": {names.CONFIG_LABEL: f"shares-{count}"}}}
                await cluster.admin.merge(f"{paths.NODES}/{node}", label)
                await kubelet.until(lambda count=count: _healthy(kubelet) == 8 * count, "the edit", guard=60)
                seconds.append(time.monotonic() - began)
            memory = process.anonymous_mib
        await cluster.admin.delete(f"{paths.NODES}/{node}")
        await cluster.admin.delete(f"{paths.GPU_NODES}/{node}")
        median = statistics.median(seconds[1:])
        return [
            Row("config edit to the list at the kubelet", median, "s", 1.0, samples=tuple(seconds)),
            Row(
                "plugin that follows and reports to the API server, anonymous memory", memory, "MiB", 60.0, "no worker"
            ),
        ]

    async def names(self, cluster: BenchCluster) -> list[Row]:
        """From the kubelet's new socket to the lists of all names that placements have here, on 4 of 8 GPUs."""
        self._write(8, 10)
        node, one, rows = "bench-names", {"apiVersion": "v1", "kind": "Node"}, list[Row]()
        await cluster.admin.create(paths.NODES, {**one, "metadata": {"name": node}})
        flags = (f"kubeconfig={cluster.local.kubeconfig}", f"node-name={node}", "report=true", "report-spacing=0.2s")
        async with KubeletDouble(self._kubelet) as kubelet, self._ours(*flags, file=False):
            await kubelet.until(lambda: _healthy(kubelet) == 8, "the list", guard=60)
            for count in (1, NAMES):
                wanted = await _reserve(cluster, node, count)
                seconds = []
                for _ in range(RESTARTS):
                    await kubelet.until(lambda wanted=wanted: _has(kubelet, wanted), "all names", guard=120)
                    await kubelet.restart(down=0.3)
                    began = time.monotonic()
                    await kubelet.until(lambda wanted=wanted: _has(kubelet, wanted), "all names again", guard=60)
                    seconds.append(time.monotonic() - began)
                what = f"kubelet's new socket to all lists, names of placements: {count}"
                rows.append(Row(what, statistics.median(seconds), "s", samples=tuple(seconds)))
        await cluster.admin.delete(f"{paths.NODES}/{node}")
        await cluster.admin.delete(f"{paths.GPU_NODES}/{node}")
        return rows

    async def many(self) -> list[Row]:
        """Lists as long as they may be."""
        rows = []
        for gpus, replicas, what in ((16, 128, "16 × 128 shares"), (8, 7500, "60,000 devices")):
            self._write(gpus, replicas)
            async with KubeletDouble(self._kubelet) as kubelet, self._ours() as process:
                await kubelet.until(lambda n=gpus * replicas: _healthy(kubelet) == n, "the list", guard=120)
                rows.append(Row(f"start to first list, {what}", time.monotonic() - process.started, "s"))
        return rows


async def _reserve(cluster: BenchCluster, node: str, count: int) -> list[str]:
    """Ask for so many names over the first four GPUs of the node, as the controller does."""
    path = f"{paths.GPU_NODES}/{node}"
    while not (found := await cluster.admin.list(paths.GPU_NODES, field=f"metadata.name={node}")) or not (
        status := found[0].get("status")
    ):
        await asyncio.sleep(0.1)  # until the plugin has reported
    gpus = [gpu["uuid"] for gpu in status["gpus"]][:4]
    resources = [f"{names.PLACE_DOMAIN}s{number}.bench.default" for number in range(count)]
    wanted = [
        {
            "resource": name,
            "placement": "default/bench",
            "service": f"s{at}",
            "gpus": [gpus[at % 4]],
            "exclusive": False,
        }
        for at, name in enumerate(resources)
    ]
    await cluster.admin.merge(path, {"spec": {"reservations": wanted}})
    return resources


def _has(kubelet: KubeletDouble, wanted: list[str]) -> bool:
    counts = kubelet.count()
    return GPU in counts and all(counts.get(name) == (1, 1) for name in wanted)


def _healthy(kubelet: KubeletDouble) -> int:
    return kubelet.count().get(GPU, (0, 0))[1]


def _beside(what: str, ours: list[float], bare: list[float], times: float, most: float) -> list[Row]:
    median, least = statistics.median(ours), statistics.median(bare)
    return [
        Row(f"{what}, beside a bare plugin", median / least, "×", times, f"bare {least * 1000:.0f} ms"),
        Row(what, median, "s", most, samples=tuple(ours)),
    ]
