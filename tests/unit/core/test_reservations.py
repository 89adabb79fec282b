"""What a `GpuNode` wants reserved, and the ids of reserved GPUs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.hardware import gpu_uuid

from gpusharing.core.devices import base_of, replica_of
from gpusharing.core.reservations import Reservation, Wanted, is_place, reserved_id, wanted_of
from gpusharing.core.resources import ID_MAX

POLICY = "place.gpusharing.io/policy.rl-eval.team-a"


def gpu_node(spec: Any, generation: int = 7) -> dict[str, Any]:
    return {"metadata": {"name": "n", "generation": generation}, **({} if spec is None else {"spec": spec})}


def entry(**fields: Any) -> dict[str, Any]:
    said = {"resource": POLICY, "placement": "team-a/rl-eval", "service": "policy", "gpus": ["GPU-1", "GPU-2"]}
    return {**said, "exclusive": True, **fields}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (None, Wanted()),
        (gpu_node(None), Wanted(7, None)),
        (gpu_node({}), Wanted(7, None)),
        (gpu_node({"reservations": []}), Wanted(7, ())),
        (gpu_node({"reservations": [entry()]}), Wanted(7, (Reservation(POLICY, POLICY, ("GPU-1", "GPU-2")),))),
        (
            gpu_node({"reservations": [entry(exclusive=False, gpus=["GPU-1", "GPU-1"])]}),
            Wanted(7, (Reservation(POLICY, "team-a/rl-eval", ("GPU-1",)),)),
        ),
    ],
    ids=["no object", "no spec", "empty spec", "release all", "exclusive", "shared"],
)
def test_absent_is_unknown_and_only_an_empty_list_says_that_nothing_is_wanted(found: Any, wanted: Wanted) -> None:
    assert wanted_of(found) == wanted


def test_what_cannot_be_read_is_not_taken_for_something_else() -> None:
    with pytest.raises(ValidationError):
        wanted_of(gpu_node({"reservations": [entry(exclusive="perhaps")]}))


@given(st.from_regex(r"[a-z]{1,9}\.[a-z]{1,9}\.[a-z]{1,9}", fullmatch=True))
def test_an_id_leads_to_its_gpu_and_is_no_share_unless_others_may_be_beside_it(name: str) -> None:
    resource, gpu = f"place.gpusharing.io/{name}", gpu_uuid(3)
    assert reserved_id(gpu, resource, resource) == gpu
    beside = reserved_id(gpu, resource, "team/p")
    assert base_of(beside) == gpu
    assert replica_of(beside) is not None
    assert beside != reserved_id(gpu, f"{resource}x", "team/p")
    assert len(beside) <= ID_MAX


def test_the_id_of_a_shared_gpu_is_pinned_since_kubelets_keep_it() -> None:
    assert reserved_id("GPU-1", POLICY, "team-a/rl-eval") == "GPU-1::449d9118"


def test_names_of_placements_are_known_by_their_domain() -> None:
    assert is_place(POLICY)
    assert not is_place("nvidia.com/gpu")
