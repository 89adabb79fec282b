"""The product installed as users install it, and a controller's credentials."""

from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster.api import Api
from tests.support.fleet import Fleet
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
