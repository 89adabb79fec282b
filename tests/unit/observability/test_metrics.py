"""Names and labels that dashboards and alerts rely on."""

import pytest

from gpusharing.observability.metrics import Metrics, resource_of

LABELS = {
    "gpusharing_api_request_seconds": {"verb"},
    "gpusharing_api_requests": {"verb", "resource", "code"},
    "gpusharing_concurrency_limit": set(),
    "gpusharing_events_dropped": set(),
    "gpusharing_leader": set(),
    "gpusharing_loop_lag_seconds": set(),
    "gpusharing_nodes": {"state"},
    "gpusharing_policies": {"condition"},
    "gpusharing_placements": {"reason"},
    "gpusharing_queue_depth": set(),
    "gpusharing_queue_oldest_seconds": set(),
    "gpusharing_reconcile_seconds": {"kind"},
    "gpusharing_reconcile": {"kind", "result"},
    "gpusharing_repairs": set(),
    "gpusharing_resync_differences": set(),
    "gpusharing_watch_events": {"resource", "type"},
}


def used(metrics: Metrics) -> Metrics:
    """Each metric with labels, used once: before, it has no sample."""
    metrics.reconcile_total.labels("node", "ok").inc()
    metrics.reconcile_seconds.labels("node").observe(0.1)
    metrics.observe_call("list", "/api/v1/nodes", 200, 0.1)
    metrics.watch_events_total.labels("nodes", "ADDED").inc()
    metrics.count_by(metrics.nodes, ["add"])
    metrics.count_by(metrics.policies, ["Ready"])
    metrics.count_by(metrics.placements, ["Active"])
    return metrics


def test_these_are_all_metrics_with_their_labels() -> None:
    got = {
        family.name: {label for sample in family.samples for label in sample.labels} - {"le"}
        for family in used(Metrics()).registry.collect()
    }
    assert got == LABELS


def test_every_metric_says_in_a_sentence_what_it_is() -> None:
    for family in Metrics().registry.collect():
        assert family.documentation.endswith("."), family.name
        assert family.documentation[0].isupper() or family.documentation[0].isdigit(), family.name


def test_two_controllers_in_one_process_count_for_themselves() -> None:
    first, second = Metrics(), Metrics()
    first.repairs_total.inc()
    assert second.registry.get_sample_value("gpusharing_repairs_total") == 0


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/api/v1/nodes", "nodes"),
        ("/api/v1/nodes/gpu-a", "nodes"),
        ("/api/v1/nodes/configmaps", "configmaps"),  # a node of such a name: still bounded
        ("/api/v1/namespaces/gpu-sharing-system/configmaps/gpusharing-gpu-a", "configmaps"),
        ("/api/v1/namespaces/default/events", "events"),
        ("/apis/coordination.k8s.io/v1/namespaces/x/leases/gpu-sharing-operator", "leases"),
        ("/apis/gpusharing.io/v1alpha1/gpusharingpolicies", "gpusharingpolicies"),
        ("/apis/gpusharing.io/v1alpha1/gpusharingpolicies/pack/status", "gpusharingpolicies/status"),
        ("/apis/gpusharing.io/v1alpha1/gpunodes", "gpunodes"),
        ("/apis/gpusharing.io/v1alpha1/namespaces/team-a/gpuplacements/p/status", "gpuplacements/status"),
        ("/api/v1/resourcequotas", "resourcequotas"),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x", "customresourcedefinitions"),
        ("/version", "version"),
        ("/api/v1/pods/gpu-a", "other"),
        ("/", "other"),
    ],
)
def test_a_path_is_reduced_to_its_resource(path: str, want: str) -> None:
    assert resource_of(path) == want


def test_requests_are_counted_by_verb_resource_and_code() -> None:
    metrics = Metrics()
    metrics.observe_call("apply", "/api/v1/nodes/gpu-a", 200, 0.1)
    metrics.observe_call("apply", "/api/v1/nodes/gpu-b", 200, 0.1)
    metrics.observe_call("apply", "/api/v1/nodes/gpu-b", 0, 30)
    values = metrics.registry.get_sample_value
    for code, count in (("200", 2), ("0", 1)):
        labels = {"verb": "apply", "resource": "nodes", "code": code}
        assert values("gpusharing_api_requests_total", labels) == count
    assert values("gpusharing_api_request_seconds_count", {"verb": "apply"}) == 3
    assert values("gpusharing_api_request_seconds_sum", {"verb": "apply"}) == pytest.approx(30.2)


def test_counting_anew_forgets_what_is_no_longer_there() -> None:
    metrics = Metrics()
    metrics.count_by(metrics.nodes, ["add", "add", "skipped"])
    metrics.count_by(metrics.nodes, ["add"])
    values = metrics.registry.get_sample_value
    assert values("gpusharing_nodes", {"state": "add"}) == 1
    assert values("gpusharing_nodes", {"state": "skipped"}) is None
