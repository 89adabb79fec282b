"""The model in the kubelet double, by the contract. What it shares with the kubelet is held to it by the oracle."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.support.kubeletdouble import AdmissionFailed, Container, DeviceManager, Endpoint, KubeletCrashed, Pod
from tests.support.kubeletdouble.admission import Admission
from tests.support.kubeletdouble.devices import Checkpoint, RegisterRefused, Rule, check_register

from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb

GPU = "nvidia.com/gpu"
RULES: tuple[Rule, ...] = ("1.34", "1.37")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Plugin:
    """Prefers the lowest ids; what it was offered is kept."""

    def __init__(self) -> None:
        self.offered: list[tuple[set[str], set[str], int]] = []
        self.during: Callable[[], Awaitable[None]] | None = None
        self.responses = 1

    async def prefer(
        self, endpoint: Endpoint, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        self.offered.append((set(available), set(must_include), size))
        return [*must_include, *sorted(set(available) - set(must_include))][:size]

    async def allocate(self, endpoint: Endpoint, ids: Sequence[str]) -> Any:
        if self.during:
            await self.during()
        return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse()] * self.responses)


def manager(rule: Rule = "1.34", numa: Sequence[Sequence[int]] = ((),) * 8) -> DeviceManager:
    made = DeviceManager(rule, Clock())
    made.connected(Endpoint(GPU, "/one", preferred=True))
    made.listed(GPU, [(str(number), "Healthy", tuple(nodes)) for number, nodes in enumerate(numa)])
    return made


def numbers(made: DeviceManager) -> tuple[int, int] | None:
    counts = made.counts()
    return (counts.capacity[GPU], counts.allocatable[GPU]) if GPU in counts.capacity else None


@pytest.mark.parametrize(
    "name",
    [
        "gpu",
        "a/b/c",
        "requests.x/y",
        "kubernetes.io/y",
        "a.kubernetes.io/y",
        "Nvidia.com/gpu",
        f"x/{'n' * 64}",
        f"{'p' * 245}/y",
    ],
)
def test_names_that_a_kubelet_refuses_are_refused(name: str) -> None:
    with pytest.raises(RegisterRefused, match="is invalid"):
        check_register("v1beta1", name)


def test_a_good_name_is_taken_and_another_version_refused() -> None:
    check_register("v1beta1", "nvidia.com/mig-1g.10gb.shared")
    with pytest.raises(RegisterRefused, match='requested API version "v1" is not supported'):
        check_register("v1", GPU)


@pytest.mark.parametrize("rule", RULES)
def test_after_the_end_of_a_stream_all_is_unhealthy_and_after_five_minutes_gone(rule: Rule) -> None:
    clock = Clock()
    made = DeviceManager(rule, clock)
    endpoint = Endpoint(GPU, "/one")
    made.connected(endpoint)
    made.listed(GPU, [("a", "Healthy", ()), ("b", "Unhealthy", ()), ("a", "healthy", ())])
    assert numbers(made) == (3, 1)  # an id that is sent both ways counts twice
    made.ended(endpoint)
    assert numbers(made) == (2, 0)
    clock.now = 300.0
    assert numbers(made) == (2, 0)
    clock.now = 300.1
    assert made.counts().removed == (GPU,)
    assert numbers(made) is None


def test_before_1_37_the_end_of_the_older_stream_takes_the_newer_one_down() -> None:
    made = manager()
    [older] = made.endpoints[GPU]
    newer = Endpoint(GPU, "/two")
    made.connected(newer)
    assert made.ended(older) is newer
    assert numbers(made) == (8, 0)
    assert made.ended(newer) is None


def test_from_1_37_on_the_other_is_promoted_and_the_last_list_of_anyone_stays() -> None:
    made = manager("1.37")
    [older] = made.endpoints[GPU]
    newer = Endpoint(GPU, "/two")
    made.connected(newer)
    made.listed(GPU, [("new", "Healthy", ())])
    assert made.ended(newer) is newer
    assert made.endpoints[GPU] == [older]
    assert numbers(made) == (1, 1)


def test_from_1_37_on_a_second_registration_of_a_socket_is_refused_and_the_live_client_forgotten() -> None:
    made = manager("1.37")
    [live] = made.endpoints[GPU]
    for _ in range(2):
        with pytest.raises(RegisterRefused, match="device plugin already connected"):
            made.check_free(Endpoint(GPU, "/one"))
    assert made.ended(live) is None
    assert numbers(made) == (8, 8)
    later = Endpoint(GPU, "/two")
    made.check_free(later)
    made.connected(later)
    made.ended(later)
    assert made.endpoints[GPU] == [live]
    assert numbers(made) == (8, 8)


def test_a_restart_keeps_who_holds_what_and_starts_every_resource_with_nothing() -> None:
    made = manager()
    made.pods["uid", "main", GPU] = frozenset("01")
    again = DeviceManager("1.34", Clock(), made.checkpoint())
    assert numbers(again) == (0, 0)
    assert again.pods == made.pods
    assert numbers(DeviceManager("1.34", Clock(), Checkpoint())) is None


async def test_app_containers_take_from_what_plain_init_containers_had_and_sidecars_keep_theirs() -> None:
    plugin, made = Plugin(), manager()
    admission = Admission(made, plugin)
    pod = Pod(
        "p", Container("i", {GPU: 3}, "init"), Container("s", {GPU: 1}, "sidecar"), Container("a", {GPU: 3}, "app")
    )
    held = (await admission.admit(pod)).ids
    assert held["s", GPU] < held["i", GPU]
    assert held["a", GPU] > held["i", GPU] - held["s", GPU]
    assert not held["a", GPU] & held["s", GPU]
    # one offer for the init container, none for the sidecar, one for the app container with what was reused
    assert [(len(available), len(must), size) for available, must, size in plugin.offered] == [(8, 0, 3), (7, 2, 3)]


async def test_devices_on_the_picked_numa_node_are_offered_or_all_taken() -> None:
    plugin, made = Plugin(), manager(numa=[(0,)] * 4 + [(1,)] * 4)
    admission = Admission(made, plugin, policy="single-numa-node", numa_nodes=2)
    held = (await admission.admit(Pod("a", limits={GPU: 3}))).ids["main", GPU]
    assert held == {"0", "1", "2"}
    assert plugin.offered == [({"0", "1", "2", "3"}, set(), 3)]
    held = (await admission.admit(Pod("b", limits={GPU: 4}))).ids["main", GPU]
    assert held == {"4", "5", "6", "7"}
    assert len(plugin.offered) == 1
    with pytest.raises(AdmissionFailed, match=r"^Resources cannot be allocated with Topology locality$"):
        await admission.admit(Pod("c", limits={GPU: 2}))


async def test_on_one_numa_node_there_is_no_hint_and_everything_is_offered() -> None:
    plugin, made = Plugin(), manager(numa=[(0,)] * 2 + [(5,)] * 2)
    await Admission(made, plugin, policy="single-numa-node", numa_nodes=1).admit(Pod("a", limits={GPU: 4}))
    assert plugin.offered == [({"0", "1", "2", "3"}, set(), 4)]


async def test_devices_of_an_answer_without_responses_stay_in_use_until_another_pod_ends() -> None:
    plugin, made = Plugin(), manager()
    admission = Admission(made, plugin)
    other = Pod("other", limits={GPU: 1})
    await admission.admit(other)
    plugin.responses = 0
    with pytest.raises(AdmissionFailed, match="no containers return in allocation response"):
        await admission.admit(Pod("a", limits={GPU: 7}))
    plugin.responses = 1
    with pytest.raises(AdmissionFailed, match=r"Requested: 1, Available: 0"):
        await admission.admit(Pod("b", limits={GPU: 1}))
    admission.delete(other)
    await admission.admit(Pod("c", limits={GPU: 8}))


async def test_an_unknown_resource_is_no_reason_to_refuse_a_pod() -> None:
    assert (await Admission(manager(), Plugin()).admit(Pod("a", limits={"nvidia.com/other": 1}))).ids == {}


@pytest.mark.obligation("P13")
async def test_an_id_that_vanishes_between_choice_and_answer_fails_the_test() -> None:
    plugin, made = Plugin(), manager()

    async def vanish() -> None:
        made.listed(GPU, [])
        await asyncio.sleep(0)

    plugin.during = vanish
    with pytest.raises(KubeletCrashed, match="left the list while being allocated"):
        await Admission(made, plugin).admit(Pod("a", limits={GPU: 1}))
