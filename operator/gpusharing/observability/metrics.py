"""Every metric, its help and its labels. Labels are bounded: never a node, a pod, or a policy per node."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """The controller's metrics, in a registry of their own so that tests can have many."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.reconcile_total = Counter(
            "gpusharing_reconcile_total", "Reconciles by kind of key and result.", ["kind", "result"], registry=registry
        )
        self.reconcile_seconds = Histogram(
            "gpusharing_reconcile_seconds", "Duration of reconciles, writes included.", ["kind"], registry=registry
        )
        self.queue_depth = Gauge("gpusharing_queue_depth", "Keys that wait for a worker.", registry=registry)
        self.queue_oldest_seconds = Gauge(
            "gpusharing_queue_oldest_seconds", "Age of the key that has waited longest.", registry=registry
        )
        self.api_requests_total = Counter(
            "gpusharing_api_requests_total",
            "Requests to the API server; code 0 = no answer.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.api_request_seconds = Histogram(
            "gpusharing_api_request_seconds", "Duration of requests to the API server.", ["verb"], registry=registry
        )
        self.concurrency_limit = Gauge(
            "gpusharing_concurrency_limit", "How many writes may be under way at once.", registry=registry
        )
        self.watch_events_total = Counter(
            "gpusharing_watch_events_total",
            "Watch events by resource and type.",
            ["resource", "type"],
            registry=registry,
        )
        self.resync_differences_total = Counter(
            "gpusharing_resync_differences_total", "Objects that a resync found changed.", registry=registry
        )
        self.repairs_total = Counter(
            "gpusharing_repairs_total", "Labels and records put back after somebody changed them.", registry=registry
        )
        self.events_dropped_total = Counter(
            "gpusharing_events_dropped_total", "Events that were not posted.", registry=registry
        )
        self.nodes = Gauge("gpusharing_nodes", "Nodes by what is planned for them.", ["state"], registry=registry)
        self.policies = Gauge(
            "gpusharing_policies", "Policies by condition that is True.", ["condition"], registry=registry
        )
        self.placements = Gauge(
            "gpusharing_placements", "Placements by the reason of their condition Ready.", ["reason"], registry=registry
        )
        self.leader = Gauge("gpusharing_leader", "1 where this replica leads.", registry=registry)
        self.loop_lag_seconds = Gauge(
            "gpusharing_loop_lag_seconds", "Longest stall of the event loop since the last scrape.", registry=registry
        )

    def observe_call(self, verb: str, path: str, code: int, seconds: float) -> None:
        """Count one request; the path is reduced to its resource."""
        self.api_requests_total.labels(verb, resource_of(path), str(code)).inc()
        self.api_request_seconds.labels(verb).observe(seconds)

    def count_by(self, gauge: Gauge, words: Iterable[str]) -> None:
        """Set the gauge to how often each word occurs."""
        counts: dict[str, int] = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        gauge.clear()
        for word, count in sorted(counts.items()):
            gauge.labels(word).set(count)


_RESOURCES = {
    "nodes",
    "configmaps",
    "leases",
    "events",
    "gpusharingpolicies",
    "gpunodes",
    "gpuplacements",
    "resourcequotas",
    "customresourcedefinitions",
    "version",
}


def resource_of(path: str) -> str:
    """Return the resource that a path is about, without names of objects."""
    parts = path.strip("/").split("/")
    found = next((part for part in reversed(parts) if part in _RESOURCES), "other")
    return f"{found}/status" if parts[-1] == "status" else found
