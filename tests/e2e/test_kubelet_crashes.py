"""What could bring down a real kubelet, or have it give a GPU out twice: ids that leave, late lists, lost memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.cluster.kubelet import KubeletEnded
from tests.support.cluster.node import GPU
from tests.support.gpunode import GPUS, GpuNode
from tests.support.oddplugin import OddPlugin
from tests.support.pods import PODS, Pod

from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb

FEW, MANY = 4 * GPUS, 8 * GPUS
"""Shares with 4 and with 8 replicas."""
OTHER = "example.com/other"
"""A resource of a plugin that is not ours."""


class HoldingPlugin(OddPlugin):
    """Another plugin, which answers `Allocate` when the test lets it."""

    def __init__(self) -> None:
        super().__init__(OTHER)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def Allocate(self, request: pb.AllocateRequest, context: object) -> pb.AllocateResponse:
        """Answer late."""
        self.asked.set()
        await self.may_answer.wait()
        return await super().Allocate(request, context)


@asynccontextmanager
async def other_plugin(node: GpuNode, device: str) -> AsyncIterator[HoldingPlugin]:
    """A plugin of one device on the node, which the scheduler counts with."""
    plugin = HoldingPlugin()
    plugin.show([(device, "Healthy")])
    await plugin.start(node.kubelet.folder)
    try:
        await asyncio.to_thread(node.offers, 1, OTHER)
        yield plugin
    finally:
        await plugin.stop()


# --- ids that leave (P13)


@pytest.mark.newest_kubelet
@pytest.mark.obligation("P13")
async def test_a_kubelet_ends_if_an_id_vanishes_under_its_open_allocate(gpu_node: GpuNode) -> None:
    """Not our plugin: this is why P13 is kept, and shows that the tests below would see it broken."""
    async with other_plugin(gpu_node, "a") as plugin:
        gpu_node.create("caught", {OTHER: 1})
        await asyncio.wait_for(plugin.asked.wait(), 60)
        plugin.show([])
        await asyncio.to_thread(gpu_node.eventually, lambda: _healthy(gpu_node, 0, OTHER), "the kubelet took the list")

        plugin.may_answer.set()

        with pytest.raises(KubeletEnded, match="ended by itself"):
            await asyncio.to_thread(gpu_node.eventually, _never, "the kubelet ends")
    gpu_node.kubelet.start()
    gpu_node.becomes_ready()


@pytest.mark.obligation("P13")
async def test_an_id_that_only_becomes_unhealthy_under_an_open_allocate_is_had(gpu_node: GpuNode) -> None:
    """The same as above with the first of the two steps in which our ids leave."""
    async with other_plugin(gpu_node, "a") as plugin:
        pod = gpu_node.create("caught", {OTHER: 1})
        await asyncio.wait_for(plugin.asked.wait(), 60)
        plugin.show([("a", "Unhealthy")])
        await asyncio.to_thread(gpu_node.eventually, lambda: _healthy(gpu_node, 0, OTHER), "the kubelet took the list")

        plugin.may_answer.set()

        await asyncio.to_thread(pod.runs)
        assert gpu_node.ids("caught", OTHER) == ["a"]


@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
def test_shares_go_and_come_back_while_pods_are_made_and_deleted(gpu_node: GpuNode) -> None:
    _offer_many(gpu_node)
    low = _takes_the_low_shares(gpu_node)
    rounds: list[list[Pod]] = []

    for number in range(4):  # an even one takes shares away under its pods, the next one gives them back
        rounds.append([gpu_node.create(f"churn-{number}-{which}", {GPU: 2}) for which in range(2)])
        wanted = FEW if number % 2 == 0 else MANY
        gpu_node.ask(replicas=wanted // GPUS)
        gpu_node.eventually(lambda: _healthy(gpu_node, wanted), f"{wanted} shares are healthy")  # noqa: B023
        assert _listed(gpu_node) == MANY
        if number % 2:
            _delete(gpu_node, [pod for pod in rounds[number - 1] if _settled(gpu_node, pod)])

    last = [pod for pods in rounds[1::2] for pod in pods if _settled(gpu_node, pod) == "Running"]
    last.append(gpu_node.pod("last", 2))  # on a busy machine none of the others may have been admitted
    assert low.phase() == "Running"

    # now for good: they leave one after the other while others are made on what stays
    held = {device_id for pod in last for device_id in gpu_node.ids(pod.name)}
    assert all(_number(device_id) >= 4 for device_id in held)
    gpu_node.ask(replicas=4)
    gpu_node.eventually(lambda: _healthy(gpu_node, FEW), "no pod gets a share that goes")
    gpu_node.delete_pods("low")
    made = 0
    while _listed(gpu_node) == MANY or made < 2:
        gpu_node.pod("short", made % 3 + 1)
        _nothing_is_held_twice(gpu_node)
        gpu_node.delete_pods("short")
        made += 1
    gpu_node.eventually(lambda: _lists(gpu_node, FEW + len(held)), "what pods hold has stayed")
    assert [(pod.phase(), pod.restarts()) for pod in last] == [("Running", 0)] * len(last)

    gpu_node.delete_pods(*(pod.name for pod in last))
    gpu_node.eventually(lambda: _lists(gpu_node, FEW), "it leaves with them")
    gpu_node.says("Serving")


@pytest.mark.newest_kubelet
@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
def test_a_share_that_goes_while_the_kubelet_waits_for_our_answer_is_had(gpu_node: GpuNode) -> None:
    _offer_many(gpu_node)
    _takes_the_low_shares(gpu_node)
    for number in range(3):
        gpu_node.eventually(lambda: _healthy(gpu_node, MANY), "every share is healthy")
        gpu_node.offers(MANY)
        before = gpu_node.fleet.label(gpu_node.name)
        with gpu_node.plugin.paused():
            pod = gpu_node.create(f"caught-{number}", {GPU: 1})
            gpu_node.eventually(lambda: _admits(gpu_node, pod), "the kubelet asks for its shares")  # noqa: B023
            gpu_node.ask(replicas=4)
            gpu_node.eventually(lambda: _differs(gpu_node.fleet.label(gpu_node.name), before), "the node is told")  # noqa: B023

        pod.runs()  # with the edits of the config under which it was chosen
        gpu_node.eventually(lambda: _healthy(gpu_node, FEW), "the edit is served")
        [share] = gpu_node.ids(pod.name)
        assert _number(share) >= 4
        assert pod.env()["NVIDIA_VISIBLE_DEVICES"] == share.partition("::")[0]
        assert _listed(gpu_node) == MANY
        gpu_node.ask(replicas=8)
    _nothing_is_held_twice(gpu_node)


# --- late lists (contract 3.3)


@pytest.mark.fault("F01")
@pytest.mark.obligation("P2")
def test_a_plugin_that_is_late_after_a_kubelet_start_loses_only_pods_with_init_containers(gpu_node: GpuNode) -> None:
    _offer_few(gpu_node)
    plain = gpu_node.pod("plain", 2)
    with_init = gpu_node.pod("with-init", 1, init={GPU: 3})
    ids, everything = gpu_node.ids("plain"), gpu_node.healthy_ids()

    with gpu_node.plugin.paused():
        gpu_node.kubelet.restart()
        # the kubelet takes its pods back about 1 s after the new kubelet.sock: from here on the list is late
        assert with_init.is_taken_down().startswith("UnexpectedAdmissionError: ")
        gpu_node.becomes_ready()
        gpu_node.offers(0)
        new = gpu_node.create("new", {GPU: 1})
        gpu_node.eventually(lambda: _waits(new), "the scheduler holds it back")

    new.runs()
    assert gpu_node.healthy_ids() == everything
    assert gpu_node.ids("plain") == ids
    assert (plain.phase(), plain.restarts()) == ("Running", 0)
    assert len(gpu_node.plugin.sockets()) == 1
    _nothing_is_held_twice(gpu_node)


# --- the same GPU twice (F24)


@pytest.mark.fault("F24")
def test_what_a_kubelet_without_its_memory_gives_out_twice_is_nowhere_to_be_read(gpu_node: GpuNode) -> None:
    """PodResources shows the older pod without devices, so `DeviceHeldTwice` cannot be seen here (kubelet contract 7).

    What can: the newer pod has ids of the older one, which goes on, and the report counts what the kubelet says. That
    two holders whom the kubelet knows are reported is the next test's.
    """
    _offer_few(gpu_node)
    before = gpu_node.pod("before", FEW // 2)
    given = gpu_node.ids("before")
    gpu_node.kubelet.kill()
    gpu_node.kubelet.checkpoint.unlink()
    gpu_node.kubelet.start()
    gpu_node.eventually(lambda: _healthy(gpu_node, FEW), "the plugin has registered again")
    gpu_node.becomes_ready()
    gpu_node.offers(FEW)
    gpu_node.pod("after", FEW // 2)

    assert before.phase() == "Running"
    assert gpu_node.ids("before") == []
    assert set(gpu_node.ids("after")) & set(given)
    gpu_node.eventually(lambda: _in_use(gpu_node, FEW // 2), "the report counts what the kubelet says")
    gpu_node.says("Serving")


@pytest.mark.fault("F24")
@pytest.mark.fault("X10")
async def test_a_share_that_two_plugins_gave_to_two_pods_is_reported_until_one_is_gone(gpu_node: GpuNode) -> None:
    _offer_few(gpu_node)
    gpu_node.pod("ours")
    [share] = gpu_node.ids("ours")
    async with other_plugin(gpu_node, share) as plugin:
        plugin.may_answer.set()
        await asyncio.to_thread(gpu_node.create("theirs", {OTHER: 1}).runs)

        found = await asyncio.to_thread(gpu_node.says, "DeviceHeldTwice", "False")
        assert share in found["message"]
        assert "default/ours/main" in found["message"]
        assert "default/theirs/main" in found["message"]
        assert "gpusharing_plugin_devices_held_twice 1.0" in gpu_node.plugin.http("/metrics")[1]

        await asyncio.to_thread(gpu_node.delete_pods, "theirs")
        await asyncio.to_thread(gpu_node.says, "Serving")


# --- helpers


def _offer_few(node: GpuNode) -> None:
    node.policy(replicas=4)
    node.eventually(lambda: _healthy(node, FEW), "every share is healthy")
    node.offers(FEW)


def _offer_many(node: GpuNode) -> None:
    node.policy(replicas=8)
    node.eventually(lambda: _healthy(node, MANY), "every share is healthy")
    node.eventually(lambda: _lists(node, MANY), "what was listed before has left")
    node.offers(MANY)


def _takes_the_low_shares(node: GpuNode) -> Pod:
    """A pod that holds what 4 replicas leave, so that all others get shares that an edit to 4 takes away."""
    pod = node.pod("low", FEW)
    assert all(_number(device_id) < 4 for device_id in node.ids("low"))
    return pod


def _number(share: str) -> int:
    return int(share.partition("::")[2])


def _healthy(node: GpuNode, count: int, resource: str = GPU) -> None:
    assert len(node.healthy_ids(resource)) == count, node.plugin.tail()


def _listed(node: GpuNode) -> int:
    """How many ids the list has, healthy or not."""
    return int(node.object()["status"]["capacity"][GPU])


def _lists(node: GpuNode, count: int) -> None:
    assert _listed(node) == count


def _nothing_is_held_twice(node: GpuNode) -> None:
    assert [pods for pods in node.holders().values() if len(pods) > 1] == []
    assert "gpusharing_plugin_devices_held_twice 0.0" in node.plugin.http("/metrics")[1]


def _settled(node: GpuNode, pod: Pod) -> str:
    """Wait until a pod runs or the kubelet has refused it: the scheduler hears late that shares are gone."""

    def check() -> None:
        status = pod.object()["status"]
        if status["phase"] == "Failed":
            assert status.get("reason") == "UnexpectedAdmissionError", status
            assert not status.get("containerStatuses"), status
            return
        assert status["phase"] == "Running", status

    node.eventually(check, f"{pod.name} runs or is refused")
    _nothing_is_held_twice(node)
    return pod.phase()


def _delete(node: GpuNode, pods: list[Pod]) -> None:
    """Delete without waiting."""
    for pod in pods:
        node.api.delete(PODS, pod.name)


def _admits(node: GpuNode, pod: Pod) -> None:
    """The kubelet has begun with a pod; it does one after the other."""
    begun = [line for line in node.kubelet.log.read_text(errors="replace").splitlines() if "SyncLoop ADD" in line]
    assert any(f"default/{pod.name}" in line for line in begun)


def _differs(one: str, other: str) -> None:
    assert one != other


def _waits(pod: Pod) -> None:
    status = pod.object()["status"]
    conditions = {entry["type"]: entry for entry in status.get("conditions", [])}
    assert status["phase"] == "Pending"
    assert conditions.get("PodScheduled", {}).get("reason") == "Unschedulable", status


def _in_use(node: GpuNode, count: int) -> None:
    assert node.row().get("inUse") == count, node.row()


def _never() -> None:
    raise AssertionError("it lives")
