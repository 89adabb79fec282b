"""The exact search: what it finds, how much it tries, and that its limit is silent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.placementmixes import MIXES, mixed
from tests.support.planning import Wire, inventory, node, picture, planned, pool, refused, service, shaped, spec

from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.core.placement.algorithms import exact
from gpusharing.core.placement.demand import demands
from gpusharing.core.placement.pieces import in_order, job_of
from gpusharing.core.placement.plan import Search
from gpusharing.core.placement.pools import space
from gpusharing.core.placement.rooms import Rooms

# The lead first costs a node: 1 + 5, 4 + 3, 3 instead of 1 + 4 + 3, 5 + 3.
LEAD_FIRST = [service(f"s{at}", size) for at, size in enumerate((1, 5, 4, 3, 3))]


def _search(*services: Wire, **more: object) -> Search:
    found = planned(spec(pool("auto", 8, maxNodes=16), *services, **more)).pools[0].search
    assert found
    return found


def test_nothing_is_searched_where_first_fit_decreasing_meets_the_lower_bound() -> None:
    found = _search(service("a", 8), service("b", 5), service("c", 3))
    assert (found.searched, found.trials) == (False, 0)


@pytest.mark.parametrize(
    ("sizes", "trials"), [((1, 5, 4, 3, 3), 7), ((1, 6, 5, 2, 2), 7), ((2, 3, 3, 3, 5, 8), 10)], ids=str
)
def test_the_number_of_places_that_are_tried_is_known(sizes: tuple[int, ...], trials: int) -> None:
    found = _search(*[service(f"s{at}", size) for at, size in enumerate(sizes)], lead="s0")
    assert (found.searched, found.trials, found.limit_reached) == (True, trials, False)


# Of twelve seeds each: the most places that one search tried, the nodes that were won back, how many are not proven.
SEARCHES = {"LLM-like": (0, 0, 0), "uniform 1-8": (89, 1, 0), "uniform 1-16": (114, 0, 0), "3-7": (203, 6, 0)}


@pytest.mark.parametrize("mix", MIXES)
def test_a_search_among_forty_services_stays_as_short_as_it_is(mix: str) -> None:
    most = won = unproven = 0
    for seed in range(10, 22):
        found = planned(mixed(mix, seed)).pools[0]
        assert found.search
        most = max(most, found.search.trials)
        won += found.search.ffd_nodes - found.nodes_resolved
        unproven += not found.proven_minimal
    assert (most, won, unproven) == SEARCHES[mix]


@pytest.mark.parametrize(
    ("trials", "found", "spent"), [(7, True, 7), (6, False, 6), (0, False, 0)], ids=["enough", "one too few", "none"]
)
def test_at_the_limit_the_search_ends_without_a_plan(trials: int, found: bool, spent: int) -> None:
    ended = _searched(spec(pool("auto", 8), *LEAD_FIRST, lead="s0"), trials)
    assert (ended.packing is not None, ended.limit_reached, ended.trials) == (found, not found, spent)


def _searched(wanted: PlacementSpec, trials: int) -> exact.Found:
    return _search_at(wanted, None, range(2, 3), trials)


def _search_at(
    wanted: PlacementSpec, known: Inventory | None, counts: range, trials: int = exact.MAX_TRIALS
) -> exact.Found:
    room = space(wanted.pools[0], "declared", known)
    assert room
    jobs = in_order([job_of(each, room, wanted.lead) for each in demands(wanted)])
    rooms = Rooms(room, [piece for job in jobs for piece in job.pieces], {})
    return exact.search(room, rooms, jobs, counts, lambda _: True, trials)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.lists(st.sampled_from(["0123", "012345", "01234567", "0*1*23", "012*345"]), min_size=1, max_size=5),
)
def test_what_it_leaves_out_never_changes_the_plan_that_is_found(sizes: list[int], nodes: list[str]) -> None:
    """Section 6.5 of the guide without any short cut: the first plan, in the order in which places are tried."""
    known = inventory(*(node(f"n{at}", gpus) for at, gpus in enumerate(nodes)))
    wanted = spec(pool("auto", None), *[service(f"s{at}", size) for at, size in enumerate(sizes)])
    free = [len(gpus) - 2 * gpus.count("*") for gpus in nodes]
    order = sorted(range(len(sizes)), key=lambda at: (-sizes[at], at))
    if max(sizes) > max(len(gpus.replace("*", "")) for gpus in nodes):
        return
    want = next(
        (plan for count in range(1, len(nodes) + 1) if (plan := _first(order, sizes, free, {}, count)) is not None),
        None,
    )
    found = _search_at(wanted, known, range(1, len(nodes) + 1)).packing
    got = found and {piece.service: at for at, pieces in found.pieces().items() for piece in pieces}
    assert got == want


def _first(
    order: list[int], sizes: list[int], free: list[int], places: dict[int, int], count: int
) -> dict[int, int] | None:
    """The first way to place the services: on opened nodes, then on others, as long as fewer than `count` are open."""
    if not order:
        return places
    opened = list(dict.fromkeys(places.values()))
    others = [at for at in range(len(free)) if at not in opened] if len(opened) < count else []
    for at in (*opened, *others):
        if free[at] >= sizes[order[0]]:
            left = [*free[:at], free[at] - sizes[order[0]], *free[at + 1 :]]
            if (found := _first(order[1:], sizes, left, {**places, order[0]: at}, count)) is not None:
                return found
    return None


def test_at_the_limit_the_plan_of_first_fit_decreasing_stays_and_nothing_is_proven() -> None:
    many = [service(f"s{at}", 3) for at in range(exact.MAX_SERVICES + 1)]
    found = planned(spec(pool("auto", 8, maxNodes=64), *many)).pools[0]
    assert found.search
    assert (found.nodes_resolved, found.lower_bound, found.proven_minimal) == (21, 16, False)
    assert (found.search.limit_reached, found.search.trials) == (True, 0)


def test_a_thousand_instances_are_too_many_to_search_and_are_placed_all_the_same() -> None:
    wanted = spec(pool("auto", 8, maxNodes=256), shaped("a", 3, 500, split="instances"))
    found = planned(wanted).pools[0]
    assert (found.nodes_resolved, found.proven_minimal) == (250, False)


def test_the_search_leaves_what_the_leftovers_need_at_least() -> None:
    want = spec(pool("auto", 8), *LEAD_FIRST, service("rest", leftover={"min": 1}), lead="s0")
    assert planned(want).pools[0].nodes_resolved == 3
    none_left = [*LEAD_FIRST[:-1], service("s4", 2), service("rest", leftover={"min": 1})]
    assert planned(spec(pool("auto", 8), *none_left, lead="s0")).pools[0].nodes_resolved == 2


def test_a_fixed_pool_is_searched_only_where_something_found_no_room() -> None:
    three = planned(spec(pool(3, 8), *LEAD_FIRST, lead="s0"))
    assert three.pools[0].search
    assert not three.pools[0].search.searched
    two = planned(spec(pool(2, 8), *LEAD_FIRST, lead="s0"))
    assert picture(two) == {"gpu/0": "s0 0 | s2 1,2,3,4 | s3 5,6,7", "gpu/1": "s1 0,1,2,3,4 | s4 5,6,7"}
    assert (two.pools[0].lower_bound, two.pools[0].proven_minimal) == (None, None)


def test_whole_nodes_tails_and_instances_are_searched_too() -> None:
    services = [
        *LEAD_FIRST[:3],
        shaped("split", 3, 2, split="instances"),
        service("tier", 8, exclusiveNodes=True),
        service("long", 16, span="tail"),
    ]
    wanted = spec(pool("auto", 8), *services, lead="s0")
    ffd = planned(wanted.model_copy(update={"algorithm": "ffd"})).pools[0]
    found = planned(wanted).pools[0]
    assert (ffd.nodes_resolved, found.nodes_resolved, found.lower_bound) == (6, 5, 5)


def test_pins_by_uuid_stay_on_their_nodes_however_others_are_searched_for() -> None:
    known = inventory(node("a", "01234567"), node("b", "01234567"), node("c", "01234567"))
    twins = [service(f"pin{name}", visibleDevices=f"GPU-{name}0") for name in "cb"]
    others = [service(f"s{at}", size) for at, size in enumerate((1, 4, 3, 3, 3))]
    plan = planned(spec(pool("auto", None), *twins, *others, lead="s0"), known)
    assert plan.pools[0].search
    assert (plan.pools[0].search.ffd_nodes, plan.pools[0].nodes_resolved) == (3, 2)
    assert {slot.node: slot.assigned[0].indexes for slot in plan.slots} == {"b": (0,), "c": (0,)}
    assert {slot.node: slot.assigned[0].service for slot in plan.slots} == {"b": "pinb", "c": "pinc"}


def test_one_idle_node_is_found_behind_two_busy_ones() -> None:
    busy = [node(name, "0*1*23") for name in "ab"]
    wanted = spec(pool("auto", None), service("a", 2), service("b", 2))
    (slot,) = planned(wanted, inventory(*busy, node("c"))).slots
    assert slot.node == "c"


def test_services_that_no_search_can_place_are_told_as_first_fit_decreasing_left_them() -> None:
    refusal = refused(spec(pool(2, 8), *[service(name, 5) for name in "abc"]))
    assert refusal.errors[0].services == ("c",)
    assert refusal.pools[0].search
    assert refusal.pools[0].search.ffd_unplaced == ("c",)


def test_a_plan_of_fewer_nodes_gives_way_where_a_node_would_have_too_many_names() -> None:
    known = inventory(node("m"), node("n", "01234"), node("o", "012345", names=31))
    plan = planned(spec(pool("auto", None), service("a", 1), service("b", 5)), known)
    assert {slot.node for slot in plan.slots} == {"m", "n"}
    assert not plan.pools[0].proven_minimal
