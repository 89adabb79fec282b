"""Choices of the kubelet's that were not the preferred ones: never a false alarm, and never one that is missed.

The kubelet double admits pods by the rules of the kubelet (contract, section 5); what it asks goes to a real servicer
and a real view, without sockets.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.hardware import gpu_uuid, make_config, make_hardware
from tests.support.kubeletdouble.admission import Admission, AdmissionFailed, Container, Pod, Policy
from tests.support.kubeletdouble.devices import DeviceManager, Endpoint

from gpusharing.core.host import HostFacts
from gpusharing.core.listing import Listing, advance
from gpusharing.core.resources import resources_of
from gpusharing.deviceplugin.counts import Counts
from gpusharing.deviceplugin.servicer import ListFeed, Refused, ResourceServicer
from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb
from gpusharing.deviceplugin.view import View

GPU = "nvidia.com/gpu"
GPUS, SHARES = 4, 3
HARDWARE = make_hardware(GPUS).build()

Choose = Callable[[Sequence[str], "Asked"], Sequence[str]]


class Asked:
    """The last preference that no `Allocate` came after."""

    def __init__(self, available: Sequence[str], must_include: Sequence[str], preferred: Sequence[str]) -> None:
        self.available, self.must_include, self.preferred = set(available), set(must_include), set(preferred)


class Kubelet:
    """The kubelet's admission on one side, servicer and view on the other; `change` may change what it allocates."""

    def __init__(self, policy: str, keep_together: str, topology: Policy, seed: int) -> None:
        allocation = {"policy": policy, "keep_together": keep_together}
        self._config = make_config().shared(SHARES).allocation(**allocation).build()
        self._listing = Listing()
        self.told: list[str] = []
        self.view = View(GPU, gave=lambda name, ids: None, overruled=self.told.append, answered=lambda: None)
        self.counts = Counts()
        self._servicer = ResourceServicer(self.view, ListFeed(self.view), self.counts)
        self._manager = DeviceManager("1.37", clock=lambda: 0.0)
        self._manager.connected(Endpoint(GPU, "plugin.sock", preferred=True))
        self.admission = Admission(self._manager, self, policy=topology, numa_nodes=2, seed=seed)
        self.change: Choose | None = None
        self.asked: Asked | None = None
        self.overruled = self.unadvised = 0
        self.list(sick=())

    def list(self, sick: Sequence[int]) -> None:
        """Have these GPUs sick: plugin and kubelet know at once."""
        self._listing = advance(
            self._listing,
            resources_of(self._config, HARDWARE),
            self._config,
            sick={gpu_uuid(gpu): "XID 79" for gpu in sick},
            held={},
            calls_open=frozenset(),
            now=0.0,
        )
        self.view.show(self._listing, HARDWARE, HostFacts(), {})
        shown = [(it.id, "Healthy" if well else "Unhealthy", (it.numa_node or 0,)) for it, well in self.view.listed()]
        self._manager.listed(GPU, shown)

    async def prefer(
        self, endpoint: Endpoint, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        each = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[each])
        [answer] = (await self._servicer.GetPreferredAllocation(request, None)).container_responses
        self.asked = Asked(available, must_include, list(answer.deviceIDs))
        return list(answer.deviceIDs)

    async def allocate(self, endpoint: Endpoint, ids: Sequence[str]) -> Any:
        asked, self.asked = self.asked, None
        if asked and self.change:
            ids = self.change(ids, asked)
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        try:
            answer = await self._servicer.allocate(request)
        except Refused as refused:
            raise AdmissionFailed(refused.sentence) from refused
        self.overruled += asked is not None and bool(asked.preferred) and set(ids) != asked.preferred
        self.unadvised += asked is None or not asked.preferred
        return answer


SIZES = st.integers(1, 2 * SHARES + 1)
KINDS = st.sampled_from(["init", "sidecar", "app", "app"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.lists(st.tuples(KINDS, SIZES), min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("sick"), st.lists(st.integers(0, GPUS - 1), max_size=2)),
    ),
    min_size=1,
    max_size=6,
)
KUBELETS = st.builds(
    Kubelet,
    policy=st.sampled_from(["packed", "distributed"]),
    keep_together=st.sampled_from(["none", "preferred", "required"]),
    topology=st.sampled_from(["none", "single-numa-node"]),
    seed=st.integers(0, 1000),
)


async def play(kubelet: Kubelet, steps: Sequence[Any]) -> None:
    pods: list[Pod] = []
    for number, (step, what) in enumerate(steps):
        if step == "admit":
            containers = [Container(f"c{at}", {GPU: size}, kind) for at, (kind, size) in enumerate(what)]
            pods.append(Pod(f"pod-{number}", *containers))
            try:
                await kubelet.admission.admit(pods[-1])
            except AdmissionFailed:
                pods.pop()
        elif step == "delete" and pods:
            kubelet.admission.delete(pods.pop(what % len(pods)))
        elif step == "sick":
            kubelet.list(what)


@settings(max_examples=40, deadline=None)
@given(kubelet=KUBELETS, steps=STEPS)
def test_a_kubelet_as_it_should_be_is_never_reported_whatever_it_admits(kubelet: Kubelet, steps: Sequence[Any]) -> None:
    asyncio.run(play(kubelet, steps))
    assert (kubelet.counts.overruled, kubelet.told) == (0, [])
    assert kubelet.counts.splits["kubelet"] <= kubelet.unadvised


@settings(max_examples=40, deadline=None)
@given(kubelet=KUBELETS, steps=STEPS, pick=st.randoms(use_true_random=False))
def test_a_kubelet_that_takes_other_devices_of_what_it_offered_is_reported_each_time(
    kubelet: Kubelet, steps: Sequence[Any], pick: Any
) -> None:
    def another(ids: Sequence[str], asked: Asked) -> Sequence[str]:
        spare, given = sorted(asked.available - set(ids)), sorted(set(ids) - asked.must_include)
        if not spare or not given or pick.random() < 0.3:
            return ids
        return [*(set(ids) - {pick.choice(given)}), pick.choice(spare)]

    kubelet.change = another
    asyncio.run(play(kubelet, steps))
    event(f"overruled: {min(kubelet.overruled, 3)}")
    assert kubelet.counts.overruled == len(kubelet.told) == kubelet.overruled
