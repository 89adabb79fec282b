"""What an earlier plan bound stays where it is, as long as it can."""

import pytest
from tests.support.planning import (
    Wire,
    inventory,
    messages,
    node,
    picture,
    planned,
    pool,
    refused,
    service,
    shaped,
    spec,
)

from gpusharing.core.placement.plan import Plan
from gpusharing.core.placement.request import Bound

TWO = inventory(node("n"), node("m"))


def _where(plan: Plan) -> dict[str, str]:
    """Slot and node of each slot."""
    return {slot.name: slot.node for slot in plan.slots}


def _why(plan: Plan) -> dict[str, str]:
    return {each.name: each.why for each in plan.services}


def test_a_bound_service_keeps_its_gpus_though_others_come_before_it() -> None:
    wanted = spec(pool("auto", None), service("new", 1), service("old", 2))
    plan = planned(wanted, TWO, Bound("old", "n", (0, 1)))
    assert picture(plan) == {"gpu/0": "new 2 | old 0,1"}
    assert _why(plan) == {"new": "planned", "old": "bound"}


def test_a_bound_service_is_no_pin_where_it_is_the_only_tenant() -> None:
    (slot,) = planned(spec(pool("auto", None), service("old", 2)), TWO, Bound("old", "n", (2, 3))).slots
    assert (slot.node, slot.exported) == ("n", ())


@pytest.mark.parametrize(
    ("wanted", "bound"),
    [
        (service("a", 2), [Bound("a", "gone", (0, 1))]),
        (service("a", 2), [Bound("a", "n", (0, 9))]),
        (service("a", 2), [Bound("a", "n", (0, 0))]),
        (service("a", 3), [Bound("a", "n", (2, 3))]),
        (service("a", 2), [Bound("a", "n", (2,)), Bound("a", "m", (2,))]),
        (service("a", visibleDevices="0,1"), [Bound("a", "n", (2, 3))]),
        (service("a", 6), [Bound("a", "n", (0, 1, 2, 3))]),
        (service("a", 6), [Bound("a", "n", (0, 1, 2, 3)), Bound("a", "n", (0, 1, 2, 3))]),
        (shaped("a", 2, 2, split="instances"), [Bound("a", "n", (0,)), Bound("a", "m", (0, 1, 2))]),
        (shaped("a", 1, 2, split="instances"), [Bound("a", "n", (3,))]),
    ],
    ids=[
        "its node is gone",
        "a GPU is gone",
        "a GPU twice",
        "too few",
        "in pieces",
        "pinned elsewhere",
        "a node is missing",
        "a node twice",
        "half an instance",
        "an instance is missing",
    ],
)
def test_what_no_longer_fits_is_planned_anew(wanted: Wire, bound: list[Bound]) -> None:
    request = spec(pool("auto", None), wanted)
    assert picture(planned(request, TWO, *bound)) == picture(planned(request, TWO))


def test_of_two_that_are_bound_to_one_gpu_the_first_keeps_it() -> None:
    wanted = spec(pool("auto", None), service("a", 2), service("b", 2))
    plan = planned(wanted, TWO, Bound("a", "n", (1, 2)), Bound("b", "n", (2, 3)))
    assert picture(plan) == {"gpu/0": "a 1,2 | b 0,3"}


def test_a_cordoned_node_keeps_what_is_bound_and_gets_nothing_new() -> None:
    known = inventory(node("m", schedulable=False), node("n"))
    plan = planned(spec(pool("auto", None), service("new", 1), service("old", 2)), known, Bound("old", "m", (0, 1)))
    assert {slot.node: [each.service for each in slot.assigned] for slot in plan.slots} == {"m": ["old"], "n": ["new"]}
    assert [slot.free for slot in plan.slots if slot.node == "m"] == [()]


def test_a_sick_gpu_or_one_in_use_moves_nobody() -> None:
    known = inventory(node("n", "0!1*23"), node("m"))
    plan = planned(spec(pool("auto", None), service("old", 2), service("new", 2)), known, Bound("old", "n", (0, 1)))
    assert picture(plan) == {"gpu/0": "old 0,1 | new 2,3"}


def test_more_bound_nodes_than_the_pool_may_open_are_let_go() -> None:
    wanted = spec(pool(1, None), service("a", 1), service("b", 1))
    plan = planned(wanted, TWO, Bound("a", "n", (3,)), Bound("b", "m", (3,)))
    assert picture(plan) == {"gpu/0": "a 3 | b 0"}


def test_a_slot_keeps_its_node_though_another_sorts_before_it() -> None:
    wanted = spec(pool(2, None), service("old", 3), service("new", 3))
    assert _where(planned(wanted, TWO, Bound("old", "n", (0, 1, 2)))) == {"gpu/0": "m", "gpu/1": "n"}
    assert _where(planned(wanted, TWO, Bound("old", "n", (0, 1, 2), "gpu/0"))) == {"gpu/0": "n", "gpu/1": "m"}


def test_ranks_keep_their_nodes() -> None:
    known = inventory(node("a"), node("m"), node("n"))
    wanted = spec(pool("auto", None), service("new", 4), service("old", 8))
    bound = [Bound("old", "m", (0, 1, 2, 3), "gpu/0"), Bound("old", "n", (0, 1, 2, 3), "gpu/1")]
    plan = planned(wanted, known, *bound)
    assert _where(plan) == {"gpu/0": "m", "gpu/1": "n", "gpu/2": "a"}
    assert [each.slots for each in plan.services] == [("gpu/2",), ("gpu/0", "gpu/1")]


def test_the_lead_stays_on_the_slot_that_it_is_bound_to() -> None:
    wanted = spec(pool(2, None), service("a", 3), service("lead", 2), lead="lead")
    plan = planned(wanted, TWO, Bound("lead", "n", (0, 1), "gpu/1"), Bound("a", "m", (0, 1, 2), "gpu/0"))
    assert plan.lead_slot == "gpu/1"


def test_a_slot_number_that_two_nodes_claim_goes_to_the_first() -> None:
    wanted = spec(pool(2, None), service("a", 3), service("b", 3))
    plan = planned(wanted, TWO, Bound("a", "n", (0, 1, 2), "gpu/0"), Bound("b", "m", (0, 1, 2), "gpu/0"))
    assert _where(plan) == {"gpu/0": "n", "gpu/1": "m"}


def test_a_tier_a_tail_and_instances_stay_too() -> None:
    known = inventory(*(node(name) for name in "abcdef"))
    wanted = spec(
        pool("auto", None, maxNodes=8),
        service("first", 2),
        service("tier", 2, exclusiveNodes=True),
        service("tail", 6, span="tail"),
        shaped("split", 1, 2, split="instances"),
    )
    bound = [
        Bound("tier", "f", (0, 1, 2, 3)),
        Bound("tail", "e", (0, 1, 2, 3)),
        Bound("tail", "d", (2, 3)),
        Bound("split", "d", (1,)),
        Bound("split", "c", (1,)),
    ]
    plan = planned(wanted, known, *bound)
    there = {slot.node: {each.service: each.indexes for each in slot.assigned} for slot in plan.slots}
    assert {(each.service, each.node): each.indexes for each in bound} == {
        (service, node): indexes
        for node, assigned in there.items()
        for service, indexes in assigned.items()
        if service != "first"
    }
    ranks = {slot.node: each.rank for slot in plan.slots if (each := slot.of("tail"))}
    assert ranks == {"e": 0, "d": 1}


def test_an_even_spread_stays_as_it_is() -> None:
    known = inventory(node("a"), node("m"), node("n"))
    wanted = spec(pool(2, None), service("new", 1), shaped("dp", 1, 4, distribute="evenly"))
    plan = planned(wanted, known, Bound("dp", "n", (2, 3)), Bound("dp", "m", (1, 2)))
    assert {slot.node: each.indexes for slot in plan.slots if (each := slot.of("dp"))} == {"n": (2, 3), "m": (1, 2)}


def test_a_run_time_pin_stays_on_its_node() -> None:
    wanted = spec(pool(1, None), service("a", 2, visibleDevicesFromEnv="MINE"))
    (slot,) = planned(wanted, TWO, Bound("a", "n", ())).slots
    assert (slot.node, slot.free, slot.exported) == ("n", (), ("a",))


def test_fractions_stay_and_leave_the_rest_of_their_gpu_to_others() -> None:
    cut = pool(1, None, sharing={"replicas": 10})
    wanted = spec(cut, service("new", 1, fraction="50%"), service("old", 1, fraction="50%"))
    plan = planned(wanted, inventory(node("n")), Bound("old", "n", (3,)))
    assert picture(plan) == {"gpu/0": "new 3 | old 3"}


def test_a_pin_on_a_bound_gpu_finds_no_place() -> None:
    wanted = spec(pool(1, None), service("new", visibleDevices="0"), service("old", 1))
    assert messages(refused(wanted, inventory(node("n")), Bound("old", "n", (0,))))[0].startswith("Unplaceable")


def test_what_is_bound_without_an_inventory_is_planned_anew() -> None:
    wanted = spec(pool(), service("a", 1))
    assert picture(planned(wanted, None, Bound("a", "n", (3,)))) == {"gpu/0": "a 0"}


def test_an_empty_slot_of_a_fixed_pool_keeps_its_node() -> None:
    known = inventory(node("a"), node("m"), node("n"))
    wanted = spec(pool(2, None), service("old", 2), service("rest", leftover={}))
    bound = [Bound("old", "m", (0, 1), "gpu/0"), Bound("rest", "n", (0, 1, 2, 3), "gpu/1")]
    assert _where(planned(wanted, known, *bound)) == {"gpu/0": "m", "gpu/1": "n"}


def test_what_takes_the_rest_keeps_what_it_had_and_no_more() -> None:
    """Whatever has become free since is for a new plan, which `gpusharing.io/rebalance` asks for."""
    wanted = spec(pool(2, None), service("rest", leftover={}), service("old", 1), service("new", 1))
    plan = planned(wanted, TWO, Bound("old", "n", (0,)), Bound("rest", "n", (2,), "gpu/0"))
    assert picture(plan) == {"gpu/0": "rest 2 | old 0 | new 1", "gpu/1": ""}
    assert [slot.free for slot in plan.slots] == [(3,), (0, 1, 2, 3)]


def test_what_takes_the_rest_gives_up_what_the_others_need_and_of_its_own_the_last() -> None:
    known = inventory(node("n", "01234567"))
    wanted = spec(pool(1, None), service("new", 4), service("rest", leftover={}))
    assert picture(planned(wanted, known, Bound("rest", "n", (0, 1, 2, 3, 4)))) == {
        "gpu/0": "new 0,5,6,7 | rest 1,2,3,4"
    }
    cut = pool(1, None, sharing={"replicas": 2})
    wanted = spec(cut, *(service(f"s{n}", 1, fraction="100%") for n in range(4)), service("rest", leftover={}))
    assert picture(planned(wanted, known, Bound("rest", "n", (0, 1, 2, 3, 4))))["gpu/0"].endswith(
        "| s3 0 | rest 1,2,3,4"
    )


def test_what_takes_the_rest_is_planned_anew_where_it_has_less_than_it_needs() -> None:
    wanted = spec(pool(1, None), service("a", 1), service("rest", leftover={"min": 2}))
    plan = planned(wanted, inventory(node("n")), Bound("a", "n", (3,)), Bound("rest", "n", (1,)))
    assert picture(plan) == {"gpu/0": "a 3 | rest 0,1,2"}


def test_what_takes_the_rest_gives_way_to_what_is_bound() -> None:
    wanted = spec(pool(1, None), service("rest", leftover={}), service("a", 2))
    plan = planned(wanted, inventory(node("n")), Bound("rest", "n", (1, 2)), Bound("a", "n", (2, 3)))
    assert picture(plan) == {"gpu/0": "rest 0,1 | a 2,3"}


def test_nobody_stays_on_a_node_that_a_tier_is_bound_to() -> None:
    tier = service("tier", visibleDevices="0,1", exclusiveNodes=True)
    wanted = spec(pool("auto", None), tier, service("b", 1), service("new", 1))
    plan = planned(wanted, TWO, Bound("tier", "n", (0, 1)), Bound("b", "n", (2,)))
    assert {slot.node: [each.service for each in slot.assigned] for slot in plan.slots} == {
        "n": ["tier"],
        "m": ["b", "new"],
    }


def test_the_lower_bound_counts_bound_gpus_though_they_are_sick() -> None:
    known = inventory(node("n", "0!1!23"), node("m", "01"))
    plan = planned(spec(pool("auto", None), service("old", 2), service("new", 2)), known, Bound("old", "n", (0, 1)))
    assert (plan.pools[0].lower_bound, plan.pools[0].nodes_resolved) == (1, 1)
