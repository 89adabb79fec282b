"""From a policy to what a container sees: the whole product on a real node, as containers and the kubelet tell it."""

import pytest
from tests.support.cluster.api import config_maps
from tests.support.cluster.node import GPU
from tests.support.gpunode import GPUS, POLICY, GpuNode

from gpusharing.api import names
from gpusharing.core.records import record_name

SIX = {f"share-{number}": {GPU: 1} for number in range(6)}


def test_a_policy_reaches_the_container_and_is_applied(gpu_node: GpuNode) -> None:
    gpu_node.policy(replicas=4)
    gpu_node.offers(4 * GPUS)

    pod = gpu_node.pod("a")

    [share] = gpu_node.ids("a")
    uuid, _, number = share.partition("::")
    assert pod.env()["NVIDIA_VISIBLE_DEVICES"] == uuid
    assert 0 <= int(number) < 4
    control = {"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
    assert pod.devices() == dict.fromkeys({f"/dev/nvidia{_index(uuid)}", *control}, True)

    def reported() -> None:
        row = gpu_node.row()
        assert (row["devices"], row.get("advertised"), row["predicted"], row["inUse"]) == (16, 16, 16, 1), row
        config = gpu_node.report()["config"]
        assert config["desired"] == config["served"] == gpu_node.fleet.config(POLICY), config

    gpu_node.eventually(reported, "the node reports what the kubelet confirms")


def test_packed_fills_one_gpu_after_the_other(gpu_node: GpuNode) -> None:
    gpu_node.policy(allocation={"policy": "packed"})
    gpu_node.hold(SIX)
    assert sorted(gpu_node.taken(*SIX).values()) == [2, 4]


def test_distributed_takes_the_emptiest_gpu(gpu_node: GpuNode) -> None:
    gpu_node.policy(allocation={"policy": "distributed"})
    gpu_node.hold(SIX)
    assert sorted(gpu_node.taken(*SIX).values()) == [1, 1, 2, 2]


def test_more_replicas_come_while_pods_run(gpu_node: GpuNode) -> None:
    gpu_node.policy(replicas=4)
    running = gpu_node.run("a", "b")
    held = {pod.name: gpu_node.ids(pod.name) for pod in running}

    gpu_node.policy(replicas=8)

    gpu_node.offers(8 * GPUS)
    assert {pod.name: gpu_node.ids(pod.name) for pod in running} == held
    assert [(pod.phase(), pod.restarts()) for pod in running] == [("Running", 0)] * 2
    gpu_node.pod("rest", 8 * GPUS - 2)  # every share that is left can be had


@pytest.mark.fault("F18")
def test_a_bad_edit_leaves_the_node_as_it_was_and_is_reported(gpu_node: GpuNode) -> None:
    gpu_node.policy(replicas=4)
    pod = gpu_node.pod("a")
    good = gpu_node.fleet.label(gpu_node.name)

    with gpu_node.controller_paused():  # it would put the edit back
        edit = {"data": {good: "version: v1\nsharing: {timeSlicing: {resources: nonsense}}\n"}}
        gpu_node.api.patch(config_maps(names.NAMESPACE), record_name(gpu_node.name), edit)
        gpu_node.says("InvalidConfig", "False")
        report = gpu_node.report()["config"]
        assert "timeSlicing" in report["error"]
        assert report["lastGood"] == good
        assert gpu_node.count() == 4 * GPUS
        assert gpu_node.pod("b").env()["NVIDIA_VISIBLE_DEVICES"]
        assert (pod.phase(), pod.restarts()) == ("Running", 0)

    gpu_node.says("Serving")  # the controller put the edit back
    assert gpu_node.report()["config"]["error"] == ""


def test_deleting_the_policy_restores_plain_gpus(gpu_node: GpuNode) -> None:
    gpu_node.policy(replicas=4)
    gpu_node.fleet.drop(POLICY)
    gpu_node.offers(GPUS)
    pod = gpu_node.pod("whole")
    assert gpu_node.ids("whole") == [pod.env()["NVIDIA_VISIBLE_DEVICES"]]


@pytest.mark.fault("F28")
@pytest.mark.fault("X07")
def test_a_pod_that_asks_for_all_gpus_by_environment_opens_only_what_it_was_granted(gpu_node: GpuNode) -> None:
    gpu_node.policy(replicas=4)
    numbers = [f"{gpu_node.plugin.major}:{minor}" for minor in range(GPUS)]
    pod = gpu_node.pod("cheat", env={"NVIDIA_VISIBLE_DEVICES": "all", "CHEAT": " ".join(numbers)})

    assert pod.env()["NVIDIA_VISIBLE_DEVICES"] == "all"
    [share] = gpu_node.ids("cheat")
    mine = f"{gpu_node.plugin.major}:{_index(share.partition('::')[0])}"
    assert pod.cheated() == {number: number == mine for number in numbers}
    assert sum(path.removeprefix("/dev/nvidia").isdecimal() for path in pod.devices()) == 1


def test_what_an_init_container_used_is_used_again_by_its_pod(gpu_node: GpuNode) -> None:
    gpu_node.policy(replicas=4)
    pod = gpu_node.pod("a", gpus=2, init={GPU: 3})
    first = pod.env("init")["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert set(pod.env()["NVIDIA_VISIBLE_DEVICES"].split(",")) <= set(first)
    assert len(gpu_node.ids("a")) == 2


def _index(uuid: str) -> int:
    """The index of a GPU of the test inventory."""
    return int(uuid[-1])
