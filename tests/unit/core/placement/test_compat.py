"""The reference's rules R1 to R43 (placement guide, section 3), as far as a planner sees them, in mode `gym`."""

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

GYM = {"compat": "gym"}
POLICY = shaped("policy", 2)


@pytest.mark.parametrize(
    ("rule", "pools", "services", "want"),
    [
        ("R1", pool(gpus=16), [service("a", parallelism={"tensor": 2, "pipeline": 2, "instances": 2}), service("b", 1)],
            {"gpu/0": "a 0,1,2,3,4,5,6,7 | b 8"}),
        ("R2", pool(), [service("a", parallelism={}), service("b", parallelism={})], {"gpu/0": "a 0 | b 1"}),
        ("R3", pool(), [shaped("a", 2, visibleDevices="3,1,0"), service("b", 1)], {"gpu/0": "a 3,1,0 | b 2"}),
        ("R4", pool(), [POLICY, service("b", share=True), service("c", 1)], {"gpu/0": "policy 0,1 | c 2"}),
        ("R5", pool(), [POLICY, service("router", 0), service("c", 1)], {"gpu/0": "policy 0,1 | c 2"}),
        ("R7", pool(), [POLICY, service("off", 3, deploy=False), service("c", 1)], {"gpu/0": "policy 0,1 | c 2"}),
        ("R9", pool(2), [shaped("a", 2, 4, distribute="evenly")], {"gpu/0": "a 0,1,2,3", "gpu/1": "a 0,1,2,3"}),
        ("R19", pool(), [service("judge", 1), shaped("policy", 2, visibleDevices="0,2"), service("embed", 1)],
            {"gpu/0": "judge 1 | policy 0,2 | embed 3"}),
        ("R20", pool(), [service("judge", 1), POLICY], {"gpu/0": "judge 0 | policy 1,2"}),
        ("R20 swapped", pool(), [POLICY, service("judge", 1)], {"gpu/0": "policy 0,1 | judge 2"}),
        ("R21", pool(), [service("ray", leftover={}), POLICY], {"gpu/0": "ray 2,3 | policy 0,1"}),
        ("R22", pool(), [service("ray", visibleDevices="3"), POLICY], {"gpu/0": "ray 3 | policy 0,1"}),
        ("R36", pool("auto"), [service("judge", 1), service("policy", 2), service("reward", 3)],
            {"gpu/0": "judge 0 | policy 1,2", "gpu/1": "reward 0,1,2"}),
        ("R37", pool("auto"), [service("six", 6), service("policy", 1)],
            {"gpu/0": "policy 0", "gpu/1": "six 0,1,2,3", "gpu/2": "six 0,1,2,3"}),
        ("R40", pool("auto"), [service("ray", leftover={}), service("policy", 2), service("reward", 3)],
            {"gpu/0": "ray 2,3 | policy 0,1", "gpu/1": "ray 3 | reward 0,1,2"}),
        ("R42", pool("auto"), [*(service(name, visibleDevices="0,1") for name in "ab"), service("policy", 1)],
            {"gpu/0": "a 0,1 | policy 2", "gpu/1": "b 0,1"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_assignments_are_the_references(rule: str, pools: Wire, services: list[Wire], want: dict[str, str]) -> None:
    lead = {"lead": "policy"} if any(each["name"] == "policy" for each in services) else {}
    assert picture(planned(spec(pools, *services, **lead), **GYM)) == want, rule


def test_order_and_algorithm_are_the_references_whatever_the_request_says() -> None:
    asked = {"gpuOrder": "aligned", "algorithm": "exact"}
    plan = planned(spec(pool(), service("judge", 1), POLICY, **asked), **GYM)
    assert picture(plan) == {"gpu/0": "judge 0 | policy 1,2"}
    assert plan.pools[0].search
    assert plan.pools[0].search.algorithm == "ffd"


@pytest.mark.parametrize(
    ("services", "exported"),
    [
        ([service("policy", 2)], ()),
        ([service("policy", 2), service("embed", 1, share=True)], ()),
        ([service("policy", 2), service("ray", leftover={})], ("policy", "ray")),
        ([service("policy", 2, visibleDevices="2,3")], ("policy",)),
        ([service("a", 2, visibleDevicesFromEnv="MINE")], ("a",)),
    ],
    ids=["R14 alone", "R14 with one that shares", "R14 with leftovers", "R28", "R29"],
)
def test_what_is_exported_is_what_the_reference_exports(services: list[Wire], exported: tuple[str, ...]) -> None:
    (slot,) = planned(spec(pool(), *services), **GYM).slots
    assert slot.exported == exported


def test_a_hand_written_list_is_exported_on_every_node_of_a_pool_that_is_not_planned() -> None:
    services = [service("policy", 2), service("ray", visibleDevices="3,2"), service("judge", visibleDevices="0")]
    plan = planned(spec(pool(2), *services), **GYM)
    assert plan.pools[0].skipped
    assert picture(plan) == {"gpu/0": "ray 3,2 | judge 0", "gpu/1": "ray 3,2 | judge 0"}
    assert [slot.exported for slot in plan.slots] == [("ray", "judge")] * 2
    assert {each.name: each.why for each in plan.services} == {
        "policy": "not planned",
        "ray": "pinned",
        "judge": "pinned",
    }


def test_two_such_lists_that_overlap_are_refused_as_everywhere() -> None:
    services = [service("policy", 2), service("a", visibleDevices="3,2"), service("b", visibleDevices="2")]
    assert messages(refused(spec(pool(2), *services), **GYM))[0].startswith(
        "PinOverlap: services 'a' and 'b' both pin GPU 2"
    )


def test_nothing_is_exported_in_a_pool_that_is_skipped_for_its_tiers() -> None:
    services = [service("tier", 4, exclusiveNodes=True), service("ray", visibleDevices="3")]
    assert planned(spec(pool(2), *services), **GYM).slots == ()


@pytest.mark.parametrize(
    ("services", "code"),
    [
        ([service("a", visibleDevices="7"), service("b", 1)], "PinOutOfRange"),
        ([service("a", visibleDevices="1,1"), service("b", 1)], "PinRepeats"),
        ([shaped("a", 4, visibleDevices="1,2"), service("b", 1)], "PinTooSmall"),
        ([service("a", 4), service("b", leftover={})], "NothingLeft"),
        ([service("a", visibleDevices="GPU-a"), service("b", 1)], "PinUnresolved"),
        ([service("a", 1, visibleDevicesFromEnv="X"), service("b", 1)], "OpaquePin"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_safety_is_never_relaxed(services: list[Wire], code: str) -> None:
    assert messages(refused(spec(pool(), *services), **GYM))[0].startswith(code)


def test_unlike_nodes_and_sub_pools_are_slots_of_one_pool() -> None:
    plan = planned(spec(pool("auto"), service("policy", 3), service("judge", 3), lead="policy"), **GYM)
    assert [slot.name for slot in plan.slots] == ["gpu/0", "gpu/1"]
    assert [each.name for each in plan.pools] == ["gpu"]
    assert plan.pools[0].nodes_resolved == 2


def test_a_hand_written_list_makes_the_need_of_a_node_known() -> None:
    services = [shaped("dp", 1, 2, distribute="evenly"), service("a", visibleDevices="3")]
    plan = planned(spec(pool(2), *services), **GYM)
    assert picture(plan) == {"gpu/0": "dp 0 | a 3", "gpu/1": "dp 0"}


def test_such_a_list_is_exported_only_where_its_gpus_are_free() -> None:
    services = [service("policy", 2), service("a", visibleDevices="1,0"), service("b", visibleDevices="GPU-p2")]
    known = inventory(node("m", "0*123"), node("n"), node("o", ready=False), node("p"))
    plan = planned(spec(pool(3, None), *services), known, **GYM)
    assert {slot.node: picture(plan)[slot.name] for slot in plan.slots} == {"n": "a 1,0", "p": "a 1,0 | b 2"}
    (nowhere,) = refused(spec(pool(2, None), *services[:2]), inventory(node("m", "0*123")), **GYM).errors
    assert (nowhere.code, nowhere.services) == ("Unplaceable", ("a",))
