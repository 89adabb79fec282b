"""A node on which pods really run; which tests run on which provider, and what a provider cannot show is deselected."""

import os
from collections.abc import Iterator

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster.api import Object
from tests.support.cluster.kind.product import Product
from tests.support.cluster.kind.provider import KindCluster
from tests.support.cluster.node import RealNode, missing
from tests.support.gpunode import GpuNode, inventory
from tests.support.install import install

from gpusharing.api import names

SEVERAL_NODES = "several_nodes"
KIND = os.environ.get("GPUSHARING_CLUSTER") == "kind"


@pytest.fixture(scope="package")
def _started_node() -> Iterator[GpuNode]:
    """It ends after the last test of this folder: it takes a tenth of a CPU just to be there."""
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


@pytest.fixture(scope="session")
def installed_product(cluster: Cluster) -> Product:
    """The product on the nodes of provider `kind`, installed once."""
    assert isinstance(cluster, KindCluster)
    product = Product(cluster)
    product.install()
    return product


@pytest.fixture(scope="session")
def _no_product_in_pods(cluster: Cluster) -> None:
    """Our kinds and rules on the cluster, and no pods of ours."""
    install(cluster)
    here = f"--namespace={names.NAMESPACE}"
    cluster.kubectl("delete", "deployment,daemonset", "--all", here, "--cascade=foreground")
    cluster.kubectl("wait", "--for=delete", "pod", "--all", here, "--timeout=300s", check=False)  # there may be none


@pytest.fixture(autouse=True)
def _one_controller(request: pytest.FixtureRequest) -> None:
    """On kind, tests that run the controller as a process take it out of its pods first; elsewhere it has none."""
    if KIND and _runs_the_controller_itself(request.node):
        request.getfixturevalue("_no_product_in_pods")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On kind the tests that bring a node of their own are left out, elsewhere those that need several nodes."""
    unfit = [item for item in items if _belongs_here(item) and not _fits(item)]
    if unfit:
        config.hook.pytest_deselected(items=unfit)
        items[:] = [item for item in items if item not in unfit]
    if KIND:
        items.sort(key=_runs_the_controller_itself)  # last: nobody needs the product in pods any more


def _belongs_here(item: pytest.Item) -> bool:
    return "e2e" in item.path.parts


def _runs_the_controller_itself(item: pytest.Item) -> bool:
    return "cluster" in getattr(item, "fixturenames", ()) and item.get_closest_marker(SEVERAL_NODES) is None


def _fits(item: pytest.Item) -> bool:
    if KIND:
        return "_started_node" not in getattr(item, "fixturenames", ())
    return item.get_closest_marker(SEVERAL_NODES) is None
