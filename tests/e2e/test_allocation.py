"""Where pods land: what the allocation policies promise, with the real kubelet asking and containers that tell.

GPUs that must not be chosen stand in front of the others, so that nothing passes that takes the first one.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
import yaml
from tests.support.cluster.api import POLICIES, Object
from tests.support.cluster.node import GPU
from tests.support.gpunode import GpuNode, gpu_uuid, inventory
from tests.support.install import ROOT
from tests.support.pods import Pod

SAMPLE = ROOT / "config" / "samples" / "split-over-linked-gpus.yaml"
ONE, TWO = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
MIXED, SLICED, SHARED = (0, 1), (2, 3, 4, 5), (6, 7, 8, 9)
"""GPUs with two 2g and three 1g each, with seven 1g, and without MIG: of these NVLink joins 6 and 8, 7 and 9."""
COUNT, SHARES, STAY = 10, 10, 6
"""GPUs, shares of each one without MIG, and how many pods that start stay through each round of the churn."""
OFFERED = {ONE: 3 * len(MIXED) + 7 * len(SLICED), TWO: 2 * len(MIXED), GPU: SHARES * len(SHARED)}
REQUESTS = [(ONE, 1), (ONE, 1), (TWO, 1), (GPU, 1), (GPU, 2), (GPU, 4)]


def _gpus(*faults: Object) -> Object:
    mixed = [("2g.10gb", 0), ("2g.10gb", 2), ("1g.5gb", 4), ("1g.5gb", 5), ("1g.5gb", 6)]
    sliced = [("1g.5gb", start) for start in range(7)]
    mig = dict.fromkeys(MIXED, mixed) | dict.fromkeys(SLICED, sliced)
    return inventory(COUNT, mig=mig, linked=[(6, 8), (7, 9)], faults=faults)


@pytest.fixture
def gpus() -> Object:
    """Ten GPUs of three kinds."""
    return _gpus()


@pytest.fixture
def packed(gpu_node: GpuNode) -> GpuNode:
    """The node under a policy that packs MIG devices and shares."""
    gpu_node.policy(SHARES, migStrategy="mixed", allocation={"policy": "packed"})
    for resource, count in OFFERED.items():
        gpu_node.offers(count, resource)
    gpu_node.eventually(lambda: _nothing_in_use(gpu_node), "the plugin has seen the last test's pods go")
    return gpu_node


@pytest.fixture
def sampled(gpu_node: GpuNode) -> Iterator[GpuNode]:
    """The node under the sample, as it stands."""
    sample = yaml.safe_load(SAMPLE.read_text())
    labels = sample["spec"]["nodeSelector"]["matchLabels"]
    gpu_node.api.delete_collection(POLICIES)
    gpu_node.fleet.set_labels(gpu_node.name, **labels)
    gpu_node.api.create(POLICIES, sample)
    gpu_node.in_force(sample["metadata"]["name"])
    gpu_node.offers(SHARES * COUNT)  # without a MIG strategy GPUs in MIG mode are shared like the others
    yield gpu_node
    gpu_node.api.delete_collection(POLICIES)
    gpu_node.fleet.set_labels(gpu_node.name, **dict.fromkeys(labels))


def test_seven_small_mig_devices_touch_one_gpu(packed: GpuNode) -> None:
    pods = [packed.create(f"one-{number}", {ONE: 1}) for number in range(7)]
    touched = {gpu for pod in pods for gpu in packed.seen(pod.runs())}
    assert len(touched) == 1


def test_large_and_small_mig_devices_are_packed_on_one_gpu(packed: GpuNode) -> None:
    pods = [packed.create("two-0", {TWO: 1}).runs()]
    # GPUs of seven have more room for a small one, but none of them is in use
    pods += [packed.create(name, {resource: 1}) for name, resource in (("one-0", ONE), ("one-1", ONE), ("two-1", TWO))]
    touched = {gpu for pod in pods for gpu in packed.seen(pod.runs())}
    assert len(touched) == 1
    # the GPU's node and two capability nodes, those of its own instance, in each
    [index] = [index for index in MIXED if gpu_uuid(index) in touched]
    assert all(f"/dev/nvidia{index}" in pod.devices() for pod in pods)
    capabilities = [path for pod in pods for path in pod.devices() if path.startswith("/dev/nvidia-caps/")]
    assert len(capabilities) == len(set(capabilities)) == 2 * len(pods)
    assert all(opens for pod in pods for opens in pod.devices().values())


@pytest.mark.timeout(480)
def test_after_200_pods_the_report_says_what_containers_and_ledger_say(packed: GpuNode) -> None:
    random, ledger, starting = Random(200), dict[str, tuple[str, int]](), dict[str, Pod]()
    for batch in range(10):
        # two of twenty start, and stay for a while; what all of them hold they hold from their admission on
        names = [f"churn-{batch}-{number}" for number in range(20)]
        for name in names:
            ledger[name] = random.choice([each for each in REQUESTS if _has_room(ledger, *each)])
        for name in names[:2]:
            starting[name] = packed.create(name, dict([ledger[name]]))
        packed.hold({name: dict([ledger[name]]) for name in names[2:]})
        doomed = names[2:] + random.sample(sorted(starting), max(len(starting) - STAY, 0))
        packed.drop_pods(*doomed)
        for name in doomed:
            ledger.pop(name)
            starting.pop(name, None)

    running = {name: pod.runs() for name, pod in starting.items()}
    assert [(pod.phase(), pod.restarts()) for pod in running.values()] == [("Running", 0)] * STAY
    taken = {name: packed.taken(name, resource=resource) for name, (resource, _) in ledger.items()}
    assert {name: ids.total() for name, ids in taken.items()} == {name: count for name, (_, count) in ledger.items()}
    assert {name: set(ids) for name, ids in taken.items()} == {name: packed.seen(pod) for name, pod in running.items()}
    assert [pods for pods in packed.holders().values() if len(pods) > 1] == []
    occupied = sum(taken.values(), Counter[str]())

    def reported() -> None:
        assert {row["gpu"]: row["inUse"] for row in packed.report()["occupancy"] if row.get("inUse")} == occupied

    packed.eventually(reported, "the report says the same")


def test_a_request_that_one_gpu_can_hold_is_not_split(sampled: GpuNode) -> None:
    fillers = {f"filler-{count}": {GPU: count} for count in (8 * SHARES, SHARES - 3, SHARES - 4)}
    sampled.hold(fillers)
    free = Counter({gpu_uuid(index): SHARES for index in range(COUNT)}) - sampled.taken(*fillers)
    assert sorted(free.values()) == [3, 4]

    whole = sampled.pod("whole", 4)  # the fullest GPU first would be three and one

    assert sampled.taken("whole") == {gpu: count for gpu, count in free.items() if count == 4}
    assert sampled.seen(whole) == set(sampled.taken("whole"))


def test_a_gpu_with_a_sick_share_is_left_alone_while_another_has_room(sampled: GpuNode) -> None:
    [fullest] = sampled.seen(sampled.pod("first"))
    sampled.plugin.has(_gpus({"id": f"{fullest}::{SHARES - 1}", "sick": True}))
    sampled.offers(SHARES * COUNT - 1)

    [chosen] = sampled.seen(sampled.pod("second"))

    assert chosen != fullest


def test_shares_for_two_ranks_are_split_evenly_over_linked_gpus(sampled: GpuNode) -> None:
    ranks = sampled.pod("ranks", 16)
    assert sampled.taken("ranks") == {gpu_uuid(6): 8, gpu_uuid(8): 8}
    assert sampled.seen(ranks) == {gpu_uuid(6), gpu_uuid(8)}


def _has_room(ledger: dict[str, tuple[str, int]], resource: str, count: int) -> bool:
    """Whether half of what there is stays free, so that no pod has to wait for what another one leaves."""
    return 2 * (count + sum(held for name, held in ledger.values() if name == resource)) <= OFFERED[resource]


def _nothing_in_use(node: GpuNode) -> None:
    in_use = [line for line in node.plugin.http("/metrics")[1].splitlines() if "_gpu_shares_in_use{" in line]
    assert in_use
    assert not [line for line in in_use if not line.endswith(" 0.0")]
