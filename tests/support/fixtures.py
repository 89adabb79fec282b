"""The product installed as users install it, a controller's credentials, and a node on which pods really run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster.api import Api, Object
from tests.support.cluster.node import RealNode, missing
from tests.support.fleet import Fleet
from tests.support.gpunode import GpuNode, inventory
from tests.support.install import install

from gpusharing.api import names


@pytest.fixture
def fleet(clean_cluster: Cluster, api: Api) -> Fleet:
    """An empty cluster with the product installed."""
    install(clean_cluster)
    return Fleet(clean_cluster, api)


@pytest.fixture
def account(fleet: Fleet) -> Path:
    """A kubeconfig with a token of the controller's own ServiceAccount: exactly its rights, and its fence."""
    return fleet.cluster.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)


@pytest.fixture(scope="session")
def _started_node() -> Iterator[GpuNode]:
    if lacking := missing():
        pytest.skip(f"a real node needs {lacking}")
    node = GpuNode.start()
    yield node
    node.stop()


@pytest.fixture
def gpus() -> Object:
    """The GPUs of `gpu_node`; a module that needs other ones has a fixture of this name."""
    return inventory()


@pytest.fixture
def gpu_node(_started_node: GpuNode, gpus: Object) -> Iterator[GpuNode]:
    """A node with a real kubelet, the controller and the plugin; no pods, and the policy that the last test left."""
    _started_node.install()
    _started_node.has(gpus)
    yield _started_node
    try:
        _started_node.assert_alive()
    finally:
        _started_node.repair()


@pytest.fixture
def real_node(_started_node: GpuNode) -> Iterator[RealNode]:
    """A node with a real kubelet and no pods; the test must leave the kubelet running."""
    yield _started_node
    try:
        _started_node.assert_alive()
    finally:
        if not _started_node.kubelet.running:
            _started_node.kubelet.start()
        _started_node.drop_pods()
