"""Everything that the plugin observes → `GpuNode.status` with its condition `GpuSharingReady` (design, section 3)."""

from datetime import datetime
from typing import Literal

from gpusharing.api import names
from gpusharing.api.meta import Condition
from gpusharing.api.node import (
    READY_CONDITION,
    ConfigChange,
    ConfigReport,
    FragmentationReport,
    GpuNodeStatus,
    OccupancyReport,
    ResourceReport,
    ResourceRoom,
    RestartSet,
)
from gpusharing.api.reasons import Reason
from gpusharing.core.fragmentation import Fragmentation
from gpusharing.core.inventoryreport import gpu_report
from gpusharing.core.listcounts import Row, rows
from gpusharing.core.nodeproblems import Observed, problems
from gpusharing.core.occupancy import held_ids, occupancy
from gpusharing.core.oneline import few, one_line

# The CRD's limits: a report that the API server refuses would be none.
ERROR_MAX, MESSAGE_MAX, ROWS_MAX, HISTORY_MAX = 4096, 4096, 64, 10

Rows = tuple[Row, ...]


def node_status(
    observed: Observed, previous: GpuNodeStatus | None, now: datetime, stale: tuple[str, ...] = ()
) -> GpuNodeStatus:
    """Return the status to report. `previous` is the last one of this Node, for history and times; `now` is wall time.

    `stale` is what `stale_resources` found.
    """
    gpus = sorted(observed.inventory.gpus, key=lambda gpu: gpu.index)[:ROWS_MAX]
    listed = rows(observed.listing)
    resources = _resources(observed, listed)
    return GpuNodeStatus(
        driver_version=observed.inventory.driver_version[:64],
        mig_strategy=observed.served.mig_strategy if observed.served else "none",
        gpus=[gpu_report(gpu, gpu.uuid not in observed.sick) for gpu in gpus],
        gpu_count=len(observed.inventory.gpus),
        in_use=sum(row.in_use for row in resources),
        config=_config(observed),
        resources=resources[:ROWS_MAX],
        stale_resources=list(stale[:ROWS_MAX]),
        occupancy=_occupancy(observed)[:ROWS_MAX],
        reservations_observed_generation=observed.reservations.generation,
        reservations=list(observed.reservations.rows),
        fragmentation=_fragmentation(observed.fragmentation) if observed.fragmentation else None,
        history=_history(observed, previous, now),
        conditions=[_condition(observed, listed, previous, now)],
    )


def ready_condition(status: GpuNodeStatus) -> Condition:
    """Return GpuSharingReady of a status that `node_status` made."""
    [condition] = status.conditions
    return condition


def _config(observed: Observed) -> ConfigReport:
    return ConfigReport(
        desired=observed.desired[: names.LABEL_VALUE_MAX],
        served=_served_name(observed),
        last_good=observed.last_good[: names.LABEL_VALUE_MAX],
        error=one_line(observed.config_error or observed.config_missing, ERROR_MAX),
    )


def _served_name(observed: Observed) -> str:
    return observed.served.name[: names.LABEL_VALUE_MAX] if observed.served else ""


def _resources(observed: Observed, listed: Rows) -> list[ResourceReport]:
    held, confirmed = held_ids(observed.pods), observed.confirmed
    return [
        ResourceReport(
            name=row.name,
            devices=row.devices,
            healthy=row.healthy,
            withheld=row.withheld,
            retiring=row.retiring,
            in_use=len(held.get(row.name, ())),
            advertised=None if confirmed is None else len(confirmed.get(row.name, ())),
            predicted=row.predicted,
        )
        for row in listed
    ]


def _occupancy(observed: Observed) -> list[OccupancyReport]:
    found = occupancy(observed.pods, observed.listing, observed.inventory)
    return [OccupancyReport(gpu=gpu.gpu, shares=gpu.shares, in_use=gpu.in_use) for gpu in found]


def _fragmentation(found: Fragmentation) -> FragmentationReport:
    rooms = [
        ResourceRoom(name=room.resource, free_shares=room.free, largest_request=room.largest)
        for room in found.resources[:ROWS_MAX]
    ]
    restart = found.restart
    return FragmentationReport(
        free_whole_gpus=found.free_gpus,
        possible_whole_gpus=found.possible_gpus,
        resources=rooms,
        restart=RestartSet(gpu=restart.gpu, pods=list(restart.pods), more=restart.more) if restart else None,
    )


def _history(observed: Observed, previous: GpuNodeStatus | None, now: datetime) -> list[ConfigChange]:
    """Return the last changes: another config is served, or one is refused that was not refused before."""
    changes = list(previous.history) if previous else []
    before, after = (previous.config.served if previous else ""), _served_name(observed)
    if before != after:
        changes.append(_change(observed, now, before, after, "Applied"))
    if observed.config_error and not _is_refused_already(observed, previous):
        changes.append(_change(observed, now, after, observed.desired, "Refused"))
    return changes[-HISTORY_MAX:]


def _is_refused_already(observed: Observed, previous: GpuNodeStatus | None) -> bool:
    return previous is not None and bool(previous.config.error) and previous.config.desired == observed.desired


def _change(
    observed: Observed, now: datetime, before: str, after: str, result: Literal["Applied", "Refused"]
) -> ConfigChange:
    policy = observed.policy[: names.DNS_SUBDOMAIN_MAX] if after == observed.desired else ""
    to = after[: names.LABEL_VALUE_MAX]
    return ConfigChange.model_validate({"time": now, "from": before, "to": to, "policy": policy, "result": result})


def _condition(observed: Observed, listed: Rows, previous: GpuNodeStatus | None, now: datetime) -> Condition:
    found = problems(observed)
    status: Literal["True", "False"] = "True" if all(problem.harmless for problem in found) else "False"
    message = " ".join([problem.sentence for problem in found] or [_all_is_well(listed)])
    if observed.pod_resources_error:
        message += f" What pods hold is not known: {observed.pod_resources_error.rstrip('.')}."
    if observed.reservations.problem:
        message += f" Reservations wait: {observed.reservations.problem.rstrip('.')}."
    if observed.not_alone:
        message += f" Not alone on this host: {observed.not_alone.rstrip('.')}."
    before = next((old for old in previous.conditions if old.type == READY_CONDITION), None) if previous else None
    return Condition(
        type=READY_CONDITION,
        status=status,
        reason=found[0].reason if found else Reason.SERVING,
        message=one_line(message, MESSAGE_MAX),
        last_transition_time=before.last_transition_time if before and before.status == status else now,
    )


def _all_is_well(listed: Rows) -> str:
    counts = [f"{row.name}: {row.devices} devices" for row in listed]
    return f"{few(counts)}." if counts else "There is nothing to serve on this node."
