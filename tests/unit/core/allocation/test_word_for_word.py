"""Small nodes in any state: the answer is the one that decision 53 gives when it is tried out word for word."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.allocation_states import FREE, State, WordForWord, counted, states

from gpusharing.core.allocation.prefer import prefer
from gpusharing.core.allocation.request import AllocationRequest

SHARED = st.sampled_from(("shares", "mig", "shared mig")).flatmap(states)


@pytest.mark.parametrize("policy", ["packed", "distributed", "spread"])
@given(state=SHARED)
def test_share_by_share(policy: str, state: State) -> None:
    assume(state.size_within_reach())
    choice = prefer(state.request(), state.preferences(policy))
    assert list(choice.ids) == WordForWord(state).share_by_share(policy)


@pytest.mark.parametrize("policy", ["packed", "distributed"])
@given(state=SHARED)
def test_kept_together_on_the_best_set_of_gpus(policy: str, state: State) -> None:
    assume(state.size_within_reach())
    slowly = WordForWord(state)
    want = slowly.share_by_share(policy, slowly.fewest_gpus(policy, linked=False))
    choice = prefer(state.request(), state.preferences(policy, "preferred"))
    assert list(choice.ids) == want


@pytest.mark.parametrize("policy", ["packed", "distributed"])
@given(state=SHARED)
def test_required_is_preferred_on_one_gpu_or_no_answer(policy: str, state: State) -> None:
    assume(state.size_within_reach())
    slowly = WordForWord(state)
    gpus = slowly.fewest_gpus(policy, linked=False)
    choice = prefer(state.request(), state.preferences(policy, "required"))
    if len({*gpus, *slowly.required_on}) == 1:
        assert list(choice.ids) == slowly.share_by_share(policy, gpus)
    else:
        assert (choice.ids, choice.refusal) == ((), "split")


@pytest.mark.parametrize("policy", ["packed", "distributed"])
@given(state=SHARED)
def test_split_evenly_over_the_best_linked_set_of_gpus(policy: str, state: State) -> None:
    assume(state.size_within_reach())
    slowly = WordForWord(state)
    gpus = slowly.fewest_gpus(policy, linked=True)
    touched = sorted({*gpus, *slowly.required_on})
    choice = prefer(state.request(), state.preferences(policy, "preferred", "preferred"))
    parts = counted(state, choice.ids)
    assert set(parts) <= set(touched)
    sizes = [parts.get(uuid, 0) for uuid in touched]
    assert max(sizes) - min(sizes) == slowly.unevenness(touched, gpus)
    if len(gpus) == 1:
        assert list(choice.ids) == slowly.share_by_share(policy, gpus)


@given(state=SHARED)
def test_spread_over_the_best_linked_gpus(state: State) -> None:
    assume(state.size_within_reach())
    slowly = WordForWord(state)
    choice = prefer(state.request(), state.preferences("spread", topology="preferred"))
    assert list(choice.ids) == slowly.share_by_share("spread", slowly.most_linked())


@given(state=states("whole", sick=False, max_gpus=3), size=st.integers(1, 6))
def test_the_best_set_of_whole_gpus_of_the_first_of_the_best_partitions(state: State, size: int) -> None:
    free, required = state.with_state(FREE), set(state.required)
    assume(len(required) < size <= len(free))
    choice = prefer(AllocationRequest(free, size, state.required), state.preferences("packed"))
    assert set(choice.ids) == set(WordForWord(state).aligned(size))
