"""Each way from one owner of a GPU to the next, and what it waits for."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.hardware import gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.core.ledger import (
    UNKNOWN_OWNER,
    Claim,
    Facts,
    Ledger,
    advance_ledger,
    facts_of,
    is_moving,
    rebuilt,
    reserved_part,
    shared_gpus,
    shared_part,
    still_reserved,
)
from gpusharing.core.listing import Listing, advance
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.reservations import Reservation, Wanted, reserved_id
from gpusharing.core.resources import resources_of

INVENTORY = make_hardware(4).build()
WHOLE, SHARES = make_config("whole").build(), make_config("shares").shared(2).build()
G0, G1, G2, G3 = (gpu_uuid(n) for n in range(4))
JUDGE, POLICY, EMBED = (f"place.gpusharing.io/{it}.p.team" for it in ("judge", "policy", "embed"))
PLACEMENT = "team/p"

ALL = frozenset((G0, G1, G2, G3))
IDLE = Facts(usable=ALL, held=frozenset(), listed=frozenset(), allocatable=frozenset())
# as it is while ids of the GPU are listed
LISTED = replace(IDLE, listed=ALL, allocatable=ALL)


def alone(name: str, *gpus: str) -> Reservation:
    return Reservation(name, name, gpus)


def together(name: str, *gpus: str) -> Reservation:
    return Reservation(name, PLACEMENT, gpus)


def ledger(generation: int | None = 1, conflicts: dict[str, str] | None = None, **claims: Claim) -> Ledger:
    """Claims by the GPU's number: `g0=Claim(…)`."""
    return Ledger({gpu_uuid(int(name[1:])): claim for name, claim in claims.items()}, conflicts or {}, generation)


def claim(state: Any, owner: str, *names: str) -> Claim:
    return Claim(state, owner, names or (owner,))


def wanted(*reservations: Reservation, generation: int = 1) -> Wanted:
    return Wanted(generation, reservations)


WITHDRAWING, RESERVED, RELEASING = (claim(state, JUDGE) for state in ("withdrawing", "reserved", "releasing"))
HELD = replace(LISTED, held=frozenset({G0}))
ANOTHER = alone(EMBED, G0)


@pytest.mark.parametrize(
    ("before", "spec", "facts", "after"),
    [
        pytest.param(None, alone(JUDGE, G0), LISTED, WITHDRAWING, id="an idle shared GPU is withdrawn"),
        pytest.param(None, alone(JUDGE, G0), replace(LISTED, held=None), None, id="not while holders are unknown"),
        pytest.param(None, alone(JUDGE, G0), replace(LISTED, usable=None), None, id="not before GPUs are seen"),
        pytest.param(WITHDRAWING, alone(JUDGE, G0), LISTED, WITHDRAWING, id="withdrawing waits for its ids"),
        pytest.param(WITHDRAWING, alone(JUDGE, G0), IDLE, RESERVED, id="quiet: reserved"),
        pytest.param(WITHDRAWING, None, LISTED, None, id="no longer named: shared at once"),
        pytest.param(WITHDRAWING, alone(JUDGE, G0), HELD, None, id="a holder shows up: shared at once"),
        pytest.param(WITHDRAWING, ANOTHER, LISTED, claim("withdrawing", EMBED), id="for another owner instead"),
        pytest.param(RESERVED, alone(JUDGE, G0), HELD, RESERVED, id="reserved stays so, held or not"),
        pytest.param(RESERVED, None, IDLE, RELEASING, id="no longer named: releasing"),
        pytest.param(RESERVED, ANOTHER, IDLE, RELEASING, id="named by another: releasing first"),
        pytest.param(RELEASING, alone(JUDGE, G0), HELD, RESERVED, id="named again: reserved at once"),
        pytest.param(RELEASING, None, HELD, RELEASING, id="releasing waits for its pods"),
        pytest.param(RELEASING, None, IDLE, None, id="quiet: shared"),
        pytest.param(RELEASING, ANOTHER, HELD, RELEASING, id="another owner waits, too"),
        pytest.param(RELEASING, ANOTHER, IDLE, claim("reserved", EMBED), id="quiet: the other owner's"),
        pytest.param(RESERVED, together(JUDGE, G0), IDLE, RELEASING, id="shared with others now: another owner"),
    ],
)
def test_the_way_of_one_gpu(before: Claim | None, spec: Reservation | None, facts: Facts, after: Claim | None) -> None:
    start = Ledger({G0: before} if before else {}, {}, 1)
    assert advance_ledger(start, wanted(*[spec] if spec else []), facts).claims == ({G0: after} if after else {})


@pytest.mark.parametrize("spoilt", ["held", "listed", "allocatable"])
@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_quiet_that_is_held_listed_allocatable_or_not_known(spoilt: str, known: bool) -> None:
    assert IDLE.is_quiet(G0)
    if known or spoilt != "listed":
        facts = replace(IDLE, **{spoilt: frozenset({G0}) if known else None})
        assert not facts.is_quiet(G0)
        assert facts.is_quiet(G1) is known


def test_what_is_wanted_is_not_known_so_nothing_changes_however_quiet_it_is() -> None:
    for before in (WITHDRAWING, RESERVED, RELEASING):
        start = ledger(7, g0=before)
        assert advance_ledger(start, Wanted(8, None), IDLE) is start
        assert advance_ledger(start, Wanted(), IDLE) is start


def test_if_nothing_changes_it_is_the_same_object_and_a_new_generation_is_a_change() -> None:
    start = ledger(1, g0=RESERVED)
    assert advance_ledger(start, wanted(alone(JUDGE, G0)), LISTED) is start
    after = advance_ledger(start, wanted(alone(JUDGE, G0), generation=2), LISTED)
    assert (after.claims, after.generation) == (start.claims, 2)


# --- names of one owner


def test_names_of_one_placement_come_and_go_over_a_gpu_that_stays_reserved() -> None:
    one = ledger(g0=claim("reserved", PLACEMENT, JUDGE))
    both = advance_ledger(one, wanted(together(JUDGE, G0), together(EMBED, G0)), HELD)
    assert both.claims == {G0: claim("reserved", PLACEMENT, EMBED, JUDGE)}
    other = advance_ledger(both, wanted(together(EMBED, G0)), HELD)
    assert other.claims == {G0: claim("reserved", PLACEMENT, EMBED)}


# --- conflicts


def test_a_conflict_gives_every_gpu_of_the_entry_back_and_leaves_the_others() -> None:
    start = ledger(g0=RESERVED, g1=claim("withdrawing", POLICY), g2=claim("reserved", POLICY))
    spec = wanted(alone(JUDGE, G0), alone(POLICY, G1, G2, G3))
    after = advance_ledger(start, spec, replace(LISTED, held=frozenset({G3})))
    assert after.conflicts == {POLICY: G3}
    assert after.claims == {G0: RESERVED, G2: claim("releasing", POLICY)}


def test_a_conflict_is_tried_again_only_at_another_generation() -> None:
    start = ledger(1, {JUDGE: G0})
    assert advance_ledger(start, wanted(alone(JUDGE, G0)), LISTED) is start
    after = advance_ledger(start, wanted(alone(JUDGE, G0), generation=2), LISTED)
    assert (after.conflicts, after.claims) == ({}, {G0: WITHDRAWING})


def test_of_names_over_one_gpu_that_is_held_all_conflict_and_names_beside_it_do_not() -> None:
    start = ledger(g1=claim("reserved", PLACEMENT, JUDGE))
    spec = wanted(together(JUDGE, G1), together(EMBED, G0, G1), together(POLICY, G0))
    after = advance_ledger(start, spec, HELD)
    assert after.conflicts == {EMBED: G0, POLICY: G0}
    assert after.claims == {G1: claim("reserved", PLACEMENT, JUDGE)}


def test_a_gpu_that_the_spec_gives_to_two_owners_goes_to_the_first() -> None:
    after = advance_ledger(ledger(), wanted(alone(JUDGE, G0), together(EMBED, G0, G1)), LISTED)
    assert (after.claims, after.conflicts) == ({G0: WITHDRAWING}, {EMBED: G0})


def test_a_gpu_that_cannot_be_reserved_is_a_conflict_but_one_that_was_reserved_before_it_broke_is_not() -> None:
    lost = replace(IDLE, usable=frozenset({G1}))
    assert advance_ledger(ledger(), wanted(alone(JUDGE, G0)), lost).conflicts == {JUDGE: G0}
    assert advance_ledger(ledger(g0=WITHDRAWING), wanted(alone(JUDGE, G0)), lost).conflicts == {JUDGE: G0}
    assert advance_ledger(ledger(g0=RESERVED), wanted(alone(JUDGE, G0)), lost).claims == {G0: RESERVED}


# --- facts


def test_facts_are_by_gpu_whatever_stands_for_it() -> None:
    hardware = make_hardware(4).mig(1, "1g.10gb").build()
    served = make_config("mixed").mig("mixed").build()
    resources = resources_of(served, hardware)
    listing = advance(Listing(), resources, served, sick={}, held={}, calls_open=frozenset(), now=0.0)
    held = {"nvidia.com/mig-1g.10gb": [mig_uuid(1, 0)], JUDGE: [f"{G2}::0123abcd"], "example.com/nic": ["nic-1"]}
    facts = facts_of(listing, hardware, served, held, {"nvidia.com/gpu": [f"{G3}::1"]}, frozenset())
    assert facts.usable == {G0, G2, G3}
    assert facts.held == {G1, G2, "nic-1"}
    assert facts.listed == ALL
    assert facts.allocatable == {G3}
    gone = facts_of(listing, make_hardware(4).build(), served, held, None, frozenset())
    assert gone.held == {G1, G2, "nic-1"}  # the MIG device is gone and still on our lists
    assert gone.allocatable is None


@pytest.mark.parametrize(
    ("held", "computing", "both"),
    [
        ({"nvidia.com/gpu": [G0]}, frozenset({G1}), frozenset({G0, G1})),
        ({"nvidia.com/gpu": [G0]}, None, None),
        (None, frozenset({G1}), None),
    ],
    ids=["known", "the driver has not answered", "the kubelet has not answered"],
)
def test_a_gpu_is_held_by_who_has_an_id_of_it_and_by_a_process_on_it(
    held: Any, computing: frozenset[str] | None, both: frozenset[str] | None
) -> None:
    assert facts_of(Listing(), INVENTORY, WHOLE, held, None, computing).held == both


@pytest.mark.parametrize(
    ("before", "spec", "moving"),
    [
        pytest.param(ledger(), Wanted(1, None), False, id="nothing is known to be wanted"),
        pytest.param(ledger(), wanted(), False, id="nothing is wanted"),
        pytest.param(ledger(), wanted(alone(JUDGE, G0)), True, id="a shared GPU is wanted"),
        pytest.param(ledger(1, {JUDGE: G0}), wanted(alone(JUDGE, G0, G1)), False, id="it was refused"),
        pytest.param(ledger(1, {JUDGE: G0}), wanted(alone(JUDGE, G0), generation=2), True, id="and is asked for anew"),
        pytest.param(ledger(g0=WITHDRAWING), wanted(alone(JUDGE, G0)), True, id="withdrawing"),
        pytest.param(ledger(g0=RESERVED), wanted(alone(JUDGE, G0)), False, id="reserved"),
        pytest.param(ledger(g0=RELEASING), wanted(), True, id="releasing"),
        pytest.param(ledger(g0=RELEASING), Wanted(1, None), False, id="releasing, and nothing is known"),
    ],
)
def test_when_it_matters_who_has_a_gpu(before: Ledger, spec: Wanted, moving: bool) -> None:
    assert is_moving(before, spec) is moving


@pytest.mark.parametrize(
    ("inventory", "served", "usable"),
    [
        (None, WHOLE, None),
        (INVENTORY, None, None),
        (INVENTORY, SHARES, ALL),
        (INVENTORY, make_config("mps").mps(2).build(), frozenset()),
        (make_hardware(2).change(1, model="DGX Display").build(), WHOLE, frozenset({G0})),
    ],
    ids=["GPUs unknown", "nothing served", "shares", "MPS", "display"],
)
def test_which_gpus_can_be_reserved(inventory: Any, served: Any, usable: frozenset[str] | None) -> None:
    assert facts_of(Listing(), inventory, served, {}, None, frozenset()).usable == usable


# --- what is listed


def test_a_gpu_that_is_not_shared_is_in_no_shared_resource_and_a_resource_without_any_is_left_out() -> None:
    resources = resources_of(SHARES, INVENTORY)
    [left] = shared_part(ledger(g0=WITHDRAWING, g1=RESERVED, g2=RELEASING), resources)
    assert [device.id for device in left.devices] == [f"{G3}::0", f"{G3}::1"]
    assert shared_part(ledger(g0=RESERVED), resources_of(WHOLE, make_hardware(1).build())) == ()
    assert shared_part(ledger(), resources)[0] is resources[0]


def test_reserved_gpus_have_one_id_for_each_name_in_order_of_their_index() -> None:
    book = ledger(g2=claim("reserved", PLACEMENT, EMBED, JUDGE), g1=claim("reserved", POLICY), g0=RELEASING)
    found = reserved_part(replace(book, claims={**book.claims, G3: claim("reserved", POLICY)}), INVENTORY)
    assert {each.name: [(it.id, it.base, it.numa_node) for it in each.devices] for each in found} == {
        EMBED: [(reserved_id(G2, EMBED, PLACEMENT), G2, 1)],
        JUDGE: [(reserved_id(G2, JUDGE, PLACEMENT), G2, 1)],
        POLICY: [(G1, G1, 0), (G3, G3, 1)],
    }
    assert all(each.whole_gpus and not each.mps for each in found)


def test_a_reserved_gpu_that_the_node_lost_stays_listed() -> None:
    [found] = reserved_part(ledger(g0=RESERVED, g1=RESERVED), make_hardware(4).without(0).build())
    assert [device.id for device in found.devices] == [G1, G0]


def test_of_what_was_listed_before_a_restart_names_keep_what_is_reserved_under_them() -> None:
    before = reserved_part(ledger(g0=RESERVED, g1=RESERVED, g2=claim("reserved", POLICY)), INVENTORY)
    now = ledger(g0=RESERVED, g1=RELEASING, g2=claim("reserved", POLICY))
    kept = still_reserved(now, [*resources_of(WHOLE, INVENTORY), *before])
    assert {each.name: [device.id for device in each.devices] for each in kept} == {JUDGE: [G0], POLICY: [G2]}


def test_what_is_shared_of_the_inventory() -> None:
    assert shared_gpus(ledger(), INVENTORY) is INVENTORY
    assert [gpu.uuid for gpu in shared_gpus(ledger(g0=RESERVED, g2=WITHDRAWING), INVENTORY).gpus] == [G1, G3]


# --- a ledger that was lost


def holds(resource: str, *ids: str, pod: str = "web") -> PodDevices:
    return PodDevices("team", pod, "main", resource, ids)


def test_a_lost_ledger_is_made_of_what_pods_hold_under_names_of_placements() -> None:
    ids = [reserved_id(G2, name, PLACEMENT) for name in (EMBED, POLICY)]
    pods = [
        holds("nvidia.com/gpu", G3),
        holds(JUDGE, G0, G1),
        holds(JUDGE, G0, pod="twice"),
        holds(EMBED, ids[0]),
        holds(POLICY, ids[1]),
    ]
    found = rebuilt(pods)
    assert found.claims == {G0: RESERVED, G1: RESERVED, G2: claim("reserved", UNKNOWN_OWNER, EMBED, POLICY)}
    assert found.generation is None
    assert {each.name: [it.id for it in each.devices] for each in reserved_part(found, INVENTORY)} == {
        JUDGE: [G0, G1],
        EMBED: [ids[0]],
        POLICY: [ids[1]],
    }


def test_whose_a_rebuilt_gpu_is_says_the_first_spec_that_names_it_under_one_of_its_names() -> None:
    start = rebuilt([holds(EMBED, reserved_id(G2, EMBED, PLACEMENT))])
    busy = replace(LISTED, held=frozenset({G2}))
    adopted = advance_ledger(start, wanted(together(EMBED, G2), together(JUDGE, G2)), busy)
    assert adopted.claims == {G2: claim("reserved", PLACEMENT, EMBED, JUDGE)}
    assert advance_ledger(start, wanted(together(JUDGE, G2)), busy).claims[G2].state == "releasing"
    assert advance_ledger(start, wanted(), busy).claims[G2].state == "releasing"
