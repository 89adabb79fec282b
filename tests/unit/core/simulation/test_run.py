"""Runs: laws that hold whatever comes, and small ones whose figures are worked out by hand."""

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.allocation import NVLINK, PCIE
from tests.support.hardware import make_hardware, mig_uuid
from tests.unit.core.simulation.making import (
    GPU,
    LARGE,
    MIXED,
    SMALL,
    make_run,
    make_scenario,
    mixed_node,
    outcome_of,
    scenarios,
)

from gpusharing.api.scenario import Arrivals
from gpusharing.core.devices import Inventory
from gpusharing.core.fragmentation import fragmentation
from gpusharing.core.listing import Listing, advance
from gpusharing.core.occupancy import PodDevices, held_twice
from gpusharing.core.simulation.kubelet import Kubelet
from gpusharing.core.simulation.scenario import Node, Scenario

SEEDS = st.integers(0, 99)

# --- laws


@given(scenario=scenarios(), seed=SEEDS)
def test_no_id_is_held_twice_and_what_is_not_held_is_free(scenario: Scenario, seed: int) -> None:
    run = make_run(scenario, seed=seed)
    for _ in run.play():
        for node, kubelet in zip(scenario.nodes, run.nodes, strict=True):
            assert held_twice(_rows(kubelet), node.inventory) == ()
            for resource in node.resources:
                held = [each for name, ids in kubelet.held.values() if name == resource.name for each in ids]
                assert set(held) <= {device.id for device in resource.devices}
                assert kubelet.free(resource.name) == len(resource.devices) - len(held) >= 0


@given(scenario=scenarios(by_chance=False))
def test_who_is_there_and_what_runs_has_is_what_the_events_say(scenario: Scenario) -> None:
    assert not isinstance(scenario.workload, Arrivals)
    counts = {event.pod: (event.resource, event.count) for event in scenario.workload if event.pod}
    came = {event.pod: event.at for event in scenario.workload if event.pod}
    left = {event.leave: event.at for event in scenario.workload if event.leave}
    run = make_run(scenario)
    seen = set()
    for now in run.play():
        held = {pod: (name, len(ids)) for kubelet in run.nodes for pod, (name, ids) in kubelet.held.items()}
        seen |= held.keys() | run.waiting.keys()
        assert held.keys() == run.running.keys()
        assert held.items() <= counts.items()
        assert held.keys().isdisjoint(run.waiting)
        there = {pod for pod, at in came.items() if at < now < left.get(pod, 61)}
        assert there <= held.keys() | run.waiting.keys()
        assert all(came[pod] <= now <= left.get(pod, 61) for pod in held.keys() | run.waiting.keys())
    assert seen == counts.keys()


@given(scenario=scenarios(), seed=SEEDS)
def test_a_pod_waits_only_where_no_node_has_as_many_free_ids_or_the_plugin_refuses(
    scenario: Scenario, seed: int
) -> None:
    run = make_run(scenario, seed=seed)
    required = scenario.policies[0].allocation.keep_together == "required"
    for _ in run.play():
        for pod in run.waiting.values():
            able = [kubelet for kubelet in run.nodes if kubelet.free(pod.resource) >= pod.count]
            assert required or not able
            assert not able or any(kubelet.occupied.largest(pod.resource) < pod.count for kubelet in able)


@given(scenario=scenarios(), seed=SEEDS)
@settings(max_examples=25)
def test_levels_are_what_the_plugin_would_report_of_the_node(scenario: Scenario, seed: int) -> None:
    """But for pods that no GPU can hold: these the plugin takes to be as well placed as can be."""
    run = make_run(scenario, seed=seed)
    for _ in run.play():
        for node, kubelet in zip(scenario.nodes, run.nodes, strict=True):
            told = fragmentation(_listing(node), _rows(kubelet), node.inventory)
            occupied = kubelet.occupied
            assert (occupied.free_gpus, occupied.ideal_free_gpus) == (told.free_gpus, told.possible_gpus)
            assert {room.resource: room.largest for room in told.resources} == {
                resource.name: occupied.largest(resource.name) for resource in node.resources
            }
            assert all(occupied.stranded(room.resource) <= room.free for room in told.resources)


def _listing(node: Node) -> Listing:
    return advance(Listing(), node.resources, node.config, sick={}, held={}, calls_open=frozenset(), now=0)


def _rows(kubelet: Kubelet) -> list[PodDevices]:
    return [PodDevices("team", pod, "main", name, ids) for pod, (name, ids) in kubelet.held.items()]


@given(scenario=scenarios(), seed=SEEDS)
@settings(max_examples=20)
def test_the_same_seed_gives_the_same_run(scenario: Scenario, seed: int) -> None:
    one, other = make_run(scenario, seed=seed), make_run(scenario, seed=seed)
    for now, then in zip(one.play(), other.play(), strict=True):
        assert now == then
        assert [kubelet.held for kubelet in one.nodes] == [kubelet.held for kubelet in other.nodes]
    assert one.outcome == other.outcome


SWING = {"process": "swing", "mean": "60%", "amplitude": "30%", "period": 40, "lifetime": 8, "sizes": {"1": 3, "3": 1}}


def test_another_seed_gives_another_run() -> None:
    scenario = make_scenario(duration=100, arrivals=SWING)
    assert outcome_of(scenario, seed=1) != outcome_of(scenario, seed=2)


# --- by hand: two GPUs of four shares each, for ten units of time

TWO_PODS = [{"at": 0, "pod": "a", "count": 3}, {"at": 0, "pod": "b", "count": 2}, {"at": 5, "leave": "a"}]


def test_packed_splits_what_the_other_gpu_could_have_held() -> None:
    got = outcome_of(make_scenario(events=TWO_PODS))
    # b is on both GPUs all the time; it could be alone on one once a has left
    assert (got.free_gpus, got.ideal_free_gpus) == (0.0, 0.5)
    assert (got.could_stay_together, got.split_needlessly) == (2, 1)
    assert got.stranded == ((3 * 5 + 6 * 5) / 10,)
    assert got.largest == (3.0,)
    assert (got.came, got.waited, got.refused) == (2, 0, 0)


def test_kept_together_the_other_gpu_is_free_in_the_end() -> None:
    got = outcome_of(make_scenario({"policy": "packed", "keepTogether": "preferred"}, events=TWO_PODS))
    assert (got.free_gpus, got.ideal_free_gpus) == (0.5, 0.5)
    assert (got.could_stay_together, got.split_needlessly) == (2, 0)
    assert got.stranded == ((3 * 5 + 2 * 5) / 10,)
    assert got.largest == ((2 * 5 + 4 * 5) / 10,)


def test_a_pod_that_no_gpu_could_have_held_is_not_split_needlessly_and_ideally_on_as_few_as_can_be() -> None:
    got = outcome_of(make_scenario(events=[{"at": 0, "pod": "a", "count": 6}]))
    assert (got.could_stay_together, got.split_needlessly) == (0, 0)
    assert (got.free_gpus, got.ideal_free_gpus, got.stranded) == (0.0, 0.0, (2.0,))


def test_a_pod_that_takes_all_of_a_gpu_could_have_been_held_by_it() -> None:
    got = outcome_of(make_scenario({"policy": "spread"}, events=[{"at": 0, "pod": "a", "count": 4}]))
    assert (got.could_stay_together, got.split_needlessly) == (1, 1)


def test_ideally_a_pod_that_no_gpu_can_hold_is_on_as_few_as_can() -> None:
    four = make_hardware(4).build()
    got = outcome_of(make_scenario({"policy": "spread"}, inventory=four, events=[{"at": 0, "pod": "a", "count": 6}]))
    assert (got.free_gpus, got.ideal_free_gpus) == (0.0, 2.0)


def test_of_several_nodes_the_levels_add_up_and_the_largest_request_is_that_of_the_best() -> None:
    events = [{"at": 0, "pod": "a", "count": 3}, {"at": 0, "pod": "b", "count": 6}]
    got = outcome_of(make_scenario(nodes=2, events=events))
    assert (got.free_gpus, got.ideal_free_gpus) == (1.0, 1.0)
    assert (got.stranded, got.largest) == ((1.0 + 2.0,), (4.0,))


def test_a_gpu_is_packed_with_all_its_resources() -> None:
    """The large one joins the small one that is left, although the other GPU comes first."""
    events = [
        {"at": 0, "pod": "two", "resource": SMALL, "count": 2},
        {"at": 1, "pod": "third", "resource": SMALL, "count": 1},
        {"at": 2, "leave": "two"},
        {"at": 3, "pod": "large", "resource": LARGE, "count": 1},
    ]
    run = make_run(make_scenario(config=MIXED, inventory=mixed_node(), events=events))
    for _ in run.play():
        pass
    assert run.nodes[0].held == {"third": (SMALL, (mig_uuid(1, 0),)), "large": (LARGE, (mig_uuid(1, 2),))}
    assert run.nodes[0].occupied.free_gpus == 1


def test_pods_wait_in_the_order_in_which_they_came_and_a_smaller_one_may_pass() -> None:
    events = [
        {"at": 0, "pod": "large", "count": 7},
        {"at": 1, "pod": "older", "count": 4},
        {"at": 2, "pod": "younger", "count": 4},
        {"at": 3, "pod": "small", "count": 1},
        {"at": 4, "leave": "small"},
        {"at": 5, "leave": "large"},
        {"at": 6, "pod": "late", "count": 1},
    ]
    run = make_run(make_scenario(events=events))
    there = {now: (sorted(run.running), list(run.waiting)) for now in run.play()}
    assert there[3] == (["large", "small"], ["older", "younger"])
    assert there[6] == (["older", "younger"], ["late"])
    assert run.outcome.waited == 3


def test_a_pod_that_leaves_while_it_waits_never_starts() -> None:
    events = [
        {"at": 0, "pod": "a", "count": 8},
        {"at": 1, "pod": "b", "count": 1},
        {"at": 2, "leave": "b"},
        {"at": 3, "leave": "a"},
        {"at": 4, "pod": "c", "count": 1},
    ]
    run = make_run(make_scenario(events=events))
    assert [sorted(run.running) for _ in run.play()] == [["a"], ["a"], ["c"]]


def test_who_leaves_makes_room_for_who_comes_at_the_same_moment() -> None:
    events = [{"at": 0, "pod": "a", "count": 8}, {"at": 1, "leave": "a"}, {"at": 1, "pod": "b", "count": 8}]
    assert outcome_of(make_scenario(events=events)).waited == 0


def test_of_several_nodes_the_one_with_the_fewest_pods_is_taken() -> None:
    events = [{"at": at, "pod": f"p{at}", "count": count} for at, count in enumerate((5, 1, 1, 4))]
    run = make_run(make_scenario(nodes=2, events=events))
    for _ in run.play():
        pass
    assert [sorted(kubelet.held) for kubelet in run.nodes] == [["p0", "p2"], ["p1", "p3"]]


def test_what_the_plugin_refuses_starts_once_one_gpu_can_hold_it() -> None:
    events = [
        {"at": 0, "pod": "a", "count": 3},
        {"at": 0, "pod": "b", "count": 3},
        {"at": 1, "pod": "c", "count": 2},
        {"at": 4, "leave": "a"},
        {"at": 5, "pod": "d", "count": 1},
    ]
    run = make_run(make_scenario({"policy": "packed", "keepTogether": "required"}, events=events))
    there = {now: (sorted(run.running), list(run.waiting)) for now in run.play()}
    assert there[1] == (["a", "b"], ["c"])
    assert there[5] == (["b", "c", "d"], [])
    assert (run.outcome.waited, run.outcome.refused) == (1, 1)


def test_the_first_fifth_of_a_run_with_arrivals_is_not_measured() -> None:
    arrivals = {"process": "poisson", "mean": "50%", "lifetime": 5, "sizes": {"1": 1}}
    scenario = make_scenario(duration=200, arrivals=arrivals)
    run, came = make_run(scenario), 0
    for now in run.play():
        came += now >= 40
    assert (run.outcome.came, scenario.measured_from) == (came, 40.0)


def test_nor_is_how_full_the_nodes_were_in_it() -> None:
    """The demand rises until there is room for the one pod, which stays."""
    shape = {"mean": "1%", "amplitude": "60%", "period": 400, "lifetime": 1e8}
    run = make_run(make_scenario(duration=100, arrivals={"process": "swing", "sizes": {"4": 1}, **shape}))
    (came,) = run.play()
    assert came == pytest.approx(400 * math.asin(49 / 60) / (2 * math.pi))
    assert run.outcome.free_gpus == pytest.approx((2 * (came - 20) + 1 * (100 - came)) / 80)


@pytest.mark.parametrize("policy", ["packed", "spread", "nvidia-packed"])
def test_whole_gpus_are_always_aligned(policy: str) -> None:
    """Also in NVIDIA's plugin (contract 5.2)."""
    gpus = make_hardware(4).build().gpus
    uuids = [gpu.uuid for gpu in gpus]
    pairs = dict.fromkeys(combinations(uuids, 2), PCIE) | {(uuids[0], uuids[2]): NVLINK, (uuids[1], uuids[3]): NVLINK}
    events = [{"at": 0, "pod": "a", "count": 2}]
    run = make_run(make_scenario({"policy": policy}, config={}, inventory=Inventory(gpus, links=pairs), events=events))
    for _ in run.play():
        pass
    assert run.nodes[0].held == {"a": (GPU, (uuids[0], uuids[2]))}
