"""Which tests run on which provider; what a provider cannot show is deselected, and pytest counts it as such."""

import os

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster.kind.product import Product
from tests.support.cluster.kind.provider import KindCluster

SEVERAL_NODES = "several_nodes"


@pytest.fixture(scope="session")
def installed_product(cluster: Cluster) -> Product:
    """The product on the nodes of provider `kind`, installed once."""
    assert isinstance(cluster, KindCluster)
    product = Product(cluster)
    product.install()
    return product


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On kind the tests that bring a node of their own are left out, elsewhere those that need several nodes."""
    kind = os.environ.get("GPUSHARING_CLUSTER") == "kind"
    unfit = [item for item in items if _belongs_here(item) and _fits(item, kind=kind) is False]
    if unfit:
        config.hook.pytest_deselected(items=unfit)
        items[:] = [item for item in items if item not in unfit]


def _belongs_here(item: pytest.Item) -> bool:
    return "e2e" in item.path.parts


def _fits(item: pytest.Item, *, kind: bool) -> bool:
    if kind:
        return "_started_node" not in getattr(item, "fixturenames", ())
    return item.get_closest_marker(SEVERAL_NODES) is None
