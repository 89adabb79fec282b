"""The API server refuses, throttles, breaks off, goes away and comes back; nothing is lost, nothing is released."""

import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from tests.support.cluster import ControlPlane
from tests.support.cluster.api import CRDS, GPU_NODES, NODES, POLICIES, Api
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.fleet import RECORDS, Fleet, sharing
from tests.support.install import install

from gpusharing.api import names

RECORD = f"{RECORDS}/.+"
NODE = f"{NODES}/.+"


@pytest.fixture
def proxy(fleet: Fleet) -> Iterator[FaultProxy]:
    """A fault proxy in front of the API server."""
    with FaultProxy(fleet.cluster) as started:
        yield started


@pytest.fixture
def through(proxy: FaultProxy) -> Path:
    """The controller's credentials, through the proxy."""
    return proxy.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)


def _label_writes(proxy: FaultProxy) -> list[str]:
    return [write.path for write in proxy.writes if re.fullmatch(NODE, write.path)]


def test_the_record_is_written_before_the_label_and_each_once(fleet: Fleet, proxy: FaultProxy, through: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b", "gpu-c")
    with Controller(through):
        fleet.policy("pack")
        fleet.settles("pack", nodes)
    for node in nodes:
        writes = [write.path for write in proxy.writes if write.path.endswith((f"/{node}", f"-{node}"))]
        assert writes == [f"{RECORDS}/gpusharing-{node}", f"{NODES}/{node}"]


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.fault("F30")
def test_a_write_that_fails_for_a_while_is_made_in_the_end(
    fleet: Fleet, proxy: FaultProxy, through: Path, status: int
) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    proxy.fail("apply", f"{RECORD}|{NODE}", status=status, times=5)
    with Controller(through):
        fleet.policy("pack")
        fleet.settles("pack", nodes)
    assert sorted(_label_writes(proxy)) == [f"{NODES}/gpu-a", f"{NODES}/gpu-b"]


def test_a_label_conflict_is_looked_at_again_and_a_manual_label_wins(
    fleet: Fleet, proxy: FaultProxy, through: Path
) -> None:
    fleet.node("gpu-a")
    proxy.after_write(1, lambda _: fleet.set_config_label("gpu-a", "by-hand"), path=RECORD)
    with Controller(through):
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])  # the record came first, so the node is ours
    assert fleet.label("gpu-a") == config


@pytest.mark.parametrize("collection", [NODES, POLICIES, GPU_NODES, RECORDS])
@pytest.mark.fault("F31")
def test_nothing_is_written_before_every_list_has_worked(
    fleet: Fleet, proxy: FaultProxy, through: Path, collection: str
) -> None:
    fleet.node("gpu-a")
    fleet.policy("pack")
    fault = proxy.fail("list", collection, status=403)
    controller = Controller(through).start()
    try:

        def says_why() -> None:
            assert controller.running
            assert controller.logged("leading"), controller.log_text()
            status, text = controller.http("/readyz")
            assert status == 503
            assert f"list {collection}: 403" in text

        eventually(says_why, what="/readyz names the list that is refused")
        assert not _label_writes(proxy)
        fault.lift()
        fleet.settles("pack", ["gpu-a"])
    finally:
        controller.stop()


@pytest.mark.parametrize("status", [403, 404, 500])
@pytest.mark.fault("F31")
def test_a_resync_whose_list_fails_releases_nothing(
    fleet: Fleet, proxy: FaultProxy, through: Path, status: int
) -> None:
    fleet.node("gpu-a")
    with Controller(through, resync="0.5s") as controller:
        fleet.policy("pack")
        config = fleet.settles("pack", ["gpu-a"])
        fault = proxy.fail("list", POLICIES, status=status)

        def refused_twice() -> None:
            assert len(controller.logged("resync failed; nothing is released")) >= 2

        eventually(refused_twice, what="two failed resyncs")
        assert controller.http("/readyz")[0] == 503
        assert fleet.label("gpu-a") == config
        fault.lift()

        def ready() -> None:
            assert controller.http("/readyz")[0] == 200

        eventually(ready, what="ready again")
    assert fleet.label("gpu-a") == config


@pytest.mark.fault("F47")
def test_missing_rights_on_writes_are_named_in_the_status(fleet: Fleet, proxy: FaultProxy, through: Path) -> None:
    fleet.node("gpu-a")
    fault = proxy.fail("apply", NODE, status=403)
    with Controller(through):
        fleet.policy("pack")
        degraded = fleet.becomes("pack", "Degraded", "True", "WriteFailed")
        fault.lift()
        fleet.settles("pack", ["gpu-a"])

        def healed() -> None:
            assert "Degraded" not in fleet.conditions("pack")

        eventually(healed, what="no longer degraded")
    assert f"apply {NODES}/gpu-a: 403" in degraded["message"]


@pytest.mark.fault("F31")
def test_a_delete_that_the_watch_missed_is_found_by_the_relist(fleet: Fleet, proxy: FaultProxy, through: Path) -> None:
    nodes = fleet.nodes("gpu-a")
    with Controller(through):
        fleet.policy("pack")
        fleet.settles("pack", nodes)
        for watch in proxy.watches(POLICIES):
            watch.silence()
        fleet.drop("pack")
        for watch in proxy.watches(POLICIES):
            watch.send_error(410)
        fleet.released(nodes)


@pytest.mark.fault("F29")
def test_the_api_server_gone_and_back_changes_nothing_and_work_goes_on(
    fleet: Fleet, control_plane: ControlPlane, account: Path
) -> None:
    nodes = fleet.nodes("gpu-a")
    with Controller(account, lease_duration="60s", lease_deadline="50s", watchdog="60s") as controller:
        fleet.policy("pack")
        config = fleet.settles("pack", nodes)
        control_plane.stop_api()

        def noticed() -> None:
            assert controller.logged("waiting for the lease")

        eventually(noticed, what="the controller misses the API server")
        control_plane.start_api()
        assert fleet.label("gpu-a") == config
        fleet.edit("pack", sharing=sharing(8))
        assert fleet.settles("pack", nodes) != config
        assert controller.running


@pytest.mark.fault("F29")
def test_an_outage_longer_than_the_lease_ends_the_leader_and_the_next_one_goes_on(
    fleet: Fleet, control_plane: ControlPlane, account: Path
) -> None:
    nodes = fleet.nodes("gpu-a")
    controller = Controller(account, lease_duration="5s", lease_deadline="4s", lease_period="0.5s").start()
    controller.wait_leading()
    fleet.policy("pack")
    config = fleet.settles("pack", nodes)
    control_plane.stop_api()
    assert controller.wait_end() == 1  # the pod's restart policy brings the next one
    following = Controller(account).start()
    try:

        def waits() -> None:
            assert following.logged("waiting for the API server")

        eventually(waits, what="the next one waits for the API server")
        control_plane.start_api()
        following.wait_leading()
        assert fleet.label("gpu-a") == config
        fleet.edit("pack", sharing=sharing(8))
        fleet.settles("pack", nodes)
    finally:
        following.stop()


@pytest.mark.fault("F32")
def test_a_storm_of_foreign_writes_on_the_node_does_not_keep_us_from_ours(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    calm = Event()

    def storm() -> None:
        with Api(fleet.cluster.kubeconfig) as api:
            number = 0
            while not calm.is_set():
                number += 1
                api.patch(NODES, "gpu-a", {"metadata": {"annotations": {"example.com/beat": str(number)}}})

    writer = Thread(target=storm)
    writer.start()
    try:
        with Controller(account) as controller:
            fleet.policy("pack")
            fleet.settles("pack", ["gpu-a"])
            fleet.edit("pack", sharing=sharing(8))
            fleet.settles("pack", ["gpu-a"])
            assert len(controller.logged("node written", node="gpu-a")) == 2
    finally:
        calm.set()
        writer.join()


def test_a_crd_missing_at_start_is_waited_for(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    _drop_crd(fleet)
    controller = Controller(account).start()
    try:

        def says_so() -> None:
            hints = [
                line.get("hint", "") for line in controller.logged("cannot list yet; nothing is written until it works")
            ]
            assert any("kubectl apply" in hint for hint in hints), controller.log_text()

        eventually(says_so, what="the log says what is missing")
        install(fleet.cluster, again=True)
        fleet.policy("pack")
        fleet.settles("pack", ["gpu-a"])
    finally:
        controller.stop()


@pytest.mark.fault("F38")
def test_a_crd_deleted_and_created_again_moves_no_label(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    controller = Controller(account, resync="1s").start()
    try:
        controller.wait_leading()
        fleet.policy("pack")
        config = fleet.settles("pack", nodes)
        _drop_crd(fleet)
        install(fleet.cluster, again=True)
    finally:
        if controller.running:  # a watch of a kind that is gone may end it: then the pod starts anew, as here
            controller.stop()
    with Controller(account, resync="0.5s") as again:

        def resynced() -> None:
            assert len(again.logged("resync")) >= 2

        eventually(resynced, what="two resyncs without the policy")
        assert fleet.labels() == dict.fromkeys(nodes, config)
        fleet.has_event("gpu-a", "ReleaseHeld")
        fleet.policy("pack", sharing=sharing(8))  # a policy that claims them ends it
        fleet.settles("pack", nodes)
        fleet.drop("pack")  # ... and now the CRD is older than the records
        fleet.released(nodes)


def _drop_crd(fleet: Fleet) -> None:
    fleet.api.delete(CRDS, names.POLICIES_CRD)

    def gone() -> None:
        assert names.POLICIES_CRD not in [crd["metadata"]["name"] for crd in fleet.api.list(CRDS)]

    eventually(gone, what="the CRD is gone")
