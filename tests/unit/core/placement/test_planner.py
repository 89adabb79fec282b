"""`place` as a whole: all problems at once, pools apart from one another, the document and its hash."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.planning import inventory, messages, node, picture, planned, pool, refused, service, shaped, spec

import gpusharing.core.placement as package
from gpusharing.api.placement import Kind
from gpusharing.core.placement.bounds import lower_bound
from gpusharing.core.placement.demand import demands
from gpusharing.core.placement.document import document
from gpusharing.core.placement.pieces import job_of
from gpusharing.core.placement.plan import PoolPlan
from gpusharing.core.placement.pools import space
from gpusharing.core.placement.request import Bound

TWO = [pool(), pool(name="aux")]


def test_errors_of_every_step_and_pool_are_found_at_once() -> None:
    refusal = refused(
        spec(
            [pool(), pool(name="aux"), pool("auto", name="more", gpus=None)],
            service("a", visibleDevices="0,0", pool="gpu"),
            service("b", 9, pool="aux"),
            service("c", 1, pool="more"),
            service("d", 1),
            lead="nobody",
        )
    )
    assert [line.split(":")[0] for line in messages(refusal)] == [
        "PoolRequired",
        "UnknownLead",
        "PinRepeats",
        "Oversubscribed",
        "GpusPerNodeRequired",
    ]


def test_an_error_of_a_service_stops_its_own_pool_only() -> None:
    wrong = service("a", 9, pool="gpu", shareWith="nobody"), service("a2", 9, pool="gpu")
    refusal = refused(spec(TWO, *wrong, service("b", 9, pool="aux")))
    assert [(each.code, each.pool) for each in refusal.errors] == [
        ("UnknownShareTarget", "gpu"),
        ("Oversubscribed", "aux"),
    ]


@pytest.mark.parametrize(
    ("pools", "codes"),
    [(("gpu", "gpu"), ["DuplicateService", "Oversubscribed"]), ((None, "gpu"), ["DuplicateService", "PoolRequired"])],
    ids=["the pool that it names", "else all"],
)
def test_a_service_declared_twice_stops_the_pool_that_it_names_else_all(
    pools: tuple[str | None, str], codes: list[str]
) -> None:
    twice = [service("a", 1, **({"pool": name} if name else {})) for name in pools]
    refusal = refused(spec(TWO, *twice, service("b", 9, pool="gpu"), service("c", 9, pool="aux")))
    assert [each.code for each in refusal.errors] == codes


def test_a_wrong_lead_and_a_lost_service_stop_nothing() -> None:
    refusal = refused(spec(pool(), service("a", 9), service("b", 1, pool="lost"), lead="x"))
    assert [each.code for each in refusal.errors] == ["UnknownPool", "UnknownLead", "Oversubscribed"]


def test_pools_take_their_nodes_one_after_the_other() -> None:
    known = inventory(*(node(name) for name in "abc"))
    plan = planned(
        spec([pool(2, None), pool("auto", None, name="aux")], service("x", 1, pool="gpu"), service("y", 1, pool="aux")),
        known,
    )
    assert {slot.name: slot.node for slot in plan.slots} == {"gpu/0": "a", "gpu/1": "b", "aux/0": "c"}


def test_a_selector_matches_products_with_and_without_the_suffix_of_sharing() -> None:
    label = "nvidia.com/gpu.product"
    nodes = [node(name, labels={label: f"NVIDIA-{name}"}) for name in ("L4", "H200-SHARED")]
    selector = {"nodeSelector": {"matchLabels": {label: "NVIDIA-H200"}}}
    (slot,) = planned(spec(pool(1, None, **selector), service("a", 1)), inventory(*nodes)).slots
    assert slot.node == "H200-SHARED"


def test_with_fewer_nodes_than_the_pool_says_those_there_are_do() -> None:
    plan = planned(spec(pool(3, None), service("a", 2), service("ray", leftover={})), inventory(node("n"), node("m")))
    assert picture(plan) == {"gpu/0": "a 0,1 | ray 2,3", "gpu/1": "ray 0,1,2,3"}
    assert plan.pools[0].nodes_resolved == 2


def test_a_busy_gpu_never_makes_a_service_larger_than_a_node() -> None:
    known = inventory(node("n", "01*23"), node("m", "01*23"))
    assert messages(refused(spec(pool(2, None), service("a", 4)), known))[0].startswith("Unplaceable")


def test_a_whole_node_is_one_that_nobody_else_uses() -> None:
    known = inventory(node("n", "01*23"), node("m", "01!23"))
    plan = planned(spec(pool(1, None), service("a", 2, exclusiveNodes=True)), known)
    assert {slot.node: each.indexes for slot in plan.slots for each in slot.assigned} == {"m": (0, 2, 3)}


def test_evenly_goes_to_the_first_nodes_on_which_it_fits_opened_ones_first() -> None:
    known = inventory(node("a", "0*1*2*3*"), node("b"), node("c"), node("d"))
    pin = service("pin", visibleDevices="GPU-d0,GPU-d1,GPU-d2")
    plan = planned(spec(pool(2, None), shaped("dp", 1, 2, distribute="evenly"), pin), known)
    assert {slot.node for slot in plan.slots} == {"b", "d"}


def test_a_plan_says_why_each_service_is_where_it_is() -> None:
    plan = planned(
        spec(
            pool("auto"),
            service("lead", 1),
            service("pin", visibleDevices="3"),
            service("big", 5),
            service("rest", leftover={}),
            service("copy", shareWith="pin"),
            service("all", share=True),
            service("router", 0, kind="sglang"),
            lead="lead",
        )
    )
    assert {each.name: (each.why, each.slots, each.port) for each in plan.services} == {
        "lead": ("planned, lead", ("gpu/0",), None),
        "pin": ("pinned", ("gpu/0",), None),
        "big": ("whole nodes", ("gpu/1", "gpu/2"), None),
        "rest": ("leftover", ("gpu/0",), None),
        "copy": ("shares with pin", ("gpu/0",), None),
        "all": ("sees all GPUs", ("gpu/0",), None),
        "router": ("needs no GPUs", (), 30000),
    }


def test_the_document_has_every_key_that_a_reader_may_ask_for() -> None:
    known = inventory(node("n"))
    said = document(planned(spec(pool("auto", None), service("a", 2, port=80), lead="a"), known))
    assert said == {
        "planHash": said["planHash"],
        "leadSlot": "gpu/0",
        "seesAll": [],
        "warnings": [],
        "notices": [],
        "pools": {"gpu": {"nodesResolved": 1, "lowerBoundNodes": 1, "provenMinimal": True}},
        "slots": {
            "gpu/0": {
                "node": "n",
                "assigned": {"a": {"indexes": [0, 1], "uuids": ["GPU-n0", "GPU-n1"]}},
                "free": [2, 3],
                "exported": [],
            }
        },
        "services": [{"name": "a", "gpusNeeded": 2, "why": "planned, lead", "slots": ["gpu/0"], "port": 80}],
    }
    assert re.fullmatch(r"[0-9a-f]{64}", said["planHash"])


def test_the_hash_is_of_what_is_assigned_and_not_of_what_was_observed() -> None:
    wanted = spec(pool(1, None), service("a", 1), service("b", 1))
    calm = planned(wanted, inventory(node("n")))
    assert planned(wanted, inventory(node("n", "0123!"))).plan_hash == calm.plan_hash
    bound = planned(wanted, inventory(node("n")), Bound("a", "n", (0,)), Bound("b", "n", (1,)))
    assert bound.plan_hash == calm.plan_hash
    assert planned(wanted, inventory(node("n", "0!123"))).plan_hash != calm.plan_hash
    assert planned(wanted, inventory(node("m"))).plan_hash != calm.plan_hash


def test_a_refusal_tells_how_far_each_pool_came() -> None:
    first, second = refused(spec(TWO, service("a", 9, pool="gpu"), service("b", 1, pool="aux"))).pools
    assert first == PoolPlan("gpu", auto=False, skipped=True)
    assert second.search
    assert second.search.total == "1"


def test_what_a_search_says_of_whole_nodes_is_how_much_of_them_idles() -> None:
    plan = planned(spec(pool("auto"), service("tier", 2, exclusiveNodes=True), service("six", 6), service("a", 1)))
    assert plan.pools[0].search
    assert plan.pools[0].search.idle == 4
    assert [each.text for each in plan.pools[0].search.needs] == ["tier 2", "six 6", "a 1"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 10), min_size=1, max_size=7))
def test_no_plan_has_fewer_nodes_than_the_lower_bound_says(sizes: list[int]) -> None:
    wanted = spec(pool("auto", 10), *[service(f"s{at}", size) for at, size in enumerate(sizes)])
    room = space(wanted.pools[0], "declared", None)
    assert room
    bound = lower_bound([job_of(each, room, None) for each in demands(wanted)], room)
    assert -(-sum(sizes) // 10) <= bound
    assert bound <= planned(wanted).pools[0].nodes_resolved


@pytest.mark.parametrize(
    ("sizes", "bound"),
    [((6, 6, 6), 3), ((6, 6, 5, 5), 3), ((7, 7, 7, 4, 4), 4), ((4, 4, 4, 4), 2), ((10, 1), 2)],
    ids=str,
)
def test_the_lower_bound_sees_more_than_the_sum(sizes: tuple[int, ...], bound: int) -> None:
    wanted = spec(pool("auto", 10), *[service(f"s{at}", size) for at, size in enumerate(sizes)])
    assert planned(wanted).pools[0].lower_bound == bound


def test_the_planner_knows_no_kind_of_service() -> None:
    for path in Path(package.__path__[0]).rglob("*.py"):
        if {"readers", "renderers"} & set(path.parts):
            continue
        words = {each.value for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Constant)}
        assert not words & (set(get_args(Kind)) - {"generic"}), path.name


def test_an_auto_pool_that_has_opened_all_nodes_there_are_needs_no_higher_cap() -> None:
    (error,) = refused(spec(pool("auto", None), service("a", 3), service("b", 3)), inventory(node("n"))).errors
    assert error.code == "Unplaceable"


def test_who_sees_all_gpus_is_in_the_hash() -> None:
    one, other = (planned(spec(pool(), service("a", 1), service(name, share=True))) for name in "bc")
    assert one.plan_hash != other.plan_hash


def test_a_lead_that_is_declared_twice_is_told_so_and_nothing_more() -> None:
    assert messages(refused(spec(pool(), service("a", 1), service("a", 1), lead="a"))) == [
        "DuplicateService: service 'a' is declared 2 times"
    ]
