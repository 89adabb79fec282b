"""The in-node plugin's metrics. Labels are bounded by the node's GPUs and resources: never a pod, never a share."""

from collections.abc import Mapping
from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gpusharing.api.node import ReservationState
from gpusharing.core.fragmentation import Fragmentation
from gpusharing.core.listcounts import rows
from gpusharing.core.nodeproblems import Observed, problems
from gpusharing.core.occupancy import held_twice, occupancy
from gpusharing.observability.metrics import resource_of


class ResourceCounts(Protocol):
    """What happened to one resource so far; it only grows, or begins anew at 0."""

    registrations: int
    refusals: int
    streams: int
    lists: int
    allocations: int
    allocation_errors: int
    unknown_ids: int
    overruled: int

    @property
    def preferences(self) -> Mapping[tuple[str, str], int]:
        """Return (allocation policy, result) → answers."""

    @property
    def splits(self) -> Mapping[str, int]:
        """Return by whose choice → requests that were split needlessly."""


class PluginMetrics:
    """The metrics of one plugin, in a registry of their own so that tests can have many."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        # --- towards the kubelet
        self.registrations_total = Counter(
            "gpusharing_plugin_registrations_total",
            "Registrations with the kubelet by result: accepted, refused.",
            ["resource", "result"],
            registry=registry,
        )
        self.streams_total = Counter(
            "gpusharing_plugin_streams_total", "Streams that the kubelet opened.", ["resource"], registry=registry
        )
        self.lists_sent_total = Counter(
            "gpusharing_plugin_lists_sent_total", "Device lists sent to the kubelet.", ["resource"], registry=registry
        )
        self.preferences_total = Counter(
            "gpusharing_plugin_preferences_total",
            "Answers to GetPreferredAllocation by allocation policy and result: chosen, or why there is no preference: "
            "size, must-include, insufficient, split, not-served, timeout, error.",
            ["resource", "policy", "result"],
            registry=registry,
        )
        self.allocations_total = Counter(
            "gpusharing_plugin_allocations_total",
            "Answers to Allocate by result: allocated, refused.",
            ["resource", "result"],
            registry=registry,
        )
        self.preferences_ignored_total = Counter(
            "gpusharing_plugin_preferences_ignored_total",
            "Allocate calls for other devices than were preferred.",
            ["resource"],
            registry=registry,
        )
        self.avoidable_splits_total = Counter(
            "gpusharing_plugin_avoidable_splits_total",
            "Requests on several GPUs that one GPU had room for, by whose choice: plugin (by its policy), kubelet.",
            ["resource", "choice"],
            registry=registry,
        )
        self.unknown_ids_total = Counter(
            "gpusharing_plugin_unknown_ids_total",
            "Ids that the kubelet offered and that are not ours; they are left out.",
            ["resource"],
            registry=registry,
        )
        # --- what is served
        self.devices = Gauge(
            "gpusharing_plugin_devices",
            "Ids in the device list by state: healthy, sick, withheld, retiring.",
            ["resource", "state"],
            registry=registry,
        )
        self.devices_advertised = Gauge(
            "gpusharing_plugin_devices_advertised",
            "Devices that the kubelet confirms; absent while they cannot be read.",
            ["resource"],
            registry=registry,
        )
        self.gpu_healthy = Gauge(
            "gpusharing_plugin_gpu_healthy", "1 where the GPU is healthy.", ["gpu", "uuid"], registry=registry
        )
        self.gpu_shares = Gauge(
            "gpusharing_plugin_gpu_shares", "Ids that the config makes of the GPU.", ["gpu", "uuid"], registry=registry
        )
        self.gpu_shares_in_use = Gauge(
            "gpusharing_plugin_gpu_shares_in_use", "Ids of the GPU that pods hold.", ["gpu", "uuid"], registry=registry
        )
        self.whole_gpus = Gauge(
            "gpusharing_plugin_whole_gpus",
            "Healthy GPUs that are free, and those that could be (possible) if what pods hold were packed onto the "
            "fewest GPUs; absent while what pods hold is not known.",
            ["state"],
            registry=registry,
        )
        self.free_shares = Gauge(
            "gpusharing_plugin_free_shares", "Healthy devices that no pod holds.", ["resource"], registry=registry
        )
        self.largest_request = Gauge(
            "gpusharing_plugin_largest_request",
            "The largest request that a single GPU can hold.",
            ["resource"],
            registry=registry,
        )
        self.reservations = Gauge(
            "gpusharing_plugin_reservations",
            "Reservations of placements by state: Withdrawing, Active, Conflict, Releasing.",
            ["state"],
            registry=registry,
        )
        self.devices_held_twice = Gauge(
            "gpusharing_plugin_devices_held_twice",
            "Devices that two containers hold although each should be alone with it.",
            registry=registry,
        )
        self.not_alone = Gauge(
            "gpusharing_plugin_not_alone", "1 where another device plugin holds the host's lock.", registry=registry
        )
        self.problem = Gauge(
            "gpusharing_plugin_problem", "1 for each reason that something is wrong.", ["reason"], registry=registry
        )
        # --- the plugin itself
        self.config_changes_total = Counter(
            "gpusharing_plugin_config_changes_total",
            "Configs that arrived by result: applied, refused.",
            ["result"],
            registry=registry,
        )
        self.nvml_restarts_total = Counter(
            "gpusharing_plugin_nvml_restarts_total", "NVML workers that were replaced.", registry=registry
        )
        self.report_writes_total = Counter(
            "gpusharing_plugin_report_writes_total",
            "Writes of GpuNode status and node condition by result: written, refused, unreachable.",
            ["result"],
            registry=registry,
        )
        self.api_requests_total = Counter(
            "gpusharing_plugin_api_requests_total",
            "Requests to the API server; code 0 = no answer.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.api_request_seconds = Histogram(
            "gpusharing_plugin_api_request_seconds",
            "Duration of requests to the API server, watches left out.",
            ["verb"],
            registry=registry,
        )
        # counter, resource and further labels → what was taken in
        self._counted: dict[tuple[object, ...], int] = {}

    def observe_call(self, verb: str, path: str, code: int, seconds: float) -> None:
        """Count one request; the path is reduced to its resource."""
        self.api_requests_total.labels(verb, resource_of(path), str(code)).inc()
        if verb != "watch":
            self.api_request_seconds.labels(verb).observe(seconds)

    def count(self, resource: str, counts: ResourceCounts) -> None:
        """Take in what happened to a resource since the last call."""
        for counter, labels, total in (
            (self.registrations_total, ("accepted",), counts.registrations),
            (self.registrations_total, ("refused",), counts.refusals),
            (self.streams_total, (), counts.streams),
            (self.lists_sent_total, (), counts.lists),
            (self.allocations_total, ("allocated",), counts.allocations),
            (self.allocations_total, ("refused",), counts.allocation_errors),
            (self.unknown_ids_total, (), counts.unknown_ids),
            (self.preferences_ignored_total, (), counts.overruled),
            *((self.preferences_total, labels, total) for labels, total in counts.preferences.items()),
            *((self.avoidable_splits_total, (choice,), total) for choice, total in counts.splits.items()),
        ):
            key = (counter, resource, *labels)
            before = self._counted.get(key, 0)
            # a resource that went and came back counts from 0 again
            counter.labels(resource, *labels).inc(total - before if total >= before else total)
            self._counted[key] = total

    def show(self, observed: Observed) -> None:
        """Show the state of the node as it is now; what is not there any more is shown no longer."""
        self._show_devices(observed)
        self._show_gpus(observed)
        self._show_fragmentation(observed.fragmentation)
        for state in get_args(ReservationState):
            self.reservations.labels(state).set(sum(row.state == state for row in observed.reservations.rows))
        self.devices_held_twice.set(len(held_twice(observed.pods, observed.inventory)))
        self.not_alone.set(bool(observed.not_alone))
        self.problem.clear()
        for found in problems(observed):
            self.problem.labels(str(found.reason)).set(1)

    def _show_devices(self, observed: Observed) -> None:
        self.devices.clear()
        self.devices_advertised.clear()
        for row in rows(observed.listing):
            sick = row.devices - row.healthy - row.withheld - row.retiring
            states = {"healthy": row.healthy, "sick": sick, "withheld": row.withheld, "retiring": row.retiring}
            for state, count in states.items():
                self.devices.labels(row.name, state).set(count)
            if observed.confirmed is not None:
                self.devices_advertised.labels(row.name).set(len(observed.confirmed.get(row.name, ())))

    def _show_gpus(self, observed: Observed) -> None:
        for gauge in (self.gpu_healthy, self.gpu_shares, self.gpu_shares_in_use):
            gauge.clear()
        indices = {gpu.uuid: str(gpu.index) for gpu in observed.inventory.gpus}
        for uuid, index in indices.items():
            self.gpu_healthy.labels(index, uuid).set(uuid not in observed.sick)
        for row in occupancy(observed.pods, observed.listing, observed.inventory):
            self.gpu_shares.labels(indices[row.gpu], row.gpu).set(row.shares)
            self.gpu_shares_in_use.labels(indices[row.gpu], row.gpu).set(row.in_use)

    def _show_fragmentation(self, found: Fragmentation | None) -> None:
        for gauge in (self.whole_gpus, self.free_shares, self.largest_request):
            gauge.clear()
        if found is None:
            return
        self.whole_gpus.labels("free").set(found.free_gpus)
        self.whole_gpus.labels("possible").set(found.possible_gpus)
        for room in found.resources:
            self.free_shares.labels(room.resource).set(room.free)
            self.largest_request.labels(room.resource).set(room.largest)
