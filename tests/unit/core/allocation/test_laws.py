"""Laws that every policy keeps, on any node and for any request; a new policy is held to them without an edit."""

from random import Random
from typing import TypeVar, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.allocation import allocation, counts, linked, shared_gpus
from tests.support.allocation_states import FREE, State, states

from gpusharing.api.sharing import AllocationPolicyName
from gpusharing.core.allocation.policies import POLICIES
from gpusharing.core.allocation.prefer import Preferences, prefer, preferences
from gpusharing.core.allocation.request import AllocationRequest, Choice, Refusal, load
from gpusharing.core.devices import Inventory
from gpusharing.core.resources import Resource

T = TypeVar("T")
BY_USERS = sorted(name for name, policy in POLICIES.items() if policy.FOR_USERS)
SETTINGS = [
    *((policy, "none", "none") for policy in BY_USERS),
    *((policy, keep, topology) for policy in ("packed", "distributed") for keep, topology in (
        ("preferred", "none"), ("required", "none"), ("preferred", "preferred"), ("required", "preferred"))),
    ("spread", "none", "preferred"),
]  # fmt: skip
ANY_SETTING = st.sampled_from(SETTINGS)


def test_the_policies_that_users_may_name_are_those_of_the_api() -> None:
    assert set(BY_USERS) == set(get_args(AllocationPolicyName))


@given(setting=ANY_SETTING, state=states(), seed=st.integers(0, 999))
@settings(max_examples=100)
def test_the_answer_is_exactly_as_asked_for_or_nothing(setting: tuple[str, str, str], state: State, seed: int) -> None:
    choice = prefer(state.request(), state.preferences(*setting))
    assert choice.unknown == ()
    if not choice.ids:
        assert choice.refusal in get_args(Refusal)
        assert choice.refusal
        return
    assert choice.refusal == ""
    assert len(set(choice.ids)) == len(choice.ids) == state.size
    assert set(state.required) <= set(choice.ids) <= set(state.with_state(FREE))
    _same_for_any_order(choice, setting, state, Random(seed))


@given(
    setting=ANY_SETTING, state=states(), others=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 999)), max_size=4)
)
@settings(max_examples=50)
def test_earlier_requests_leave_no_trace(
    setting: tuple[str, str, str], state: State, others: list[tuple[int, int]]
) -> None:
    request, used = state.request(), state.preferences(*setting)
    for size, seed in others:
        available = _shuffled(list(state.states), Random(seed))[: len(state.states) // 2 + 1]
        prefer(request._replace(available=available, size=size, must_include=available[:1]), used)
    assert prefer(request, used) == prefer(request, state.preferences(*setting))


def _same_for_any_order(choice: Choice, setting: tuple[str, str, str], state: State, random: Random) -> None:
    """Shuffle everything that has an order, double what may be doubled, and ask again."""
    request = state.request()
    shuffled = AllocationRequest(
        available=_shuffled([*request.available, *request.available[:2]], random),
        size=request.size,
        must_include=_shuffled([*request.must_include, *request.must_include[:1]], random),
        sick=frozenset(_shuffled(sorted(request.sick), random)),
        sick_and_held=request.sick_and_held,
        other_load=dict(_shuffled(list(request.other_load.items()), random)),
    )
    resource = Resource(
        state.resource.name, tuple(_shuffled([*state.resource.devices], random)), state.resource.replicas
    )
    inventory = Inventory(
        gpus=tuple(_shuffled([*state.inventory.gpus], random)),
        links=dict(_shuffled(list(state.inventory.links.items()), random)),
    )
    again = State(inventory, resource, state.states, state.required, state.other_load, state.size)
    assert prefer(shuffled, again.preferences(*setting)) == choice
    assert prefer(shuffled._replace(available=frozenset(shuffled.available)), again.preferences(*setting)) == choice


def _shuffled(values: list[T], random: Random) -> list[T]:
    random.shuffle(values)
    return values


@given(
    setting=ANY_SETTING,
    state=states(),
    available=st.lists(st.text(max_size=6)),
    must_include=st.lists(st.text(max_size=6), max_size=3),
    size=st.integers(-3, 99),
    sick=st.frozensets(st.text(max_size=6)),
)
def test_nothing_that_is_asked_raises(
    setting: tuple[str, str, str],
    state: State,
    available: list[str],
    must_include: list[str],
    size: int,
    sick: frozenset[str],
) -> None:
    known = state.request()
    request = AllocationRequest(
        [*available, *known.available],
        size,
        [*must_include, *known.must_include],
        sick=sick | known.sick,
        sick_and_held=sick,
        other_load=known.other_load,
    )
    choice = prefer(request, state.preferences(*setting))
    assert len(choice.ids) in {0, size}
    assert choice.unknown == tuple(sorted({*available, *must_include} - set(state.states)))


@given(setting=ANY_SETTING, state=states())
@settings(max_examples=100)
def test_a_sick_gpu_is_used_only_for_what_the_healthy_ones_cannot_hold(
    setting: tuple[str, str, str], state: State
) -> None:
    if state.resource.whole_gpus:
        return
    gpus = {device.id: device.gpu for device in state.resource.devices}
    request = state.request()
    choice = prefer(request, state.preferences(*setting))
    sick = {gpus[each] for each in request.sick}
    free = [each for each in request.available if each not in state.required]
    healthy = [each for each in free if gpus[each] not in sick]
    chosen = [each for each in choice.ids if each not in state.required]
    if len(chosen) <= len(healthy):
        assert [each for each in chosen if gpus[each] in sick] == []


@given(state=states("whole"), size=st.integers(1, 8))
def test_whole_gpus_ignore_policy_keep_together_and_topology(state: State, size: int) -> None:
    request = AllocationRequest(state.with_state(FREE), size)
    answers = {prefer(request, state.preferences(*setting)) for setting in SETTINGS}
    assert len(answers) == 1
    assert (len(answers.pop().ids) == size) == (len(state.with_state(FREE)) >= size)


# --- single facts


def test_a_resource_without_devices_has_nothing_to_prefer() -> None:
    nothing = preferences(Resource("nvidia.com/gpu", ()), Inventory(), allocation("packed"))
    assert prefer(AllocationRequest(["A"], 1), nothing) == Choice((), "insufficient", ("A",))


@pytest.mark.parametrize(
    ("available", "size", "must_include", "refusal"),
    [
        (["A::0"], 0, [], "size"),
        (["A::0"], -1, [], "size"),
        (["A::0", "A::1"], 1, ["A::0", "A::1"], "must-include"),
        (["A::0"], 2, [], "insufficient"),
        (["A::0", "B::0"], 2, [], "split"),
    ],
    ids=["nothing", "less than nothing", "more included than asked", "too few", "on two GPUs"],
)
def test_each_refusal_says_why(available: list[str], size: int, must_include: list[str], refusal: str) -> None:
    table = shared_gpus({"A": 4, "B": 4}, keep_together="required")
    assert prefer(AllocationRequest(available, size, must_include), table) == Choice((), refusal)  # type: ignore[arg-type]


def test_must_include_ids_that_are_all_that_is_asked_for_are_the_answer() -> None:
    request = AllocationRequest(["A::0", "B::1", "B::0"], 2, ["B::1", "A::0"])
    assert prefer(request, shared_gpus({"A": 4, "B": 4})).ids == ("A::0", "B::1")


def test_an_unknown_must_include_id_is_dropped_and_told() -> None:
    choice = prefer(AllocationRequest(["A::0", "A::1"], 1, ["Z::0"]), shared_gpus({"A": 2}))
    assert choice == Choice(("A::0",), "", ("Z::0",))


def test_a_sick_id_that_the_kubelet_still_thinks_free_is_not_chosen() -> None:
    request = AllocationRequest(["A::0", "A::1"], 1, sick={"A::0"})
    assert prefer(request, shared_gpus({"A": 2})).ids == ("A::1",)


def test_replicas_are_taken_from_the_lowest_number_not_by_spelling() -> None:
    table: Preferences = shared_gpus({"A": 12})
    assert prefer(AllocationRequest([f"A::{at}" for at in (11, 10, 9, 2)], 2), table).ids == ("A::2", "A::9")


def test_what_another_resource_has_on_a_gpu_counts_as_load() -> None:
    request = AllocationRequest(["A::0", "B::0"], 1, other_load={"B": load(ids=1)})
    assert counts(prefer(request, shared_gpus({"A": 2, "B": 2}, "packed")).ids) == {"B": 1}
    assert counts(prefer(request, shared_gpus({"A": 2, "B": 2}, "distributed")).ids) == {"A": 1}


def test_two_ranks_of_eight_tenths_of_a_gpu_go_to_two_linked_gpus() -> None:
    """Decision 54."""
    total = dict.fromkeys("ABCD", 10)
    table = shared_gpus(total, "packed", "preferred", "preferred", linked("ABCD", "A-D", "B-C"))
    free = [f"{gpu}::{at}" for gpu in total for at in range(10)]
    assert counts(prefer(AllocationRequest(free, 16), table).ids) == {"A": 8, "D": 8}
