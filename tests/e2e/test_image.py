"""The product from its own image, as pods: what users run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.api import pods
from tests.support.gpunode import GPUS, GpuNode
from tests.support.productimage import write_product
from tests.support.productpods import product_pods

from gpusharing.api import names


@pytest.fixture
def in_pods(gpu_node: GpuNode, tmp_path: Path) -> Iterator[GpuNode]:
    """The node with the controller and the plugin in pods instead of processes."""
    gpu_node.runtime.load(write_product(tmp_path))
    gpu_node.plugin.kill()
    gpu_node.controller.stop()  # it gives its Lease back
    gpu_node.offers(0)
    gpu_node.fleet.set_labels(gpu_node.name, **{"nvidia.com/gpu.present": "true"})
    workloads = product_pods(gpu_node.cluster.server, gpu_node.plugin.folder)
    gpu_node.cluster.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": workloads})
    )
    try:
        yield gpu_node
    finally:
        gpu_node.cluster.kubectl("delete", "deployment,daemonset", "--all", "-n", names.NAMESPACE)
        gpu_node.eventually(lambda: _none_left(gpu_node), "the product's pods are gone")


def test_a_policy_reaches_a_container_with_the_product_in_pods(in_pods: GpuNode) -> None:
    in_pods.policy(replicas=4)
    in_pods.offers(4 * GPUS)
    pod = in_pods.pod("a", 3)
    uuids = {share.partition("::")[0] for share in in_pods.ids("a")}
    assert set(pod.env()["NVIDIA_VISIBLE_DEVICES"].split(",")) == uuids
    restarts = [
        status["restartCount"]
        for found in in_pods.api.list(pods(names.NAMESPACE))
        for status in found["status"]["containerStatuses"]
    ]
    assert restarts == [0, 0]


def _none_left(node: GpuNode) -> None:
    left = [pod["metadata"]["name"] for pod in node.api.list(pods(names.NAMESPACE))]
    assert not left, left
