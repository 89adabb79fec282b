from typing import Any

import pytest
from tests.support.faults import Fault, verb_of

NODES = "/api/v1/nodes"
POLICIES = "/apis/gpusharing.io/v1alpha1/gpusharingpolicies"


@pytest.mark.parametrize(
    ("method", "path", "query", "content_type", "want"),
    [
        ("GET", NODES, {}, "", "list"),
        ("GET", NODES, {"watch": "true"}, "", "watch"),
        ("GET", NODES, {"watch": "1"}, "", "watch"),
        ("GET", NODES, {"watch": "false"}, "", "list"),
        ("GET", f"{NODES}/gpu-a", {}, "", "get"),
        ("GET", f"{NODES}/gpu-a/status", {}, "", "get"),
        ("GET", "/api/v1/namespaces", {}, "", "list"),
        ("GET", "/api/v1/namespaces/default", {}, "", "get"),
        ("GET", "/api/v1/namespaces/default/configmaps", {}, "", "list"),
        ("GET", "/api/v1/namespaces/default/configmaps/a", {}, "", "get"),
        ("GET", POLICIES, {}, "", "list"),
        ("GET", f"{POLICIES}/a", {}, "", "get"),
        ("GET", "/apis/gpusharing.io/v1alpha1", {}, "", "get"),
        ("GET", "/version", {}, "", "get"),
        ("POST", NODES, {}, "application/json", "create"),
        ("PUT", f"{NODES}/gpu-a", {}, "application/json", "replace"),
        ("PATCH", f"{NODES}/gpu-a", {}, "application/apply-patch+yaml", "apply"),
        ("PATCH", f"{NODES}/gpu-a", {}, "application/merge-patch+json", "patch"),
        ("DELETE", f"{NODES}/gpu-a", {}, "", "delete"),
        ("DELETE", NODES, {}, "", "delete"),
    ],
)
def test_a_request_has_the_verb_that_rbac_would_give_it(
    method: str, path: str, query: dict[str, str], content_type: str, want: str
) -> None:
    assert verb_of(method, path, query, content_type) == want


def test_a_fault_acts_as_often_as_it_says_after_those_it_lets_pass() -> None:
    fault = _fault("list", NODES, times=2, after=1)
    assert [fault.takes("list", NODES) for _ in range(5)] == [False, True, True, False, False]


def test_a_fault_without_times_acts_for_ever() -> None:
    fault = _fault("list", NODES, times=None, after=0)
    assert all(fault.takes("list", NODES) for _ in range(100))


def test_verb_and_path_of_a_fault_must_match_the_whole() -> None:
    fault = _fault("apply|patch", f"{NODES}/gpu-[ab]", times=None, after=0)
    met = [("patch", f"{NODES}/gpu-a"), ("get", f"{NODES}/gpu-a"), ("apply", f"{NODES}/gpu-b/status")]
    assert [fault.takes(verb, path) for verb, path in met] == [True, False, False]


def _fault(verb: str, path: str, *, times: int | None, after: int) -> Fault:
    unused: Any = None
    return Fault(verb, path, unused, False, times, after, unused, unused)
