"""Reports for nodes as the in-node plugin will: `GpuNode.status`, written through the API models.

The inventory comes from the node's labels, the config from the node's record; what a test wants to go wrong is set by
node. Its thread polls the API server; nothing is reported for a node that is `silent`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any

from tests.support.cluster.api import GPU_NODES, NODES, Api, ApiStatusError, config_maps
from tests.support.reservations import ReservationDouble

from gpusharing.api import names
from gpusharing.api.meta import Condition
from gpusharing.api.node import (
    READY_CONDITION,
    ConfigReport,
    Gpu,
    GpuNodeSpec,
    GpuNodeStatus,
    MigDevice,
    OccupancyReport,
    ResourceReport,
)
from gpusharing.api.pluginconfig import InvalidPluginConfig, PluginConfig, load
from gpusharing.core.advertise import implied
from gpusharing.core.gfd import GpuLabels, read_labels
from gpusharing.core.matching import Node, is_gpu_node, read_node
from gpusharing.core.records import read_record, record_name

FIELD_MANAGER = "gpu-sharing-device-plugin"


@dataclass
class PluginDouble:
    """One plugin for every GPU node of the cluster; a context manager."""

    kubeconfig: Path
    every: float = 0.05
    # nodes whose plugin says nothing
    silent: set[str] = field(default_factory=set)
    # node → why its plugin refuses every new config
    refusing: dict[str, str] = field(default_factory=dict)
    # node → how many devices its kubelet confirms too few
    short_of: dict[str, int] = field(default_factory=dict)
    # node → GPUs that are broken
    sick: dict[str, set[str]] = field(default_factory=dict)
    # node → its reservations; made when the node is first seen, or by the test
    reservations: dict[str, ReservationDouble] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._served: dict[str, str] = {}
        self._written: dict[str, dict[str, Any]] = {}
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> "PluginDouble":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        with Api(self.kubeconfig) as api:
            while not self._stop.wait(self.every):
                try:
                    self.report_all(api)
                except (ApiStatusError, OSError):
                    continue  # the test may have taken the API server, the CRD or a node away

    def report_all(self, api: Api) -> None:
        """Report once for every node, where something is new."""
        records = {item["metadata"]["name"]: item for item in api.list(config_maps(names.NAMESPACE))}
        present = {item["metadata"]["name"]: item for item in api.list(GPU_NODES)}
        for obj in api.list(NODES):
            node = read_node(obj)
            if node.name in self.silent or not is_gpu_node(node):
                continue
            answered = self._answer(node.name, present.get(node.name))
            status = self._status(node, records.get(record_name(node.name))).model_copy(update=answered)
            wire = status.model_dump(mode="json", by_alias=True, exclude_none=True)
            if node.name in present and self._written.get(node.name) == wire:
                continue
            self._write(api, node, wire, exists=node.name in present)

    def _status(self, node: Node, record: dict[str, Any] | None) -> GpuNodeStatus:
        desired, error, config = node.config_label, "", PluginConfig()
        if node.name in self.refusing and desired != self._served.get(node.name):
            error = self.refusing[node.name]
        elif desired:
            try:
                config = load(read_record(record).data[desired]) if record else load("")
                self._served[node.name] = desired
            except (KeyError, InvalidPluginConfig) as problem:
                error = f"no such config: {problem}"
        else:
            self._served[node.name] = ""
        broken = self.sick.get(node.name, set())
        gpus = [gpu.model_copy(update={"healthy": gpu.uuid not in broken}) for gpu in inventory(node)]
        ledger = self.plugin_of(node.name).ledger
        reserved = {uuid for uuids in ledger.values() for uuid in uuids}
        # what is reserved is listed under the names of its owners
        shared = [gpu for gpu in gpus if gpu.uuid not in reserved]
        counts, healthy = implied(config, shared), implied(config, [gpu for gpu in shared if gpu.healthy])
        missing = self.short_of.get(node.name, 0)
        return GpuNodeStatus(
            driver_version="580.95.05",
            gpus=gpus,
            gpu_count=len(gpus),
            in_use=0,
            config=ConfigReport(
                desired=desired,
                served=self._served.get(node.name, ""),
                last_good=self._served.get(node.name, ""),
                error=error,
            ),
            resources=[
                ResourceReport(
                    name=name,
                    devices=count,
                    healthy=healthy.get(name, 0),
                    advertised=max(0, healthy.get(name, 0) - missing),
                    predicted=healthy.get(name, 0),
                )
                for name, count in counts.items()
            ]
            + [
                ResourceReport(name=name, devices=len(uuids), healthy=len(uuids), advertised=len(uuids))
                for name, uuids in ledger.items()
            ],
            conditions=[
                Condition(
                    type=READY_CONDITION,
                    status="False" if error else "True",
                    reason="InvalidConfig" if error else "Serving",
                    message=error,
                    last_transition_time=datetime(2026, 1, 1, tzinfo=UTC),
                )
            ],
        )

    def plugin_of(self, node: str) -> ReservationDouble:
        """The reservations of a node, for a test to say what pods hold."""
        return self.reservations.setdefault(node, ReservationDouble())

    def _answer(self, node: str, gpu_node: dict[str, Any] | None) -> dict[str, Any]:
        """What the status says of reservations, once the node's plugin has followed its spec."""
        if gpu_node is None:
            return {}
        double, generation = self.plugin_of(node), gpu_node["metadata"]["generation"]
        spec = GpuNodeSpec.model_validate(gpu_node.get("spec") or {})
        return {
            "reservations": double.answer(spec.reservations, generation),
            "reservations_observed_generation": generation,
            "occupancy": [OccupancyReport(gpu=uuid, shares=1, in_use=1) for uuid in sorted(double.shared)],
        }

    def _write(self, api: Api, node: Node, wire: dict[str, Any], *, exists: bool) -> None:
        meta = {"apiVersion": names.API_VERSION, "kind": names.NODE_KIND, "metadata": {"name": node.name}}
        if not exists:
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            owned = {**meta, "metadata": {"name": node.name, "ownerReferences": [owner]}}
            api.apply(GPU_NODES, owned, field_manager=FIELD_MANAGER, force=True)
        api.apply(GPU_NODES, {**meta, "status": wire}, field_manager=FIELD_MANAGER, force=True, subresource="status")
        self._written[node.name] = wire


def inventory(node: Node) -> list[Gpu]:
    """GPUs as the labels describe them."""
    labels = read_labels(node.labels)
    total_mib = int(node.labels.get("nvidia.com/gpu.memory", "0"))
    devices = list(_profiles(labels))
    count = labels.devices
    if labels.mig_strategy == "single" and devices:
        count = -(-len(devices) // 7)
    return [
        Gpu(
            index=index,
            uuid=f"GPU-{node.name[:40]}-{index}",
            model=labels.model.replace("-", " ") or "NVIDIA GPU",
            memory_mib=total_mib,
            mig_mode=bool(devices),
            mig_devices=[
                MigDevice(uuid=f"MIG-{node.name[:40]}-{index}-{slot}", profile=profile)
                for slot, profile in enumerate(devices[index::count])
            ],
        )
        for index in range(count)
    ]


def _profiles(labels: GpuLabels) -> Iterable[str]:
    for entry in labels.mig:
        yield from [entry.profile] * entry.count
