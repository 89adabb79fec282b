"""The layout of one node, and what of it is exported."""

from itertools import pairwise
from random import Random

import pytest
from tests.support.planning import Wire, inventory, node, picture, planned, pool, said, service, shaped, spec

from gpusharing.core.placement.plan import Plan

ALIGNED = {"gpuOrder": "aligned"}


def _linked(name: str, groups: str) -> Wire:
    """A node whose GPUs are in these link groups; `-` = not known."""
    made = node(name, "".join(map(str, range(len(groups)))))
    for gpu, group in zip(made["gpus"], groups, strict=True):
        if group != "-":
            gpu["linkGroup"] = int(group)
    return made


def _cut(replicas: int = 10, policy: str = "packed", gpus: int = 4) -> Wire:
    return pool(gpus=gpus, sharing={"replicas": replicas, "policy": policy})


@pytest.mark.parametrize(
    ("groups", "sizes", "want"),
    [
        ("00001111", (1, 4), "s0 4 | s1 0,1,2,3"),
        ("00111", (1, 2), "s0 2 | s1 0,1"),
        ("000111", (2, 2), "s0 0,1 | s1 3,4"),
        ("0011", (3, 1), "s0 0,1,2 | s1 3"),
        ("--00", (2, 1), "s0 2,3 | s1 0"),
        ("0101", (2,), "s0 0,2"),
    ],
    ids=["the big one first", "tightest group", "one each", "no group holds it", "unknown groups last", "interleaved"],
)
def test_aligned_keeps_a_service_in_the_tightest_link_group(groups: str, sizes: tuple[int, ...], want: str) -> None:
    services = [service(f"s{at}", size) for at, size in enumerate(sizes)]
    plan = planned(spec(pool(1, None), *services, **ALIGNED), inventory(_linked("n", groups)))
    assert picture(plan) == {"gpu/0": want}


def test_aligned_never_tears_a_pair_of_neighbours_apart_where_declared_does() -> None:
    """Section 3.7 of the guide: on nodes of eight, TP2 and TP4 straddle pairs in declaration order only."""
    torn = {"declared": 0, "aligned": 0}
    random = Random(1)
    for _ in range(60):
        services = _some_of_eight(random)
        for order in torn:
            plan = planned(spec(pool(gpus=8), *services, gpuOrder=order, algorithm="ffd"))
            torn[order] += sum(each.indexes[0] % 2 for each in plan.slots[0].assigned if len(each.indexes) > 1)
    assert torn["aligned"] == 0
    assert torn["declared"] > 20


def _some_of_eight(random: Random) -> list[Wire]:
    sizes: list[int] = []
    while sum(sizes) < 8:
        sizes.append(random.choice([size for size in (1, 2, 4) if size <= 8 - sum(sizes)]))
    return [shaped(f"s{at}", size) for at, size in enumerate(sizes)]


def test_a_tensor_group_over_two_link_groups_is_warned_of_where_one_could_hold_it() -> None:
    known = inventory(_linked("n", "0011"))
    torn = planned(spec(pool(1, None), service("a", 1), shaped("b", 2)), known)
    assert said(torn) == [
        "GroupStraddles: service 'b' gets GPUs 1,2 of gpu/0, which are not in one link group; gpuOrder: aligned would "
        "keep it in one"
    ]
    for fine in (
        spec(pool(1, None), service("a", 1), shaped("b", 2), **ALIGNED),
        spec(pool(1, None), service("a", 1), shaped("b", 3)),
        spec(pool(1, None), service("a", 1), shaped("b", 2, visibleDevices="1,2")),
        spec(pool(1, None), service("a", 1), service("b", 2)),
        spec(pool(1, None), service("b", exclusiveNodes=True, parallelism={"tensor": 2})),
    ):
        assert said(planned(fine, known)) == []


def test_packed_fills_the_fullest_gpu_and_distributed_the_emptiest() -> None:
    services = [service(name, 1, fraction="30%") for name in "abc"]
    assert picture(planned(spec(_cut(), *services))) == {"gpu/0": "a 0 | b 0 | c 0"}
    assert picture(planned(spec(_cut(policy="distributed"), *services))) == {"gpu/0": "a 0 | b 1 | c 2"}


def test_the_ranks_of_a_fraction_are_on_distinct_gpus() -> None:
    plan = planned(spec(_cut(), service("a", 2, fraction="40%"), service("b", 1, fraction="60%")))
    assert picture(plan) == {"gpu/0": "a 0,1 | b 0"}
    assert [each.shares for each in plan.slots[0].assigned] == [4, 6]
    assert plan.slots[0].free == (2, 3)


@pytest.mark.parametrize(("replicas", "shares"), [(2, 1), (3, 2), (10, 4), (128, 45)], ids=str)
def test_a_percentage_is_rounded_up_to_shares(replicas: int, shares: int) -> None:
    plan = planned(spec(_cut(replicas), service("a", 1, fraction="35%")))
    assert plan.slots[0].assigned[0].shares == shares


def test_a_fraction_of_all_leaves_nothing_of_its_gpu() -> None:
    plan = planned(spec(_cut(gpus=2), service("a", 1, fraction="100%"), service("b", 1, fraction="10%")))
    assert picture(plan) == {"gpu/0": "a 0 | b 1"}


def test_fractions_make_room_for_whole_gpus() -> None:
    services = [service("a", 1, fraction="50%"), service("b", 1, fraction="50%"), service("c", 3)]
    plan = planned(spec(_cut(policy="distributed"), *services))
    assert picture(plan) == {"gpu/0": "a 3 | b 3 | c 0,1,2"}


def test_pinned_fractions_may_meet_on_one_gpu() -> None:
    services = [service(name, visibleDevices="1", fraction="50%") for name in "ab"]
    assert picture(planned(spec(_cut(), *services))) == {"gpu/0": "a 1 | b 1"}


def test_a_copy_is_exported_where_its_target_is() -> None:
    services = [service("a", 5), service("b", 1), service("copy", shareWith="a")]
    plan = planned(spec(pool(3), *services))
    assert [(each.service, each.rank) for slot in plan.slots for each in slot.assigned] == [
        ("a", 0), ("copy", 0), ("a", 1), ("copy", 1), ("b", None),
    ]  # fmt: skip
    assert [slot.exported for slot in plan.slots] == [(), (), ()]
    pinned = planned(spec(pool(), service("a", visibleDevices="1"), service("copy", shareWith="a")))
    assert pinned.slots[0].exported == ("a", "copy")


@pytest.mark.parametrize("other", ["0123*", "0123!", "0123-", "0123+"], ids=["in use", "sick", "in MIG", "reserved"])
def test_the_only_tenant_of_a_node_that_is_not_all_ours_is_exported(other: str) -> None:
    (slot,) = planned(spec(pool(1, None), service("a", 2)), inventory(node("n", other))).slots
    assert (slot.exported, slot.free) == (("a",), (2,))


def test_a_pinned_tier_has_its_node_for_itself() -> None:
    plan = planned(spec(pool(2), service("tier", 2, visibleDevices="1,0", exclusiveNodes=True), service("b", 1)))
    assert picture(plan) == {"gpu/0": "tier 1,0", "gpu/1": "b 0"}
    assert plan.slots[0].free == ()


def test_each_instance_is_in_one_piece_and_ranks_count_instances() -> None:
    plan = planned(spec(pool("auto"), service("y", 1), shaped("x", 3, 3, split="instances")))
    assert _instances(plan) == [("gpu/0", 0, 1, 0), ("gpu/1", 1, 1, 1), ("gpu/2", 2, 1, 2)]
    together = planned(spec(pool("auto", 8), shaped("x", 3, 2, split="instances")))
    assert _instances(together) == [("gpu/0", None, 2, 0)]


def _instances(plan: Plan) -> list[tuple[str, int | None, int | None, int | None]]:
    there = [(slot.name, each) for slot in plan.slots if (each := slot.of("x"))]
    return [(name, each.rank, each.instances, each.first_instance) for name, each in there]


def test_a_tail_ends_where_a_node_would_not_be_filled() -> None:
    unlike = {"name": "gpu", "nodes": 3, "gpusByNode": [4, 8, 4]}
    plan = planned(spec(unlike, service("ten", 10, span="tail"), service("b", 2)))
    assert picture(plan) == {"gpu/0": "ten 0,1,2,3", "gpu/1": "ten 0,1,2,3,4,5 | b 6,7", "gpu/2": ""}


def test_the_leads_whole_nodes_begin_at_slot_0() -> None:
    plan = planned(spec(pool("auto"), service("a", 4), service("lead", 6), lead="lead"))
    assert picture(plan) == {"gpu/0": "lead 0,1,2,3", "gpu/1": "lead 0,1,2,3", "gpu/2": "a 0,1,2,3"}
    ranks = [each.rank for slot in plan.slots if (each := slot.of("lead"))]
    assert all(one < other for one, other in pairwise(rank for rank in ranks if rank is not None))
    assert plan.lead_slot == "gpu/0"


def test_a_lead_without_gpus_runs_on_slot_0_and_changes_nothing() -> None:
    services = [service("driver", 0), service("a", 2), service("b", 3)]
    led, unled = (planned(spec(pool("auto"), *services, **more)) for more in ({"lead": "driver"}, {}))
    assert (led.slots, led.lead_slot, unled.lead_slot) == (unled.slots, "gpu/0", None)
    assert {each.name: each.slots for each in led.services}["driver"] == ("gpu/0",)


def test_pins_of_whole_gpus_that_clash_go_to_different_nodes_beside_fractions_too() -> None:
    cut = pool("auto", sharing={"replicas": 4})
    plan = planned(spec(cut, *(service(name, visibleDevices="0") for name in "ab"), service("c", 1, fraction="50%")))
    assert picture(plan) == {"gpu/0": "a 0 | c 1", "gpu/1": "b 0"}


def test_one_instance_weighs_what_it_needs_and_not_what_all_need() -> None:
    plan = planned(spec(pool("auto", 8), shaped("x", 4, 2, split="instances"), service("y", 5)))
    assert picture(plan) == {"gpu/0": "y 0,1,2,3,4", "gpu/1": "x 0,1,2,3,4,5,6,7"}


def test_a_list_that_counts_on_every_node_is_needed_on_every_node() -> None:
    plan = planned(spec(pool(2), shaped("a", 1, 4, distribute="evenly", visibleDevices="3,1")))
    assert picture(plan) == {"gpu/0": "a 3,1", "gpu/1": "a 3,1"}
    assert plan.services[0].gpus_needed == 4
