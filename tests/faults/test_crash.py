"""The controller is ended at every write of a pass; the next one always arrives at the same end."""

import signal
from typing import Any

import pytest
from tests.support.cluster.api import leases
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.fleet import Fleet, sharing

from gpusharing.api import names


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
@pytest.mark.fault("F35")
def test_a_controller_ended_after_any_write_is_carried_on_by_the_next(fleet: Fleet, number: int, how: str) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    with FaultProxy(fleet.cluster) as proxy:
        through = proxy.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
        controller = Controller(through)

        def end(_: Any) -> None:
            controller.send(getattr(signal, how))

        proxy.after_write(number, end, path=r".*/(nodes|configmaps|gpusharingpolicies)/.+")
        fleet.policy("pack")
        controller.start()
        try:

            def ended() -> None:
                assert not controller.running

            eventually(ended, what=f"the controller ends after write {number}")
        finally:
            if controller.running:
                controller.kill()
        forget_the_lease(fleet)
        with Controller(through):
            fleet.settles("pack", nodes)
            fleet.edit("pack", sharing=sharing(8))
            fleet.settles("pack", nodes)
            fleet.drop("pack")
            fleet.released(nodes)
    assert fleet.records() == []


@pytest.mark.fault("F35")
def test_a_controller_killed_during_a_release_is_carried_on_by_the_next(fleet: Fleet) -> None:
    nodes = fleet.nodes("gpu-a", "gpu-b")
    with FaultProxy(fleet.cluster) as proxy:
        through = proxy.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
        with Controller(through) as controller:
            fleet.policy("pack")
            fleet.settles("pack", nodes)
            proxy.after_write(1, lambda _: controller.send(signal.SIGKILL), path=r"/api/v1/nodes/.+")
            fleet.drop("pack")
            controller.wait_end()
        forget_the_lease(fleet)
        with Controller(through):
            fleet.released(nodes)


def forget_the_lease(fleet: Fleet) -> None:
    """So that the next process need not wait for the dead one's; a short one would be lost on a busy machine."""
    fleet.api.delete_collection(leases(names.NAMESPACE))
