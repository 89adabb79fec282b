"""Whether a written config provably took effect on a node: desired = served, and advertised = predicted."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpusharing.api import names
from gpusharing.api.node import GpuNodeStatus, ResourceReport
from gpusharing.core.advertise import implied, predicted, predicted_from_labels
from gpusharing.core.desired_state import RenderedConfig
from gpusharing.core.gfd import read_labels
from gpusharing.core.matching import Node
from gpusharing.core.mig import resource_profiles
from gpusharing.core.reports import shared_gpus


class Progress(StrEnum):
    """How far a node is; each but `applied` is also a reason word."""

    AWAITING = "AwaitingReport"
    NO_INVENTORY = "NoInventory"
    APPLIED = "Applied"
    REFUSED = "ConfigRefused"
    MISMATCH = "CapacityMismatch"
    GONE = "PluginGone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The progress of one node, and a few words on why."""

    progress: Progress
    detail: str = ""


def by_report(rendered: RenderedConfig, report: GpuNodeStatus | None) -> Verdict:
    """Judge by what the in-node plugin reports (layout per-node)."""
    if report is None or report.config.desired != rendered.name:
        return Verdict(Progress.AWAITING, "no report of this config yet")
    if report.config.served != rendered.name:
        if report.config.error:
            return Verdict(Progress.REFUSED, report.config.error)
        return Verdict(Progress.AWAITING, f"serves {report.config.served or 'nothing'} so far")
    rows = {row.name: row for row in report.resources if not row.name.startswith(names.PLACE_DOMAIN)}
    gpus = shared_gpus(report)
    if len(gpus) < len(report.gpus):
        rows = _without_withdrawn(rows, implied(rendered.config, gpus))
    wanted = predicted(rendered.config, gpus, rows)
    advertised = {name: row.advertised for name, row in rows.items()}
    if any(count is None for count in advertised.values()):
        return Verdict(Progress.AWAITING, "the kubelet's devices cannot be read")
    return _compare(wanted, {name: count or 0 for name, count in advertised.items()})


def _without_withdrawn(rows: Mapping[str, ResourceReport], kept: Mapping[str, int]) -> dict[str, ResourceReport]:
    """Return the rows without ids that are on their way to a placement: they are still listed, and unhealthy."""
    return {
        name: row.model_copy(update={"devices": min(row.devices, kept.get(name, 0) + row.retiring)})
        for name, row in rows.items()
    }


def by_allocatable(rendered: RenderedConfig, node: Node) -> Verdict:
    """Judge by the node's allocatable against GPU Feature Discovery's labels (layout shared; decision 59)."""
    if node.allocatable is None:
        return Verdict(Progress.AWAITING, "allocatable is not read")
    wanted = predicted_from_labels(rendered.config, read_labels(node.labels, node.allocatable))
    if wanted is None:
        return Verdict(Progress.NO_INVENTORY, "labels do not tell how many devices there are")
    if any(wanted.values()) and not any(node.allocatable.get(name, 0) for name in wanted):
        return Verdict(Progress.GONE, f"0 allocatable, {_total(wanted)} predicted")
    return _compare(wanted, {name: node.allocatable.get(name, 0) for name in wanted})


def _compare(wanted: Mapping[str, int], advertised: Mapping[str, int]) -> Verdict:
    for name in sorted(wanted.keys() | advertised.keys()):
        seen, want = advertised.get(name, 0), wanted.get(name, 0)
        if seen != want:
            return Verdict(Progress.MISMATCH, f"{name}: {seen} advertised, {want} predicted")
    return Verdict(Progress.APPLIED)


def _total(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def lacking(rendered: RenderedConfig, node: Node, report: GpuNodeStatus | None) -> tuple[str, ...]:
    """Return the shared resources that the node cannot have (decision 60): no such GPU, profile or MIG device."""
    sharing = rendered.config.sharing
    section = (sharing.mps or sharing.time_slicing) if sharing else None
    if section is None:
        return ()
    wanted = [resource.name for resource in section.resources]
    if report is not None and report.gpus:
        present = {
            name.removesuffix(names.SHARED_SUFFIX)
            for name, count in implied(rendered.config, report.gpus).items()
            if count
        }
        return tuple(name for name in wanted if name not in present)
    profiles = resource_profiles(node.model)
    if node.labels.get(names.MIG_CAPABLE_LABEL) == "false":
        profiles = frozenset()
    if profiles is None:
        return ()
    return tuple(
        name
        for name in wanted
        if name.startswith(names.MIG_RESOURCE_PREFIX) and name.removeprefix(names.MIG_RESOURCE_PREFIX) not in profiles
    )
