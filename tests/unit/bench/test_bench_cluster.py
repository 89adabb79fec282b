"""Writes are counted as the API server counts them: by resource, reads left out, verbs and codes added up."""

from tests.bench.bench_cluster import count_writes

METRICS = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, resource and code.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="nodes",subresource="",verb="APPLY",version="v1"} 40
apiserver_request_total{code="409",resource="nodes",subresource="",verb="APPLY",version="v1"} 2
apiserver_request_total{code="200",resource="nodes",subresource="status",verb="PATCH",version="v1"} 7
apiserver_request_total{code="200",resource="nodes",subresource="",verb="LIST",version="v1"} 1000
apiserver_request_total{code="0",resource="nodes",subresource="",verb="WATCH",version="v1"} 5
apiserver_request_total{code="201",resource="configmaps",subresource="",verb="APPLY",version="v1"} 1.2e+06
apiserver_request_total{code="200",resource="gpusharingpolicies",subresource="status",verb="APPLY",version="v1"} 3
apiserver_request_duration_seconds_count{resource="nodes",verb="APPLY"} 99
"""


def test_writes_by_resource() -> None:
    assert count_writes(METRICS) == {
        "nodes": 42,
        "nodes/status": 7,
        "configmaps": 1_200_000,
        "gpusharingpolicies/status": 3,
    }
