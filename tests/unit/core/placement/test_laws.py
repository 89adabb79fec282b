"""The laws of the placement guide, section 6.9, on random placements."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.planning import Wire, inventories, odd_specs, specs

from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.core.placement.demand import Demand, demands
from gpusharing.core.placement.document import document
from gpusharing.core.placement.plan import Assignment, Outcome, Plan, Refusal, Slot
from gpusharing.core.placement.planner import place
from gpusharing.core.placement.request import Bound, Request

COMPAT = st.sampled_from([None, "gym"])
MAYBE_INVENTORY = st.none() | inventories()
SOME = settings(deadline=None, max_examples=40)


def _place(wanted: Wire, known: Wire | None = None, bound: tuple[Bound, ...] = (), compat: Any = None) -> Outcome:
    inventory = None if known is None else Inventory.model_validate(known)
    return place(Request(PlacementSpec.model_validate(wanted), bound=bound, compat=compat), inventory)


def _demands(wanted: Wire) -> dict[str, Demand]:
    return {each.name: each for each in demands(PlacementSpec.model_validate(wanted))}


def _shares_taken(slot: Slot, wanted: dict[str, Demand], replicas: int) -> dict[int, int]:
    """Shares of each GPU that owners have."""
    taken: dict[int, int] = {}
    for each in slot.assigned:
        if wanted[each.service].owner:
            for index in each.indexes:
                taken[index] = taken.get(index, 0) + (replicas if each.shares is None else each.shares)
    return taken


def _replicas(wanted: Wire) -> int:
    return PlacementSpec.model_validate(wanted).pools[0].sharing.replicas


@SOME
@given(odd_specs(), MAYBE_INVENTORY, COMPAT)
def test_whatever_is_asked_there_is_a_plan_or_an_error_and_twice_the_same(
    wanted: Wire, known: Wire | None, compat: Any
) -> None:
    first, second = _place(wanted, known, compat=compat), _place(wanted, known, compat=compat)
    assert document(first) == document(second)
    assert isinstance(first, Plan) or (first.errors and first.exit in {2, 3})


@SOME
@given(specs(), MAYBE_INVENTORY, COMPAT)
def test_a_plan_gives_each_service_gpus_of_its_own_in_one_piece(wanted: Wire, known: Wire | None, compat: Any) -> None:
    outcome = _place(wanted, known, compat=compat)
    if not isinstance(outcome, Plan):
        return
    services = _demands(wanted)
    free = None if known is None else _free(wanted, known)
    for slot in outcome.slots:
        _no_gpu_is_given_away_twice(slot, services, _replicas(wanted))
        used = {index for each in slot.assigned for index in each.indexes} | set(slot.free)
        assert free is None or {(slot.node, index) for index in used} <= free
    for demand in services.values():
        there = [each for slot in outcome.slots if (each := slot.of(demand.name))]
        if demand.owner:
            assert not demand.pins or all(each.indexes == demand.pins for each in there)
        if demand.gpus_needed and not demand.from_env and not outcome.pools[0].skipped:
            _is_what_it_needs_and_not_split(demand, there, max(len(slot.gpus) for slot in outcome.slots))


def _no_gpu_is_given_away_twice(slot: Slot, services: dict[str, Demand], replicas: int) -> None:
    taken = _shares_taken(slot, services, replicas)
    assert all(shares <= replicas for shares in taken.values())
    assert not set(taken) & set(slot.free)
    for each in slot.assigned:
        assert len(set(each.indexes)) == len(each.indexes)


def _free(wanted: Wire, known: Wire) -> set[tuple[str, int]]:
    """GPUs that nobody uses, on nodes that take something new."""
    return {
        (node["name"], gpu["index"])
        for node in known["nodes"]
        for gpu in node["gpus"]
        if node.get("ready", True) and node.get("schedulable", True)
        if gpu.get("healthy", True) and not gpu.get("migMode") and not gpu.get("inUse") and not gpu.get("reservedBy")
        if gpu["index"] not in wanted["pools"][0].get("reserved", [])
    }


def _is_what_it_needs_and_not_split(demand: Demand, there: list[Assignment], largest: int) -> None:
    given_away = sum(len(each.indexes) for each in there)
    spread = demand.evenly or demand.split
    whole = demand.exclusive or (demand.gpus_needed > largest and not spread)
    assert given_away == demand.gpus_needed or (whole and given_away > demand.gpus_needed)
    assert len(there) == 1 or whole or spread
    if demand.split:
        assert all(len(each.indexes) % demand.per_instance == 0 for each in there)
    if demand.evenly:
        assert {len(each.indexes) for each in there} == {demand.gpus_needed // len(there)}


@SOME
@given(specs(), MAYBE_INVENTORY)
def test_leftovers_are_all_that_the_others_leave(wanted: Wire, known: Wire | None) -> None:
    others = [each for each in wanted["services"] if "leftover" not in each]
    without = _place({**wanted, "services": others}, known)
    with_leftover = _place({**wanted, "services": [*others, {"name": "rest", "leftover": {}}]}, known)
    if not isinstance(with_leftover, Plan) or not isinstance(without, Plan):
        return
    assert not any(slot.free for slot in with_leftover.slots)
    if without.pools[0].search and not without.pools[0].search.searched:
        rest = {slot.name: own.indexes for slot in with_leftover.slots if (own := slot.of("rest"))}
        assert rest == {slot.name: slot.free for slot in without.slots if slot.free}


@SOME
@given(specs(), MAYBE_INVENTORY)
def test_the_search_never_opens_more_nodes_and_places_whatever_ffd_places(wanted: Wire, known: Wire | None) -> None:
    ffd, exact = (_place({**wanted, "algorithm": each}, known) for each in ("ffd", "exact"))
    if isinstance(ffd, Refusal):
        return
    assert isinstance(exact, Plan)
    (one,), (other,) = ffd.pools, exact.pools
    assert other.nodes_resolved <= one.nodes_resolved
    assert other.lower_bound == one.lower_bound
    assert (other.lower_bound or 0) <= other.nodes_resolved
    if other.nodes_resolved == one.nodes_resolved:
        assert exact.slots == ffd.slots


@SOME
@given(specs(), specs(), st.randoms(use_true_random=False))
def test_another_pool_changes_nothing_nor_does_the_order_of_its_services(
    wanted: Wire, other: Wire, random: Any
) -> None:
    alone = _place(wanted)
    pools = [wanted["pools"][0], {**other["pools"][0], "name": "aux"}]
    ours = [{**each, "pool": "gpu"} for each in wanted["services"]]
    theirs = [
        {**each, "name": f"x{each['name']}", "pool": "aux", **({"shareWith": "xa"} if "shareWith" in each else {})}
        for each in other["services"]
    ]
    shuffled = random.sample(theirs, len(theirs))
    for order in ([*ours, *theirs], [*ours, *shuffled], [*shuffled, *ours]):
        both = _place({**wanted, "pools": pools, "services": order})
        if isinstance(both, Refusal):
            ours_wrong = [each for each in both.errors if each.pool == "gpu"]
            assert ours_wrong == ([] if isinstance(alone, Plan) else list(alone.errors))
        else:
            assert isinstance(alone, Plan)
            assert [slot for slot in both.slots if slot.pool == "gpu"] == list(alone.slots)


@SOME
@given(specs(), st.sampled_from(["vllm", "sglang", "ray", "triton", "router"]))
def test_kinds_change_nothing(wanted: Wire, kind: str) -> None:
    renamed = {**wanted, "services": [{**each, "kind": kind, "port": 80} for each in wanted["services"]]}
    same = {**wanted, "services": [{**each, "port": 80} for each in wanted["services"]]}
    assert document(_place(renamed)) == document(_place(same))


@SOME
@given(specs(), inventories())
def test_what_is_bound_stays_where_it_is(wanted: Wire, known: Wire) -> None:
    first = _place(wanted, known)
    if not isinstance(first, Plan):
        return
    bound = _bound(first)
    again = _place(wanted, known, bound)
    assert isinstance(again, Plan)
    assert again.slots == first.slots
    more = {**wanted, "services": [{"name": "new", "gpus": 1}, *wanted["services"]]}
    third = _place(more, known, bound)
    if isinstance(third, Plan):
        for slot in first.slots:
            (now,) = (each for each in third.slots if each.node == slot.node)
            for each in slot.assigned:
                if _demands(wanted)[each.service].gpus_needed:
                    assert now.of(each.service) == each


COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@SOME
@given(COUNTS, COUNTS, inventories())
def test_what_takes_the_rest_is_left_alone_as_long_as_the_others_do_without(
    before: list[int], after: list[int], known: Wire
) -> None:
    """They do without where they find room though somebody else has its GPUs."""
    rest = {"name": "rest", "leftover": {}}
    first = _place(_of_sizes(before, rest), known)
    if not isinstance(first, Plan):
        return
    unchanged = {f"s{at}" for at, (was, now) in enumerate(zip(before, after, strict=False)) if was == now}
    bound = tuple(each for each in _bound(first) if each.service in {"rest", *unchanged})
    do_without = _place(_of_sizes(after), _with_rest_taken(known, bound), bound)
    again = _place(_of_sizes(after, rest), known, bound)
    if isinstance(do_without, Plan):
        assert isinstance(again, Plan)
        assert set(_bound(again)) >= set(bound)


def _of_sizes(sizes: list[int], *more: Wire) -> Wire:
    services = [{"name": f"s{at}", "gpus": gpus} for at, gpus in enumerate(sizes)]
    return {"pools": [{"name": "gpu", "nodes": 4}], "services": [*services, *more]}


def _with_rest_taken(known: Wire, bound: tuple[Bound, ...]) -> Wire:
    """The nodes with what `rest` is bound to in the hands of somebody else."""
    taken = {(each.node, index) for each in bound if each.service == "rest" for index in each.indexes}
    nodes = []
    for node in known["nodes"]:
        others = [
            {"reservedBy": "team-b/other"} if (node["name"], gpu["index"]) in taken else {} for gpu in node["gpus"]
        ]
        nodes.append({**node, "gpus": [{**gpu, **more} for gpu, more in zip(node["gpus"], others, strict=True)]})
    return {"nodes": nodes}


def _bound(plan: Plan) -> tuple[Bound, ...]:
    return tuple(
        Bound(each.service, slot.node, each.indexes, slot.name) for slot in plan.slots for each in slot.assigned
    )


@SOME
@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.booleans())
def test_with_like_nodes_the_search_finds_as_few_nodes_as_trying_everything(sizes: list[int], led: bool) -> None:
    services = [{"name": f"s{at}", "gpus": size} for at, size in enumerate(sizes)]
    wanted = {"pools": [{"name": "gpu", "nodes": "auto", "gpusPerNode": 8}], "services": services}
    outcome = _place({**wanted, **({"lead": "s0"} if led else {})})
    assert isinstance(outcome, Plan)
    assert outcome.pools[0].nodes_resolved == _fewest(tuple(sorted(sizes, reverse=True)), (), 8)
    assert outcome.pools[0].proven_minimal


def _fewest(sizes: tuple[int, ...], room: tuple[int, ...], capacity: int) -> int:
    """The fewest nodes, by trying every place for every service."""
    if not sizes:
        return len(room)
    size, rest = sizes[0], sizes[1:]
    best = _fewest(rest, (*room, capacity - size), capacity)
    for at, left in enumerate(room):
        if left >= size and left not in room[:at]:
            best = min(best, _fewest(rest, (*room[:at], left - size, *room[at + 1 :]), capacity))
    return best


@pytest.mark.parametrize("lead", [None, "s1"])
def test_the_first_of_equal_services_has_the_first_gpus(lead: str | None) -> None:
    wanted = {"pools": [{"name": "gpu", "nodes": "auto", "gpusPerNode": 4}], "services": [], "lead": lead}
    wanted["services"] = [{"name": f"s{at}", "gpus": 2} for at in range(2)]
    outcome = _place(wanted)
    assert isinstance(outcome, Plan)
    assert [each.indexes for each in outcome.slots[0].assigned] == [(0, 1), (2, 3)]
