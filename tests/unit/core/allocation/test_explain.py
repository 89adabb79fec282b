"""Why a request gets its ids, in sentences."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.allocation import allocation, gpu, linked, mig_gpus, shared_gpus, shares, whole_gpus
from tests.support.allocation_states import State, states
from tests.unit.core.allocation.test_laws import ANY_SETTING

from gpusharing.core.allocation.explain import explain
from gpusharing.core.allocation.prefer import prefer, preferences
from gpusharing.core.allocation.request import AllocationRequest, load
from gpusharing.core.devices import Inventory


def test_rule_gpus_outcome_and_tie_are_told() -> None:
    request = AllocationRequest(["A::0", "A::1", "B::2", "B::3", "C::0"], 1, other_load={"C": load(ids=1)})
    assert explain(request, shared_gpus({"A": 4, "B": 4, "C": 2}, "packed")) == [
        "packed: the fullest GPU first",
        "GPU 0 (A): 2 of 4 free, load 2",
        "GPU 1 (B): 2 of 4 free, load 2",
        "GPU 2 (C): 1 of 2 free, load 2",
        "chosen: 1 on GPU 0",
        "GPU 0 and GPU 1 are alike: the lower index goes first",
    ]


def test_keep_together_topology_sick_and_required_are_told() -> None:
    table = shared_gpus({"A": 2, "B": 2, "C": 2}, "packed", "preferred", "preferred", linked("ABC", "A-C"))
    request = AllocationRequest(["A::0", "A::1", "B::0", "C::0", "Z"], 3, ["C::0"], sick={"B::1"})
    assert explain(request, table) == [
        "packed: the fullest GPU first, keepTogether: preferred, topology: preferred",
        "GPU 0 (A): 2 of 2 free, load 0",
        "GPU 1 (B): 1 of 2 free, load 0, has a sick id: last",
        "GPU 2 (C): 0 of 2 free, load 2, 1 to be included",
        "left out, as the resource does not have them: 1 id",
        "only on GPU 0",
        "chosen: 2 on GPU 0, 1 on GPU 2",
    ]


def test_slices_of_mig_instances_are_told() -> None:
    lines = explain(AllocationRequest(["P0-1"], 1), mig_gpus({"P0": 3}))
    assert lines[1] == "GPU 0 (P0): 1 of 3 free, load 2 slices and 2 ids"


def test_whole_gpus_are_told_with_the_division_and_its_points() -> None:
    request = AllocationRequest(list("ABC"), 2, sick={"E"})
    assert explain(request, whole_gpus(linked("ABCDE", "B-C"), "ABCDE")) == [
        "aligned: the best connected GPUs that leave well connected GPUs behind",
        "GPU 0 (A): free",
        "GPU 1 (B): free",
        "GPU 2 (C): free",
        "GPU 3 (D): in use",
        "GPU 4 (E): sick: left out",
        "divided for the most points, 410 in all: GPU 0 (0) and GPU 1, 2 (410)",
        "chosen: GPU 1, 2",
    ]


def test_sets_of_whole_gpus_with_as_many_points_are_told() -> None:
    table = whole_gpus(linked("ABCD", "A-C", "B-D"), "ABCD")
    assert explain(AllocationRequest(list("ABCD"), 2), table)[-3:] == [
        "divided for the most points, 820 in all: GPU 0, 2 (410) and GPU 1, 3 (410)",
        "chosen: GPU 0, 2",
        "GPU 1, 3: as many points, but the lower index goes first",
    ]
    assert explain(AllocationRequest(list("ABCD"), 2, ["D"]), table)[-3:] == [
        "GPU 3 (D): to be included",
        "divided for the most points, 820 in all: GPU 0, 2 (410) and GPU 1, 3 (410)",
        "chosen: GPU 1, 3",
    ]


def test_single_whole_gpus_go_by_index() -> None:
    table = whole_gpus(linked("ABC", "B-C"), "ABC")
    by_index = "of single GPUs the one with the lowest index goes first"
    assert explain(AllocationRequest(list("BC"), 1), table)[-2:] == [by_index, "chosen: GPU 1"]
    assert explain(AllocationRequest(list("BC"), 1, ["C"]), table)[-2:] == [
        "GPU 2 (C): to be included",
        "chosen: GPU 2",
    ]


def test_gpus_are_called_by_nvmls_index() -> None:
    inventory = Inventory(gpus=(gpu(0, "A"), gpu(5, "B")))
    table = preferences(shares({"B": 2, "Z": 1}), inventory, allocation("packed"))
    lines = explain(AllocationRequest(["B::0", "B::1"], 1), table)
    assert [line.partition(" (")[0] for line in lines[1:3]] == ["GPU 5", "GPU ?"]
    assert lines[-1] == "chosen: 1 on GPU 5"


def test_a_refusal_is_told() -> None:
    assert explain(AllocationRequest(["A::0"], 2), shared_gpus({"A": 2}))[-1] == (
        "no preference: fewer are free than are asked for"
    )


@given(setting=ANY_SETTING, state=states(), size=st.integers(-1, 9))
@settings(max_examples=60)
def test_every_choice_can_explain_itself(setting: tuple[str, str, str], state: State, size: int) -> None:
    request, table = AllocationRequest(state.request().available, size, state.required), state.preferences(*setting)
    last = [line for line in explain(request, table) if line.startswith(("chosen: ", "no preference: "))]
    assert len(last) == 1
    assert last[0].startswith("chosen: ") == bool(prefer(request, table).ids)
