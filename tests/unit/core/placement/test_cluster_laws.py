"""What holds whatever happens, in any order: no GPU has two owners, planning comes to rest, unknown is kept."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.planning import pool, service
from tests.support.stage import Stage, Wire, placement_object, resource

from gpusharing.core.placement.projection import project

NODES = ("a", "b", "c")
NAMES = ("p", "q", "r")
Step = Callable[[Stage], None]

sizes = st.lists(st.integers(1, 3), min_size=1, max_size=3)
more = st.sampled_from([{}, {"gpuOrder": "aligned"}, {"algorithm": "ffd"}])
indexes = st.integers(0, 3)


def spec_of(gpus: list[int], extra: Wire, rest: bool) -> Wire:
    services = [service(f"s{at}", count) for at, count in enumerate(gpus)]
    leftover = [{"name": "rest", "leftover": {"min": 1}}] if rest else []
    return {"pools": [pool("auto", None, maxNodes=2)], "services": [*services, *leftover], **extra}


def put(name: str, gpus: list[int], extra: Wire, rest: bool) -> Step:
    age = NAMES.index(name)
    return lambda stage: stage.put(placement_object(name, spec_of(gpus, extra, rest), age=age)) and None


def delete(name: str) -> Step:
    return lambda stage: stage.delete(f"team-a/{name}") if f"team-a/{name}" in stage.placements else None


def rebalance(name: str, word: str) -> Step:
    def step(stage: Stage) -> None:
        known = stage.placements.get(f"team-a/{name}")
        if known is not None:
            stage.placements[known.key] = replace(known, rebalance=word)

    return step


def on_node(name: str, happens: Callable[[Stage, str], object]) -> Step:
    return lambda stage: happens(stage, name) and None if name in stage.nodes else None


def restore(stage: Stage, name: str) -> None:
    """The node is all right again."""
    stage.change_node(name, ready=True, unready_since=None, schedulable=True, reservable=True)
    for index in range(4):
        stage.change_gpu(name, index, healthy=True)


names_ = st.sampled_from(NODES)
steps = st.one_of(
    st.builds(put, st.sampled_from(NAMES), sizes, more, st.booleans()),
    st.builds(delete, st.sampled_from(NAMES)),
    st.builds(rebalance, st.sampled_from(NAMES), st.sampled_from("xyz")),
    st.builds(lambda name, at: on_node(name, lambda stage, node: stage.pod(node, at)), names_, indexes),
    st.builds(lambda name, at: on_node(name, lambda stage, node: stage.pod_ends(node, at)), names_, indexes),
    st.builds(lambda name, at: on_node(name, lambda stage, node: stage.grab(node, at)), names_, indexes),
    st.builds(
        lambda name, at: on_node(name, lambda stage, node: stage.change_gpu(node, at, healthy=False)), names_, indexes
    ),
    st.builds(lambda name: on_node(name, lambda stage, node: stage.lose(node)), names_),
    st.builds(lambda name: on_node(name, restore), names_),
    st.builds(lambda name: on_node(name, lambda stage, node: stage.change_node(node, reservable=False)), names_),
)
unknown = st.one_of(
    st.builds(lambda name: on_node(name, lambda stage, node: stage.change_node(node, schedulable=False)), names_),
    st.builds(lambda name: on_node(name, lambda stage, node: stage.change_node(node, reservable=False)), names_),
    st.builds(lambda name: on_node(name, lambda stage, node: stage.report(node, ready=False, gpus=())), names_),
    st.builds(
        lambda name: on_node(name, lambda stage, node: stage.change_node(node, ready=False, unready_since=stage.now)),
        names_,
    ),
    st.builds(lambda name: on_node(name, lambda stage, node: stage.silent.add(node)), names_),
)


def a_stage(before: list[Step]) -> Stage:
    stage = Stage()
    for name in NODES:
        stage.node(name)
    stage.settle()
    for step in before:
        step(stage)
        stage.settle()
        assert_one_owner(stage)
    return stage


def assert_one_owner(stage: Stage) -> None:
    """No GPU in two stored plans, and none told to two placements."""
    stored = [
        (placement.key, uuid)
        for placement in stage.placements.values()
        for _, each in placement.assignments()
        for uuid in each.uuids
    ]
    assert max(Counter(uuid for _, uuid in dict.fromkeys(stored)).values(), default=0) <= 1, stored
    told = [(entry.placement, uuid) for entries in stage.present().values() for entry in entries for uuid in entry.gpus]
    assert max(Counter(uuid for _, uuid in dict.fromkeys(told)).values(), default=0) <= 1, told


@settings(deadline=None, max_examples=40)
@given(st.lists(steps, max_size=8))
def test_no_gpu_has_two_owners_and_planning_comes_to_rest(happens: list[Step]) -> None:
    stage = a_stage(happens)
    assert stage.settle() == 0


@settings(deadline=None, max_examples=40)
@given(st.lists(steps, max_size=5), st.lists(unknown, min_size=1, max_size=4))
def test_what_is_not_known_takes_nothing_away(happens: list[Step], unclear: list[Step]) -> None:
    """But to a placement that waits for its rebalance, which was asked for: it may find room at any time."""
    stage = a_stage(happens)
    waiting = {key for key, each in stage.placements.items() if each.rebalance != each.status.observed_rebalance}
    stored = {key: stage.places(key) for key in stage.placements.keys() - waiting}
    told = stage.present()
    for step in unclear:
        step(stage)
        stage.now += timedelta(seconds=10)
        stage.settle()
    for key, places in stored.items():
        assert stage.places(key).items() >= places.items()
    for name, entries in told.items():
        kept = {str(entry) for entry in entries if entry.placement not in waiting}
        assert kept <= set(map(str, stage.present()[name]))


@settings(deadline=None, max_examples=40)
@given(st.lists(steps, max_size=6), st.randoms(use_true_random=False))
def test_what_nodes_are_told_depends_on_the_stored_plans_alone(happens: list[Step], shuffle: random.Random) -> None:
    stage = a_stage(happens)
    placements = list(stage.placements.values())
    shuffle.shuffle(placements)
    wanted = {name: entries for name, entries in project(placements, {}).items() if name in stage.nodes}
    assert wanted == {name: entries for name, entries in stage.present().items() if entries}


@settings(deadline=None, max_examples=40)
@given(sizes, st.lists(st.integers(0, 2), max_size=3), st.booleans())
def test_a_placement_created_anew_has_the_gpus_that_its_pods_hold(gpus: list[int], busy: list[int], told: bool) -> None:
    """Whether the plugin was told of the deletion in between, or not."""
    stage = a_stage([put("p", gpus, {}, False)])
    before = stage.places("team-a/p")
    for at in {at for at in busy if f"s{at}" in before}:
        node, listed = before[f"s{at}"].split()
        stage.runs(node, resource(f"s{at}"), *map(int, listed.split(",")))
    stage.delete("team-a/p")
    if told:
        stage.settle()
    put("p", gpus, {}, False)(stage)
    stage.settle()
    after = stage.places("team-a/p")
    assert {name: after[name] for name in before if not told or int(name[1:]) in busy} == {
        name: where for name, where in before.items() if not told or int(name[1:]) in busy
    }
