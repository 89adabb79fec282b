"""How far each reservation is said to be."""

from dataclasses import replace
from typing import Any

from tests.support.hardware import gpu_uuid, make_config, make_hardware

from gpusharing.core.ledger import Claim, Ledger, reserved_part, shared_part
from gpusharing.core.listing import Listing, advance
from gpusharing.core.reservationreport import confirmed_names, reservation_reports
from gpusharing.core.reservations import Reservation, Wanted
from gpusharing.core.resources import resources_of

INVENTORY = make_hardware(4).build()
SERVED = make_config("whole").build()
G0, G1, G2, G3 = (gpu_uuid(n) for n in range(4))
JUDGE, POLICY = "place.gpusharing.io/judge.p.team", "place.gpusharing.io/policy.p.team"
BOTH = Ledger(
    {G0: Claim("reserved", JUDGE, (JUDGE,)), **{g: Claim("reserved", POLICY, (POLICY,)) for g in (G1, G2)}}, {}, 3
)
SPEC = Wanted(3, (Reservation(JUDGE, JUDGE, (G0,)), Reservation(POLICY, POLICY, (G1, G2))))


def listed(ledger: Ledger, before: Listing = Listing(), **options: Any) -> Listing:  # noqa: B008
    wanted = (*shared_part(ledger, resources_of(SERVED, INVENTORY)), *reserved_part(ledger, INVENTORY))
    known: dict[str, Any] = {"sick": {}, "held": {}, "calls_open": frozenset(), "now": 0.0, **options}
    return advance(before, wanted, SERVED, **known)


ALLOCATABLE = {JUDGE: {G0}, POLICY: {G1, G2}, "nvidia.com/gpu": {G3}}
NONE: frozenset[str] = frozenset()
CONFIRMED = confirmed_names({}, listed(BOTH), {JUDGE, POLICY}, ALLOCATABLE, NONE)


def states(ledger: Ledger, wanted: Wanted, listing: Listing, confirmed: Any = CONFIRMED) -> dict[str, str]:
    return {row.resource: row.state for row in reservation_reports(ledger, wanted, listing, {}, confirmed)}


# --- what the kubelet confirms


def test_a_name_is_confirmed_with_a_stream_and_every_healthy_id_of_it() -> None:
    assert dict(CONFIRMED) == {JUDGE: {G0}, POLICY: {G1, G2}}
    assert confirmed_names({}, listed(BOTH), {POLICY}, ALLOCATABLE, NONE).keys() == {POLICY}
    assert confirmed_names({}, listed(BOTH), {JUDGE, POLICY}, {POLICY: {G1}}, NONE) == {}


def test_while_the_kubelets_word_is_not_known_what_it_confirmed_of_the_same_ids_holds() -> None:
    assert confirmed_names(CONFIRMED, listed(BOTH), {JUDGE, POLICY}, None, NONE) == CONFIRMED
    assert confirmed_names({}, listed(BOTH), {JUDGE, POLICY}, None, NONE) == {}
    more = replace(BOTH, claims={**BOTH.claims, G3: Claim("reserved", JUDGE, (JUDGE,))})
    assert confirmed_names(CONFIRMED, listed(more), {JUDGE, POLICY}, None, NONE).keys() == {POLICY}


def test_an_id_of_a_broken_gpu_need_not_be_confirmed_and_one_that_is_withheld_must_not() -> None:
    sick = listed(BOTH, sick={G2: "XID 79"})
    assert confirmed_names({}, sick, {POLICY}, {POLICY: {G1}}, NONE).keys() == {POLICY}
    withheld = listed(BOTH, held={"nvidia.com/gpu": frozenset({G1})})
    assert withheld.lists[POLICY][G1].state == "withheld"
    assert confirmed_names({}, withheld, {POLICY}, {POLICY: {G2}}, NONE) == {}


def test_a_name_with_a_gpu_that_could_not_be_reserved_any_more_is_one_that_no_pod_gets_as_a_whole() -> None:
    listing = listed(BOTH, sick={G2: "in MIG mode"})
    assert confirmed_names(CONFIRMED, listing, {JUDGE, POLICY}, None, {G2}).keys() == {JUDGE}
    assert confirmed_names({}, listing, {JUDGE, POLICY}, {JUDGE: {G0}, POLICY: {G1}}, {G2}).keys() == {JUDGE}


# --- states


def test_active_is_a_name_with_all_its_gpus_reserved_and_confirmed() -> None:
    assert states(BOTH, SPEC, listed(BOTH)) == {JUDGE: "Active", POLICY: "Active"}
    assert states(BOTH, SPEC, listed(BOTH), {JUDGE: {G0}}) == {JUDGE: "Active", POLICY: "Withdrawing"}
    partly = replace(BOTH, claims={**BOTH.claims, G2: Claim("withdrawing", POLICY, (POLICY,))})
    assert states(partly, SPEC, listed(partly)) == {JUDGE: "Active", POLICY: "Withdrawing"}
    assert states(Ledger(), SPEC, Listing()) == {JUDGE: "Withdrawing", POLICY: "Withdrawing"}


def test_a_conflict_names_the_gpu_that_was_taken() -> None:
    [judge, policy] = reservation_reports(Ledger({}, {POLICY: G2}, 3), SPEC, Listing(), {}, {})
    assert (policy.state, policy.taken, policy.gpus) == ("Conflict", G2, [G1, G2])
    assert (judge.state, judge.taken) == ("Withdrawing", None)


def test_what_is_no_longer_wanted_is_releasing_until_its_ids_have_left() -> None:
    leaving = replace(BOTH, claims={**BOTH.claims, G0: Claim("releasing", JUDGE, (JUDGE,))})
    spec = replace(SPEC, reservations=SPEC.reservations[1:] if SPEC.reservations else ())
    rows = reservation_reports(leaving, spec, listed(leaving, listed(BOTH)), {JUDGE: [G0]}, CONFIRMED)
    assert [(row.resource, row.state, row.gpus, row.in_use) for row in rows] == [
        (JUDGE, "Releasing", [G0], 1),
        (POLICY, "Active", [G1, G2], 0),
    ]


def test_a_name_with_other_gpus_than_before_says_which_of_those_have_not_left() -> None:
    claims = {G0: Claim("releasing", JUDGE, (JUDGE,)), G3: Claim("reserved", JUDGE, (JUDGE,))}
    moved = Ledger(claims, {}, 4)
    spec = Wanted(4, (Reservation(JUDGE, JUDGE, (G3,)),))
    rows = reservation_reports(moved, spec, listed(moved, listed(BOTH)), {JUDGE: [G0]}, {})
    assert [(row.gpus, row.releasing) for row in rows if row.resource == JUDGE] == [([G3], [G0])]


def test_a_name_whose_gpus_stay_with_its_owner_is_releasing_while_it_is_listed() -> None:
    shared = Ledger({G0: Claim("reserved", "team/p", (JUDGE, POLICY))}, {}, 3)
    after = Ledger({G0: Claim("reserved", "team/p", (POLICY,))}, {}, 4)
    spec = Wanted(4, (Reservation(POLICY, "team/p", (G0,)),))
    assert states(after, spec, listed(after, listed(shared)), {})[JUDGE] == "Releasing"


def test_before_the_api_server_answers_the_ledger_says_what_was_wanted() -> None:
    assert states(BOTH, Wanted(), listed(BOTH)) == {JUDGE: "Active", POLICY: "Active"}
    book = Ledger({G0: Claim("releasing", JUDGE, (JUDGE,))}, {POLICY: G1}, 3)
    assert states(book, Wanted(), Listing()) == {JUDGE: "Releasing", POLICY: "Conflict"}
