"""What planning in a cluster needs of a `GpuNode` and its Node, and no more (guide, section 5.5)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from gpusharing.api import names
from gpusharing.api.node import READY_CONDITION, GpuNodeSpec, GpuNodeStatus, Reservation, ReservationReport
from gpusharing.core.matching import Node

_NEEDED = ("gpus", "occupancy", "reservations", "reservationsObservedGeneration", "conditions")


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU as the plugin reports it."""

    index: int
    uuid: str
    healthy: bool = True
    mig_mode: bool = False
    link_group: int | None = None
    # of the shared resource: how many there are of it, and how many pods hold
    shares: int = 1
    in_use: int = 0


@dataclass(frozen=True, slots=True)
class SeenGpuNode:
    """One `GpuNode`: what the controller wanted of it, and what its plugin answers."""

    name: str
    uid: str = ""
    generation: int = 0
    # `spec.reservations` as the API server has it; None = absent, which says nothing
    wanted: tuple[Reservation, ...] | None = None
    # when the controller wrote that; None = not known
    told_at: datetime | None = None
    # the generation that `entries` follow; None = the plugin knows no reservations
    answered: int | None = None
    entries: tuple[ReservationReport, ...] = ()
    # whether the plugin says that it serves what it should: only then is a GPU that it does not list gone
    ready: bool = False
    gpus: tuple[SeenGpu, ...] = ()

    @property
    def current(self) -> bool:
        """Whether the report follows the spec as it is now; an older one counts for nothing."""
        return self.answered is not None and self.answered == self.generation

    @property
    def current_entries(self) -> tuple[ReservationReport, ...]:
        """Return how far each reservation is; nothing where the report is of an older spec."""
        return self.entries if self.current else ()

    def taken(self) -> Iterator[tuple[str, str]]:
        """Yield resource and GPU where a pod had the GPU before the placement could."""
        for entry in self.current_entries:
            if entry.state == "Conflict":
                for uuid in [entry.taken] if entry.taken else entry.gpus:
                    yield entry.resource, uuid

    def held(self) -> Iterator[tuple[str, str]]:
        """Yield resource and GPU of everything that is reserved there, or is not yet free again."""
        for wanted in self.wanted or ():
            for uuid in wanted.gpus:
                yield wanted.resource, uuid
        for entry in self.entries:
            if entry.state != "Conflict":
                for uuid in entry.gpus:
                    yield entry.resource, uuid


@dataclass(frozen=True, slots=True)
class SeenNode:
    """One node: the Node, whether placements may reserve its GPUs, and its `GpuNode` if it has one."""

    node: Node
    reservable: bool = False
    gpu_node: SeenGpuNode | None = None


def read_gpu_node(obj: Mapping[str, Any]) -> SeenGpuNode | None:
    """Read a `GpuNode`; None = it cannot be read, which counts as none."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    try:
        spec = GpuNodeSpec.model_validate(obj.get("spec") or {})
        report = GpuNodeStatus.model_validate({key: status[key] for key in _NEEDED if status.get(key) is not None})
    except ValidationError:
        return None
    occupancy = {each.gpu: each for each in report.occupancy}
    return SeenGpuNode(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        wanted=tuple(spec.reservations) if spec.reservations is not None else None,
        told_at=_told_at(metadata),
        answered=report.reservations_observed_generation,
        entries=tuple(report.reservations),
        ready=any(each.type == READY_CONDITION and each.status == "True" for each in report.conditions),
        gpus=tuple(
            SeenGpu(
                index=gpu.index,
                uuid=gpu.uuid,
                healthy=gpu.healthy,
                mig_mode=gpu.mig_mode,
                link_group=gpu.link_group,
                shares=occupancy[gpu.uuid].shares if gpu.uuid in occupancy else 1,
                in_use=occupancy[gpu.uuid].in_use if gpu.uuid in occupancy else 0,
            )
            for gpu in report.gpus
        ),
    )


def _told_at(metadata: Mapping[str, Any]) -> datetime | None:
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == names.PLACEMENT_FIELD_MANAGER and entry.get("time"):
            return datetime.fromisoformat(entry["time"])
    return None
