"""Each fault of the proxy as a real client sees it, and what the API server got to see of it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPException
from typing import Any

import pytest
from tests.support.cluster import Cluster, ControlPlane
from tests.support.cluster.api import NODES, Api, ApiStatusError, Object, config_maps
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.faults import Request

ACCOUNT = "proxied"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
LOST_CONNECTION = (ConnectionError, HTTPException)


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Iterator[str]:
    """A ServiceAccount in `default` that may do everything."""
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    }
    with Api(cluster.kubeconfig) as api:
        api.create(ACCOUNTS, {"metadata": {"name": ACCOUNT}})
        api.create(BINDINGS, binding)
        yield ACCOUNT
        api.delete(BINDINGS, ACCOUNT)
        api.delete(ACCOUNTS, ACCOUNT)


@pytest.fixture
def proxy(clean_cluster: Cluster) -> Iterator[FaultProxy]:
    with FaultProxy(clean_cluster) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy, account: str) -> Iterator[Api]:
    """A client whose requests go through the proxy; it gives up after a second."""
    with Api(proxy.kubeconfig_for(account, "default"), timeout=1) as client:
        yield client


@pytest.fixture
def patient(proxy: FaultProxy, account: str) -> Iterator["InBackground"]:
    """A client whose requests go through the proxy and run beside the test."""
    with Api(proxy.kubeconfig_for(account, "default")) as client, ThreadPoolExecutor(1) as threads:
        yield lambda request: threads.submit(request, client)


InBackground = Callable[[Callable[[Api], Any]], Future[Any]]


def node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"team": "a"}}}


def node_names(api: Api) -> list[str]:
    return [item["metadata"]["name"] for item in api.list(NODES)]


def test_without_faults_everything_passes_with_the_clients_own_rights(
    proxy: FaultProxy, client: Api, api: Api, clean_cluster: Cluster
) -> None:
    client.create(NODES, node("gpu-a"))
    assert node_names(client) == node_names(api) == ["gpu-a"]

    api.create(ACCOUNTS, {"metadata": {"name": "nobody"}})
    try:
        kubeconfig = proxy.kubeconfig_for("nobody", "default")
        refused = clean_cluster.kubectl("get", "nodes", kubeconfig=kubeconfig, check=False)
    finally:
        api.delete(ACCOUNTS, "nobody")
    assert "nodes is forbidden" in refused.stderr


def test_writes_are_logged_in_order_with_manager_status_and_body(proxy: FaultProxy, client: Api) -> None:
    label = {"metadata": {"labels": {"team": "b"}}}
    client.create(NODES, node("gpu-a"))
    client.list(NODES)
    client.apply(NODES, node("gpu-a"), field_manager="tester")
    client.patch(NODES, "gpu-a", label)
    client.replace(NODES, node("gpu-a"))
    with pytest.raises(ApiStatusError):
        client.create(NODES, node("gpu-a"))
    client.delete(NODES, "gpu-a")

    path = f"{NODES}/gpu-a"
    assert [(write.verb, write.path, write.manager, write.status) for write in proxy.writes] == [
        ("create", NODES, "", 201),
        ("apply", path, "tester", 200),
        ("patch", path, "", 200),
        ("replace", path, "", 200),
        ("create", NODES, "", 409),
        ("delete", path, "", 200),
    ]
    assert proxy.writes[2].body == label
    assert [request.verb for request in proxy.requests][:2] == ["create", "list"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "Forbidden"),
        (404, "NotFound"),
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
    ],
)
def test_a_refused_request_never_reaches_the_server(
    proxy: FaultProxy, client: Api, api: Api, status: int, reason: str
) -> None:
    proxy.fail("create", NODES, status=status, times=1)

    with pytest.raises(ApiStatusError) as refusal:
        client.create(NODES, node("gpu-a"))
    assert (refusal.value.status, refusal.value.body["reason"]) == (status, reason)
    assert node_names(api) == []
    assert proxy.writes == []
    assert [(request.status, request.reached) for request in proxy.requests] == [(status, False)]

    client.create(NODES, node("gpu-a"))
    assert node_names(api) == ["gpu-a"]


def test_429_says_when_to_come_back(proxy: FaultProxy, client: Api) -> None:
    proxy.fail("list", NODES, status=429, retry_after=7, times=1)
    with pytest.raises(ApiStatusError) as refusal:
        client.list(NODES)
    assert refusal.value.headers["Retry-After"] == "7"
    assert refusal.value.body["details"] == {"retryAfterSeconds": 7}


def test_of_two_faults_the_first_acts_until_it_is_used_up(proxy: FaultProxy, client: Api) -> None:
    proxy.fail("list", NODES, status=500, times=1)
    second = proxy.fail(".*", ".*", status=403)
    assert [_status(client), _status(client)] == [500, 403]
    second.lift()
    assert _status(client) == 200
    assert second.matched == 1


def test_a_cut_before_the_server_loses_the_request(proxy: FaultProxy, client: Api, api: Api) -> None:
    proxy.cut("create", NODES, times=1)
    with pytest.raises(LOST_CONNECTION):
        client.create(NODES, node("gpu-a"))
    assert node_names(api) == []


def test_a_cut_inside_the_answer_loses_only_the_answer(proxy: FaultProxy, client: Api, api: Api) -> None:
    proxy.cut("create", NODES, inside=True, times=1)
    with pytest.raises(LOST_CONNECTION):
        client.create(NODES, node("gpu-a"))
    assert node_names(api) == ["gpu-a"]
    assert [write.status for write in proxy.writes] == [201]


def test_a_request_that_hangs_is_not_done_until_the_fault_is_lifted(
    proxy: FaultProxy, patient: InBackground, api: Api
) -> None:
    hang = proxy.hang("create", NODES)
    created = patient(lambda client: client.create(NODES, node("gpu-a")))
    eventually(lambda: _equal(hang.matched, 1), what="the request arrives")
    assert node_names(api) == []
    hang.lift()
    assert created.result()["metadata"]["name"] == "gpu-a"


def test_an_answer_that_hangs_is_of_a_request_that_was_done(proxy: FaultProxy, patient: InBackground, api: Api) -> None:
    hang = proxy.hang("create", NODES, inside=True)
    created = patient(lambda client: client.create(NODES, node("gpu-a")))
    eventually(lambda: _equal(node_names(api), ["gpu-a"]), what="the node is made")
    assert not created.done()
    hang.lift()
    assert created.result()["metadata"]["name"] == "gpu-a"


def test_a_client_that_gives_up_on_a_hanging_request_can_go_on(proxy: FaultProxy, client: Api, api: Api) -> None:
    proxy.hang("create", NODES, times=1)
    with pytest.raises(TimeoutError):
        client.create(NODES, node("gpu-a"))
    client.create(NODES, node("gpu-b"))
    assert node_names(api) == ["gpu-b"]


def test_a_delayed_request_passes_after_a_later_one(proxy: FaultProxy, patient: InBackground, client: Api) -> None:
    delay = proxy.delay("create", NODES, seconds=0.5, times=1)
    slow = patient(lambda client: client.create(NODES, node("gpu-slow")))
    eventually(lambda: _equal(delay.matched, 1), what="the slow request arrives")
    client.create(NODES, node("gpu-fast"))
    slow.result()
    assert [write.body["metadata"]["name"] for write in proxy.writes] == ["gpu-fast", "gpu-slow"]


def test_watch_events_pass_one_by_one_as_they_happen(client: Api, api: Api) -> None:
    events = client.watch(NODES)
    for name in ("gpu-a", "gpu-b"):
        api.create(NODES, node(name))
        assert next(events)["object"]["metadata"]["name"] == name
    events.close()


def test_the_largest_object_passes_a_watch(client: Api, api: Api) -> None:
    events = client.watch(config_maps("default"))
    data = {"a": "x" * 1_000_000}
    api.create(config_maps("default"), {"metadata": {"name": "large"}, "data": data})
    assert next(events)["object"]["data"] == data
    events.close()


def test_a_watch_can_begin_with_an_error_frame(proxy: FaultProxy, client: Api) -> None:
    proxy.error_frame(NODES, times=1)
    (event,) = client.watch(NODES)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_an_open_watch_can_get_an_error_frame(proxy: FaultProxy, client: Api, api: Api) -> None:
    events = _opened_watch(client, api)
    for watch in proxy.watches(NODES):
        watch.send_error(500)
    (event,) = events
    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)


def test_an_open_watch_can_be_cut(proxy: FaultProxy, client: Api, api: Api) -> None:
    events = _opened_watch(client, api)
    for watch in proxy.watches(NODES):
        watch.cut()
    with pytest.raises(LOST_CONNECTION):
        next(events)


def test_a_silent_watch_loses_what_happens(proxy: FaultProxy, client: Api, api: Api) -> None:
    events = _opened_watch(client, api)
    (watch,) = proxy.watches(NODES)
    watch.silence()
    api.delete(NODES, "gpu-first")
    with pytest.raises(TimeoutError):
        next(events)


def test_an_open_watch_can_be_ended_properly(proxy: FaultProxy, client: Api, api: Api) -> None:
    events = _opened_watch(client, api)
    (watch,) = proxy.watches(NODES)
    watch.end()
    assert list(events) == []


def test_a_client_that_leaves_ends_its_watch(proxy: FaultProxy, client: Api, api: Api) -> None:
    events = _opened_watch(client, api)
    assert len(proxy.watches()) == 1
    events.close()
    eventually(lambda: _equal(proxy.watches(), []), what="no watch is open")


def test_a_hook_runs_when_the_write_is_done_and_its_client_does_not_know(
    proxy: FaultProxy, patient: InBackground, client: Api, api: Api
) -> None:
    seen: list[tuple[Request, list[str], bool]] = []
    answered: list[bool] = []
    proxy.after_write(2, lambda write: seen.append((write, node_names(api), bool(answered))), path=NODES)

    client.create(NODES, node("gpu-a"))
    client.create(config_maps("default"), {"metadata": {"name": "other"}})
    assert seen == []
    client.create(NODES, node("gpu-b"))
    answered.append(True)
    client.create(NODES, node("gpu-c"))

    ((write, nodes, was_answered),) = seen
    assert write.body["metadata"]["name"] == "gpu-b"
    assert nodes == ["gpu-a", "gpu-b"]
    assert not was_answered


def test_a_server_that_is_gone_cuts_its_clients_through_the_proxy(
    control_plane: ControlPlane, proxy: FaultProxy, client: Api, api: Api
) -> None:
    events = _opened_watch(client, api)
    control_plane.stop_api()
    with pytest.raises(LOST_CONNECTION):
        list(events)
    with pytest.raises(LOST_CONNECTION):
        client.list(NODES)
    control_plane.start_api()
    assert node_names(client) == ["gpu-first"]


def test_leaving_the_proxy_ends_hanging_requests_too(clean_cluster: Cluster, account: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        with FaultProxy(clean_cluster) as proxy:
            hang = proxy.hang("list", NODES)
            client = Api(proxy.kubeconfig_for(account, "default"))
            listing = threads.submit(client.list, NODES)
            eventually(lambda: _equal(hang.matched, 1), what="the request arrives")
        with client, pytest.raises(LOST_CONNECTION):
            listing.result()


def _opened_watch(client: Api, api: Api) -> Iterator[Object]:
    """A watch on nodes that has delivered its first event."""
    events = client.watch(NODES)
    api.create(NODES, node("gpu-first"))
    assert next(events)["object"]["metadata"]["name"] == "gpu-first"
    return events


def _status(client: Api) -> int:
    try:
        client.list(NODES)
    except ApiStatusError as error:
        return error.status
    return 200


def _equal(got: Any, want: Any) -> None:
    assert got == want
