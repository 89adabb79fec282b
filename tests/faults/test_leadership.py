"""Two replicas, one leader; a watch that dies; a process that must end."""

from pathlib import Path

import pytest
from tests.support.cluster.api import NODES, POLICIES, leases
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.fleet import Fleet, sharing

from gpusharing.api import names

LEASE = f"{leases(names.NAMESPACE)}/{names.LEASE}"
TIGHT = {"lease_duration": "3s", "lease_deadline": "2s", "lease_period": "0.3s"}


def test_the_standby_leads_when_the_leader_ends(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account) as first:
        second = Controller(account).start()
        try:

            def stands_by() -> None:
                assert any("standing by" in line["why"] for line in second.logged("waiting for the lease"))
                assert second.http("/readyz") == (200, "ok\n")

            eventually(stands_by, what="the second stands by, ready")
            assert first.stop() == 0
            second.wait_leading()
            fleet.policy("pack")
            fleet.settles("pack", ["gpu-a"])
        finally:
            second.stop()


def test_the_standby_leads_when_the_leader_is_killed(fleet: Fleet, account: Path) -> None:
    fleet.node("gpu-a")
    with Controller(account, **TIGHT) as first, _standby(account) as second:
        first.kill()
        second.wait_leading()
        fleet.policy("pack")
        fleet.settles("pack", ["gpu-a"])


class _standby:  # noqa: N801
    """A second controller that need not lead yet."""

    def __init__(self, account: Path) -> None:
        self._controller = Controller(account, **TIGHT)

    def __enter__(self) -> Controller:
        return self._controller.start()

    def __exit__(self, *_: object) -> None:
        if self._controller.running:
            self._controller.stop()


@pytest.mark.fault("F34")
def test_two_controllers_at_once_never_write_both(fleet: Fleet, account: Path) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    with Controller(account, **TIGHT) as first, _standby(account) as second:
        fleet.policy("pack")
        fleet.settles("pack", nodes)
        fleet.edit("pack", sharing=sharing(8))
        fleet.settles("pack", nodes)
        assert first.logged("node written")
        assert not second.logged("node written")


def test_a_leader_that_cannot_renew_ends_itself(fleet: Fleet) -> None:
    with FaultProxy(fleet.cluster) as proxy:
        through = proxy.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
        controller = Controller(through, **TIGHT).start()
        controller.wait_leading()
        proxy.hang("get|replace", LEASE)
        assert controller.wait_end() == 1


@pytest.mark.parametrize("blind", [POLICIES, NODES])
@pytest.mark.fault("F54")
def test_a_watch_that_dies_while_another_waits_ends_the_process(fleet: Fleet, blind: str) -> None:
    """Kopf 1.45.2 hangs then, blind and deaf to SIGTERM: the watchdog ends it, and a standby takes over."""
    other = NODES if blind == POLICIES else POLICIES
    with FaultProxy(fleet.cluster) as proxy:
        through = proxy.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
        controller = Controller(through, watchdog="8s").start()
        controller.wait_leading()
        proxy.hang("watch", other)
        proxy.error_frame(blind, status=500)
        assert controller.wait_end() != 0


def test_cleanup_beside_two_running_replicas_leaves_nothing_behind(fleet: Fleet, account: Path) -> None:
    import subprocess
    import sys

    from tests.support.controller import ROOT

    nodes = fleet.nodes("gpu-a", "gpu-b")
    fleet.node("by-hand", **{names.CONFIG_LABEL: "mine"})
    with Controller(account, **TIGHT) as first, _standby(account) as second:
        fleet.policy("pack", adoptManual=True)
        fleet.settles("pack", [*nodes, "by-hand"])
        fleet.set_labels("gpu-b", **{names.SKIP_LABEL: "true"})
        times = [f"--{name.replace('_', '-')}={value}" for name, value in TIGHT.items()]
        done = subprocess.run(
            [sys.executable, "-m", "gpusharing", "cleanup", f"--kubeconfig={account}", *times],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={"PYTHONPATH": str(ROOT / "operator"), "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 1, done.stdout + done.stderr  # this account may not end the device plugins
        assert fleet.labels() == {"gpu-a": "", "gpu-b": "", "by-hand": "mine"}
        assert fleet.records() == []
        assert first.wait_end() == 1

        def held_off() -> None:
            why = [line["why"] for line in second.logged("waiting for the lease")]
            assert any("cleanup holds the lease until" in text for text in why), why

        eventually(held_off, what="the standby says that cleanup holds the lease")
        assert fleet.labels() == {"gpu-a": "", "gpu-b": "", "by-hand": "mine"}
    assert "gpu-a: nvidia.com/device-plugin.config=" in done.stdout
    assert "released 3 nodes" in done.stdout
    assert "the device plugins stay, with what they keep on their nodes: " in done.stdout
    assert "kubectl delete -k config/default" in done.stdout
