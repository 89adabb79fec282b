"""What users see when a part of a GPU node fails: kubelet, plugin, sockets, checkpoint, API server, Node, GPU."""

import time

import pytest
from tests.support.cluster.api import NODES
from tests.support.cluster.node import GPU
from tests.support.gpunode import GPUS, GpuNode, inventory
from tests.support.pods import Pod

ALL = 4 * GPUS


@pytest.fixture
def shared(gpu_node: GpuNode) -> GpuNode:
    """The node with four shares of each GPU."""
    gpu_node.policy(replicas=4)
    gpu_node.eventually(lambda: _all_healthy(gpu_node), "every share is healthy at the kubelet")
    gpu_node.eventually(lambda: _serves_one_resource(gpu_node), "what other tests shared has left")
    return gpu_node


@pytest.mark.fault("F01")
@pytest.mark.newest_kubelet
@pytest.mark.obligation("P2")
def test_pods_survive_a_killed_kubelet_with_their_ids(shared: GpuNode) -> None:
    plain = shared.pod("plain", 2)
    # a pod whose finished init container held devices fails if the list comes too late (contract 3.3)
    with_init = shared.pod("with-init", 1, init={GPU: 3})
    held = {pod.name: shared.ids(pod.name) for pod in (plain, with_init)}

    shared.kubelet.restart()

    shared.eventually(lambda: _all_healthy(shared), "the plugin has registered again")
    shared.becomes_ready()
    after = shared.pod("after")  # admitted behind them
    for name, ids in held.items():
        shared.holds(name, ids)
    assert [(pod.phase(), pod.restarts()) for pod in (plain, with_init)] == [("Running", 0)] * 2
    assert after.phase() == "Running"
    assert len(shared.plugin.sockets()) == 1


@pytest.mark.fault("F01")
@pytest.mark.newest_kubelet
@pytest.mark.obligation("P9")
def test_two_kubelet_starts_in_a_row_leave_one_registration(shared: GpuNode) -> None:
    shared.kubelet.restart()
    shared.kubelet.restart()
    shared.eventually(lambda: _all_healthy(shared), "the plugin has registered again")
    # a kubelet that does not know its pods yet keeps the devices of those that are gone
    shared.create("without", {}).runs()
    shared.pod("a", ALL)
    assert len(shared.plugin.sockets()) == 1


@pytest.mark.newest_kubelet
@pytest.mark.obligation("P8")
def test_a_killed_plugin_comes_back_with_the_same_ids_and_pods_do_not_notice(shared: GpuNode) -> None:
    pod = shared.pod("a", 3)
    ids, everything = shared.ids("a"), shared.healthy_ids()

    shared.plugin.kill()
    shared.offers(0)  # nobody is placed where nobody allocates
    assert pod.phase() == "Running"

    shared.plugin.start()
    shared.offers(ALL)
    assert shared.healthy_ids() == everything
    assert shared.ids("a") == ids
    assert pod.restarts() == 0
    assert len(shared.plugin.sockets()) == 1  # the dead one's was removed
    shared.pod("rest", ALL - 3)


@pytest.mark.obligation("P11")
@pytest.mark.obligation("P3")
def test_a_stopped_plugin_leaves_no_socket_and_exits_with_0(shared: GpuNode) -> None:
    assert shared.plugin.stop() == 0
    assert shared.plugin.sockets() == []


@pytest.mark.fault("F02")
def test_a_removed_socket_is_replaced(shared: GpuNode) -> None:
    [before] = shared.plugin.sockets()
    before.unlink()

    def replaced() -> None:
        now = shared.plugin.sockets()
        assert now
        assert before not in now

    shared.eventually(replaced, "the plugin serves on a new socket")
    shared.eventually(lambda: _all_healthy(shared), "the kubelet knows it")
    shared.pod("a", ALL)


@pytest.mark.fault("F24")
@pytest.mark.parametrize("how", ["corrupted", "lost"])
def test_devices_given_out_twice_after_the_checkpoint_was(shared: GpuNode, how: str) -> None:
    before = shared.pod("before", ALL - 1)

    shared.kubelet.kill()
    if how == "lost":
        shared.kubelet.checkpoint.unlink()
    else:
        shared.kubelet.checkpoint.write_text("{")
    shared.kubelet.start()
    shared.eventually(lambda: _all_healthy(shared), "the plugin has registered again")

    shared.becomes_ready()
    shared.offers(ALL)
    assert before.phase() == "Running"
    assert shared.ids("before") == []  # the kubelet has forgotten
    shared.delete_pods("before")
    shared.pod("after", ALL)


def test_a_node_object_that_was_deleted_is_served_again_when_it_is_back(shared: GpuNode) -> None:
    pod = shared.pod("a")
    uid = shared.object()["metadata"]["uid"]

    shared.api.delete(NODES, shared.name)
    assert pod.phase() == "Running"
    assert len(shared.healthy_ids()) == ALL  # nothing of that concerns the kubelet
    assert shared.plugin.http("/livez")[0] == 200

    shared.kubelet.restart()  # a kubelet makes its Node at its start only
    shared.becomes_ready()
    shared.plugin.restart()  # as its pod is made anew, with a token of the new Node
    assert shared.object()["metadata"]["uid"] != uid
    shared.applied()
    shared.offers(ALL)


@pytest.mark.fault("F29")
@pytest.mark.obligation("P2")
@pytest.mark.timeout(600)
def test_an_api_server_that_is_down_for_a_minute_costs_no_pod_and_no_share(shared: GpuNode) -> None:
    pod = shared.pod("a", 2)
    ids, everything = shared.ids("a"), shared.healthy_ids()

    shared.cluster.stop_api()
    # longer than any lease of the controller and than the 50 s after which a Node without a heartbeat is given up
    back = time.monotonic() + 60
    shared.plugin.kill()
    shared.eventually(lambda: _healthy(shared, 0), "the kubelet has seen the plugin end")
    shared.plugin.start(same_pod=True)
    shared.eventually(lambda: _all_healthy(shared), "the plugin serves what it did, from its checkpoint")
    shared.kubelet.restart()
    shared.eventually(lambda: _all_healthy(shared), "the plugin registers without the API server")
    while time.monotonic() < back:
        time.sleep(2)
        shared.assert_alive()
        assert shared.healthy_ids() == everything
        assert shared.plugin.http("/livez")[0] == 200
        assert len(shared.plugin.sockets()) == 1
    shared.cluster.start_api()

    # whoever waits for the API server asks it less and less often: up to a minute goes by before each part is back
    shared.becomes_ready(within=180)
    shared.holds("a", ids)
    assert shared.healthy_ids() == everything
    assert (pod.phase(), pod.restarts()) == ("Running", 0)
    shared.create("b", {GPU: 1}).runs(within=180)
    shared.says("Serving")
    shared.revive_controller()
    shared.policy(replicas=2)
    shared.offers(2 * GPUS)


@pytest.mark.fault("F12")
@pytest.mark.fault("F16")
@pytest.mark.obligation("P6")
def test_a_lost_gpu_shows_in_the_pods_status_and_heals(shared: GpuNode) -> None:
    pod = shared.pod("a")
    [share] = shared.ids("a")
    index = int(share.partition("::")[0][-1])
    shared.eventually(lambda: _health(pod, {share: "Healthy"}), "the pod's status says Healthy")

    shared.plugin.has(inventory(faults=[{"gpu": index, "lost": True}]))

    shared.eventually(lambda: _health(pod, {share: "Unhealthy"}), "the pod's status says Unhealthy")
    shared.offers(ALL - 4)  # every share of it, and no other
    shared.says("GpuUnhealthy", "False")
    assert (pod.phase(), shared.ids("a")) == ("Running", [share])
    others = shared.pod("b")
    assert share.partition("::")[0] not in others.env()["NVIDIA_VISIBLE_DEVICES"]

    shared.plugin.has(inventory())

    shared.eventually(lambda: _health(pod, {share: "Healthy"}), "the pod's status says Healthy again")
    shared.offers(ALL)
    shared.says("Serving")


def _serves_one_resource(node: GpuNode) -> None:
    assert len(node.plugin.sockets()) == 1, node.plugin.sockets()


def _all_healthy(node: GpuNode) -> None:
    _healthy(node, ALL)


def _healthy(node: GpuNode, count: int) -> None:
    assert len(node.healthy_ids()) == count, node.plugin.tail()


def _health(pod: Pod, expected: dict[str, str]) -> None:
    assert pod.health() == expected, pod.object()["status"]
