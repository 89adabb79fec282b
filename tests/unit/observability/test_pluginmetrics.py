import re
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from tests.support.hardware import gpu_uuid, make_config, make_hardware

from gpusharing.api.node import ReservationReport, ReservationState
from gpusharing.core.fragmentation import fragmentation
from gpusharing.core.listing import Listing, advance
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.reservationreport import Reserved
from gpusharing.core.resources import resources_of
from gpusharing.observability.pluginmetrics import PluginMetrics

GPU = "nvidia.com/gpu"
FOUR = make_config("four").shared(4).build()
HARDWARE = make_hardware(2).build()
SICK = {gpu_uuid(1): "XID 79"}
LISTED = advance(Listing(), resources_of(FOUR, HARDWARE), FOUR, sick=SICK, held={}, calls_open=frozenset(), now=0.0)
PODS = (PodDevices("team-a", "web", "main", GPU, (f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1")),)
SEEN = Observed(
    inventory=HARDWARE, listing=LISTED, served=FOUR, sick=SICK, pods=PODS, confirmed={GPU: frozenset("abcd")}
)
LABELS = {"resource", "policy", "result", "choice", "state", "gpu", "uuid", "reason", "verb", "code"}


@dataclass
class Counts:
    registrations: int = 0
    refusals: int = 0
    streams: int = 0
    lists: int = 0
    allocations: int = 0
    allocation_errors: int = 0
    unknown_ids: int = 0
    overruled: int = 0
    preferences: dict[tuple[str, str], int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)


def value(metrics: PluginMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"gpusharing_plugin_{name}", labels)


def test_every_metric_has_our_prefix_and_no_label_for_a_pod_a_node_or_a_share() -> None:
    declared = [metric for metric in vars(PluginMetrics()).values() if isinstance(metric, MetricWrapperBase)]
    assert declared
    for metric in declared:
        [family] = metric.describe()
        assert re.fullmatch(r"gpusharing_plugin_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        assert set(metric._labelnames) <= LABELS


def test_what_happened_is_counted_once_also_when_a_resource_begins_anew() -> None:
    metrics, counts = PluginMetrics(), Counts(registrations=1, lists=3)
    metrics.count(GPU, counts)
    counts.lists = 5
    metrics.count(GPU, counts)
    metrics.count(GPU, counts)
    assert value(metrics, "lists_sent_total", resource=GPU) == 5
    metrics.count(GPU, Counts(lists=2, refusals=1, splits={"kubelet": 1}))
    metrics.count(GPU, Counts(lists=2, refusals=1, splits={"kubelet": 3}))
    assert value(metrics, "lists_sent_total", resource=GPU) == 7
    assert value(metrics, "registrations_total", resource=GPU, result="accepted") == 1
    assert value(metrics, "registrations_total", resource=GPU, result="refused") == 1
    assert value(metrics, "avoidable_splits_total", resource=GPU, choice="kubelet") == 3


def test_each_count_goes_into_a_series_of_its_own() -> None:
    metrics = PluginMetrics()
    answers = {("packed", "chosen"): 9, ("packed", "insufficient"): 10, ("distributed", "chosen"): 11}
    metrics.count(GPU, Counts(1, 2, 3, 4, 5, 6, 7, 8, answers, {"plugin": 12, "kubelet": 13}))
    assert [
        value(metrics, "registrations_total", resource=GPU, result="accepted"),
        value(metrics, "registrations_total", resource=GPU, result="refused"),
        value(metrics, "streams_total", resource=GPU),
        value(metrics, "lists_sent_total", resource=GPU),
        value(metrics, "allocations_total", resource=GPU, result="allocated"),
        value(metrics, "allocations_total", resource=GPU, result="refused"),
        value(metrics, "unknown_ids_total", resource=GPU),
        value(metrics, "preferences_ignored_total", resource=GPU),
        value(metrics, "preferences_total", resource=GPU, policy="packed", result="chosen"),
        value(metrics, "preferences_total", resource=GPU, policy="packed", result="insufficient"),
        value(metrics, "preferences_total", resource=GPU, policy="distributed", result="chosen"),
        value(metrics, "avoidable_splits_total", resource=GPU, choice="plugin"),
        value(metrics, "avoidable_splits_total", resource=GPU, choice="kubelet"),
    ] == list(range(1, 14))


def test_the_state_of_the_node_is_shown_by_resource_and_by_gpu() -> None:
    metrics = PluginMetrics()
    metrics.show(SEEN)
    assert [value(metrics, "devices", resource=GPU, state=state) for state in ("healthy", "sick", "withheld")] == [
        4,
        4,
        0,
    ]
    assert value(metrics, "devices_advertised", resource=GPU) == 4
    for index, (healthy, in_use) in enumerate([(1, 2), (0, 0)]):
        gpu = {"gpu": str(index), "uuid": gpu_uuid(index)}
        assert value(metrics, "gpu_healthy", **gpu) == healthy
        assert value(metrics, "gpu_shares", **gpu) == 4
        assert value(metrics, "gpu_shares_in_use", **gpu) == in_use
    assert value(metrics, "problem", reason="GpuUnhealthy") == 1


def test_how_scattered_the_node_is_is_shown_by_resource_and_not_at_all_where_it_is_not_known() -> None:
    metrics = PluginMetrics()
    metrics.show(replace(SEEN, fragmentation=fragmentation(LISTED, PODS, HARDWARE)))
    assert value(metrics, "whole_gpus", state="free") == 0
    assert value(metrics, "whole_gpus", state="possible") == 0
    assert value(metrics, "free_shares", resource=GPU) == 2
    assert value(metrics, "largest_request", resource=GPU) == 2
    metrics.show(SEEN)
    assert value(metrics, "whole_gpus", state="free") is None
    assert value(metrics, "free_shares", resource=GPU) is None


def test_what_is_not_there_any_more_is_shown_no_longer() -> None:
    metrics = PluginMetrics()
    metrics.show(SEEN)
    metrics.show(Observed(served=FOUR))
    assert value(metrics, "devices", resource=GPU, state="healthy") is None
    assert value(metrics, "gpu_healthy", gpu="0", uuid=gpu_uuid(0)) is None
    assert value(metrics, "problem", reason="GpuUnhealthy") is None


@pytest.mark.fault("F23")
def test_devices_that_cannot_be_read_back_are_absent_and_not_0() -> None:
    metrics = PluginMetrics()
    metrics.show(replace(SEEN, confirmed=None))
    assert value(metrics, "devices_advertised", resource=GPU) is None


@pytest.mark.fault("F24")
def test_devices_that_are_held_twice_are_counted() -> None:
    metrics, other = PluginMetrics(), PodDevices("team-b", "batch", "main", GPU, (f"{gpu_uuid(0)}::1",))
    metrics.show(replace(SEEN, pods=(*PODS, other)))
    assert value(metrics, "devices_held_twice") == 1


@pytest.mark.fault("F07")
def test_another_plugin_on_the_host_is_shown() -> None:
    metrics = PluginMetrics()
    for why, shown in (("", 0), ("it holds the lock", 1)):
        metrics.show(replace(SEEN, not_alone=why))
        assert value(metrics, "not_alone") == shown


def test_no_name_of_a_pod_is_in_what_is_scraped() -> None:
    metrics = PluginMetrics()
    metrics.show(SEEN)
    scraped = generate_latest(metrics.registry).decode()
    assert "team-a" not in scraped
    assert "::" not in scraped


def test_requests_are_counted_by_resource_and_a_watch_has_no_duration() -> None:
    metrics = PluginMetrics()
    metrics.observe_call("apply", "/apis/gpusharing.io/v1alpha1/gpunodes/gpu-a/status", 200, 0.1)
    metrics.observe_call("watch", "/api/v1/nodes", 200, 300)
    assert value(metrics, "api_requests_total", verb="apply", resource="gpunodes/status", code="200") == 1
    assert value(metrics, "api_request_seconds_count", verb="apply") == 1
    assert value(metrics, "api_request_seconds_count", verb="watch") is None


def test_reservations_are_counted_by_state_and_a_state_without_any_is_0() -> None:
    metrics = PluginMetrics()
    found: tuple[ReservationState, ...] = ("Active", "Releasing", "Active")
    rows = tuple(
        ReservationReport(resource=f"place.gpusharing.io/{n}.p.team", state=state) for n, state in enumerate(found)
    )
    metrics.show(replace(SEEN, reservations=Reserved(7, rows)))
    states = ("Withdrawing", "Active", "Conflict", "Releasing")
    assert [value(metrics, "reservations", state=state) for state in states] == [0, 2, 0, 1]
    metrics.show(SEEN)
    assert [value(metrics, "reservations", state=state) for state in states] == [0, 0, 0, 0]
