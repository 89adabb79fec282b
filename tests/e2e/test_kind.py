"""What only several real nodes, a pod network and the product's own image can show. Provider `kind`.

The two workers of hack/kind/cluster.yaml: four Tesla T4, and three RTX A6000, all of them simulated.
"""

from collections.abc import Collection, Iterator

import pytest
from tests.support.cluster.api import NODES, POLICIES, placements
from tests.support.cluster.kind.product import OUR_PODS, PATIENCE, KindPod, Product
from tests.support.cluster.kind.provider import WORKERS
from tests.support.eventually import eventually
from tests.support.install import ROOT
from tests.support.pods import PODS

# the first test waits for the cluster; one waits until a node is given up
pytestmark = [pytest.mark.several_nodes, pytest.mark.timeout(1800)]
PLACEMENTS = placements("default")
T4, A6000 = WORKERS
T4_GPUS, A6000_GPUS = 4, 3
OUTSIDE = "203.0.113.7"  # an address that nobody has (RFC 5737)


@pytest.fixture
def product(installed_product: Product) -> Iterator[Product]:
    """The product without policies, on nodes that offer plain GPUs."""
    installed_product.repair()
    yield installed_product
    installed_product.cluster.docker.assert_alive()
    installed_product.delete_pods()
    installed_product.api.delete_collection(POLICIES)
    installed_product.offer(**{T4: T4_GPUS, A6000: A6000_GPUS})


def shared(product: Product, replicas: int) -> None:
    """Have the policy `everywhere` share every GPU so often, and wait until both nodes offer that."""
    product.ask("everywhere", replicas)
    product.applied("everywhere")
    product.offer(**{T4: T4_GPUS * replicas, A6000: A6000_GPUS * replicas})


def test_a_packet_for_an_address_outside_the_cluster_is_refused(product: Product) -> None:
    said = f"/bin/busybox nc -w 5 {OUTSIDE} 80 </dev/null 2>&1; echo ready; sleep infinity"
    container = {"name": "main", "image": "docker.io/local/busybox:1", "imagePullPolicy": "Never"}
    pod = product.pod("outwards", T4, 0, containers=[{**container, "command": ["/bin/sh", "-c", said]}])
    assert "Connection refused" in pod.lines()[0], pod.lines()  # the wall's answer: by itself it would be unreachable


def test_policies_per_model_have_different_results_on_the_two_workers(product: Product) -> None:
    product.cluster.kubectl("apply", "-f", str(ROOT / "config/samples/per-model.yaml"))
    for policy in ("per-model", "per-model-a6000"):
        product.cluster.kubectl("wait", "--for=condition=Ready", f"gsp/{policy}", f"--timeout={PATIENCE}s")
    product.offer(**{T4: 2 * T4_GPUS, A6000: 6 * A6000_GPUS})
    for node in WORKERS:
        pod = product.pod(f"on-{node}", node)
        assert set(product.gpus(pod)) < product.uuids(node)
    assert product.uuids(T4).isdisjoint(product.uuids(A6000))


def test_an_edit_reaches_both_workers(product: Product) -> None:
    shared(product, 2)
    held = {node: product.gpus(product.pod(f"on-{node}", node)) for node in WORKERS}
    shared(product, 5)
    for node in WORKERS:
        product.pod(f"more-on-{node}", node, 3)
        assert product.api.get(PODS, f"on-{node}")["status"]["phase"] == "Running"
    assert held.keys() == set(WORKERS)


def test_pods_survive_a_kubelet_that_is_killed(product: Product) -> None:
    shared(product, 4)
    pod = product.pod("before", T4, 2)
    mine = product.gpus(pod)
    product.cluster.run_on(T4, "pkill", "-9", "-x", "kubelet")
    after = product.pod("after", T4, 4 * T4_GPUS - 2)  # admitted only once the plugin has registered again
    assert (pod.phase(), pod.restarts(), product.gpus(pod)) == ("Running", 0, mine)
    assert set(product.gpus(after)) == product.uuids(T4)
    product.offer(**{T4: 4 * T4_GPUS, A6000: 4 * A6000_GPUS})


def test_gpu_pods_come_back_with_gpus_after_a_reboot(product: Product) -> None:
    shared(product, 4)
    product.deploy("serving", A6000, 2, replicas=3)
    before = eventually(lambda: _all_run(product, 3), within=PATIENCE, what="the pods run")

    product.cluster.docker("restart", A6000)

    # a kubelet that starts before the plugin may refuse a pod for good: then the Deployment has made another
    after = eventually(lambda: _all_run(product, 3, without=before), within=PATIENCE, what="the pods run again")
    product.offer(**{T4: 4 * T4_GPUS, A6000: 4 * A6000_GPUS})
    product.applied("everywhere")
    for pod in after.values():
        assert set(product.gpus(pod)) <= product.uuids(A6000)
    product.pod("next", A6000, 4 * A6000_GPUS - 6)  # all that is left can be had, and no more is held


def test_a_node_that_hangs_keeps_its_pods_and_catches_up(product: Product) -> None:
    shared(product, 2)
    pod = product.pod("steady", A6000)
    mine = product.gpus(pod)

    product.cluster.docker("pause", A6000)
    try:
        product.ready(A6000, "Unknown")
        product.ask("everywhere", 3)
        product.fleet.becomes("everywhere", "Applied", "Unknown", "AwaitingReport")
        eventually(lambda: _count(product, T4, 3 * T4_GPUS), within=PATIENCE, what="the other worker goes on")
    finally:
        product.cluster.docker("unpause", A6000)

    product.ready(A6000, "True")
    product.applied("everywhere")
    product.offer(**{T4: 3 * T4_GPUS, A6000: 3 * A6000_GPUS})
    assert (pod.phase(), pod.restarts(), product.gpus(pod)) == ("Running", 0, mine)


def test_a_node_that_is_deleted_and_joins_again_gets_its_config(product: Product) -> None:
    shared(product, 4)
    before = product.api.get(NODES, A6000)["metadata"]["uid"]

    product.cluster.kubectl("delete", "node", A6000)
    eventually(lambda: _owned(product, "everywhere", 1), what="the policy no longer counts the node")
    product.cluster.docker("restart", A6000)

    def joined() -> None:
        found = {node["metadata"]["name"]: node["metadata"]["uid"] for node in product.api.list(NODES)}
        assert found.get(A6000, before) != before, found

    eventually(joined, within=PATIENCE, what="the node has joined again")
    product.ready(A6000, "True")
    product.offer(**{T4: 4 * T4_GPUS, A6000: 4 * A6000_GPUS})
    product.applied("everywhere")
    product.pod("first", A6000, 4 * A6000_GPUS)


def test_a_change_is_finished_by_the_other_replica_when_the_leader_is_killed(product: Product) -> None:
    shared(product, 2)
    leader = product.leader()
    product.ask("everywhere", 6)
    product.api.raw("DELETE", f"{OUR_PODS}/{leader}", gracePeriodSeconds="0")

    product.applied("everywhere")
    product.offer(**{T4: 6 * T4_GPUS, A6000: 6 * A6000_GPUS})
    assert product.leader() != leader
    product.rolled_out("deployment/gpu-sharing-operator")


def test_gpu_pods_survive_an_update_of_the_plugins_image(product: Product) -> None:
    shared(product, 4)
    running = {node: product.pod(f"on-{node}", node, 2) for node in WORKERS}
    held = {node: product.gpus(pod) for node, pod in running.items()}
    before = {node: product.plugin_on(node)["metadata"]["uid"] for node in WORKERS}

    product.update_plugin()

    assert all(product.plugin_on(node)["metadata"]["uid"] != before[node] for node in WORKERS)
    product.offer(**{T4: 4 * T4_GPUS, A6000: 4 * A6000_GPUS})
    product.applied("everywhere")
    for node, pod in running.items():
        assert (pod.phase(), pod.restarts(), product.gpus(pod)) == ("Running", 0, held[node])
    product.pod("rest", T4, 4 * T4_GPUS - 2)  # the new plugin hands out what is left


def test_a_placement_over_both_workers_gives_each_service_its_gpus_of_one(product: Product) -> None:
    product.ask("everywhere", 2, allowPlacements=True)
    product.applied("everywhere")
    services = {"four": (T4, T4_GPUS), "three": (A6000, A6000_GPUS)}  # all GPUs of both: one way to place them is left
    spec = {
        "pools": [{"name": "gpu", "nodes": 2}],
        "services": [{"name": name, "gpus": has[1]} for name, has in services.items()],
    }
    body = {"apiVersion": "gpusharing.io/v1alpha1", "kind": "GpuPlacement", "metadata": {"name": "ranks"}, "spec": spec}
    try:
        product.api.create(PLACEMENTS, body)
        product.cluster.kubectl("wait", "--for=condition=Ready", "gplace/ranks", f"--timeout={PATIENCE}s")
        product.offer(**{T4: 0, A6000: 0})
        for service, (node, count) in services.items():
            resource = f"place.gpusharing.io/{service}.ranks.default"
            pod = product.pod(service, node, count, resource=resource)
            assert set(product.gpus(pod)) == product.uuids(node)
    finally:
        product.delete_pods()
        product.api.delete_collection(PLACEMENTS)


def test_an_uninstall_leaves_the_workers_as_they_were_and_pods_their_gpus(product: Product) -> None:
    shared(product, 4)
    pod = product.pod("stays", T4, 2)
    mine = product.gpus(pod)
    try:
        said = product.uninstall()
        assert "released 2 nodes" in said
        assert "ended the device plugins; 2 nodes are as they were before" in said
        for node in WORKERS:
            assert product.traces(node) == product.untouched[node]
        assert (pod.phase(), pod.restarts(), product.gpus(pod)) == ("Running", 0, mine)
    finally:
        product.install()


def test_the_two_replicas_are_on_different_nodes_and_only_one_leads(product: Product) -> None:
    pods = product.pods("controller")
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == set(WORKERS)
    assert product.leader() in pods


def _all_run(product: Product, count: int, without: Collection[str] = ()) -> dict[str, KindPod]:
    """The pods of the Deployment, of which so many run that are none of those before."""
    found = product.deployed("serving")
    assert len(found) == count, found.keys()
    assert not found.keys() & set(without), found.keys()
    return found


def _count(product: Product, node: str, count: int) -> None:
    assert product.count(node) == count


def _owned(product: Product, policy: str, count: int) -> None:
    assert product.fleet.counts(policy).get("owned") == count, product.fleet.counts(policy)
