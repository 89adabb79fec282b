"""The fixtures that every test may use: one cluster for the session, brought up when the first test asks for it."""

import asyncio
import gc
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from tests.support.cluster import Cluster, ControlPlane, start_cluster
from tests.support.cluster.api import Api
from tests.support.cluster.cleaning import remove_leftovers
from tests.support.cluster.local import LocalCluster
from tests.support.scheduling import Part, Scheduling

pytest_plugins = ["tests.support.fixtures"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Workers get tests in the order of the next function, not the biggest files first."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_configure() -> None:
    """Ctrl-C ends what tests start: whoever runs them in the background has it ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without looking for garbage among what stays to the end, thousands of tests: a quarter of the time, or more."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Part after part, in any order within: so a node is started once, and ends after the last test on it."""
    items.sort(key=lambda item: Part.of(item.nodeid))


@pytest.fixture(scope="session")
def _idle_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture(autouse=True)
def _a_loop_is_set(_idle_loop: asyncio.AbstractEventLoop) -> None:
    """Without one pytest-asyncio 1.5 makes one and leaves it open; some test later pays for it."""
    asyncio.set_event_loop(_idle_loop)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster that `GPUSHARING_CLUSTER` asks for; `local` unless set."""
    started = start_cluster()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def _admin(cluster: Cluster) -> Iterator[Api]:
    with Api(cluster.kubeconfig) as api:
        yield api


@pytest.fixture
def clean_cluster(cluster: Cluster, _admin: Api) -> Cluster:
    """The cluster without nodes, policies and records of earlier tests."""
    remove_leftovers(_admin)
    return cluster


@pytest.fixture
def api(clean_cluster: Cluster, _admin: Api) -> Api:
    """An administrator's client on a clean cluster."""
    return _admin


@pytest.fixture
def control_plane(clean_cluster: Cluster) -> Iterator[ControlPlane]:
    """A clean cluster whose API server the test may stop or freeze; afterwards it runs again."""
    if not isinstance(clean_cluster, LocalCluster):
        pytest.skip("only provider `local` can take its API server away")
    yield clean_cluster
    clean_cluster.resume_api()
    clean_cluster.start_api()
