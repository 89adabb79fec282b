"""The CRD of placements on a real API server: it refuses what the planner refuses for the file alone, in its words."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support.cluster.api import ApiStatusError, Object, placements
from tests.support.fleet import Fleet
from tests.support.placements import cases
from tests.support.planning import Wire, odd_specs, pool, service, shaped, specs

from gpusharing.api import names, placementrules
from gpusharing.api.crd import placement_crd
from gpusharing.api.placement import MAX_POOLS, MAX_SERVICES, PlacementSpec
from gpusharing.api.placementobject import PlacementObject
from gpusharing.core.placement.demand import demands
from gpusharing.core.placement.fields import pool_problems, service_problems
from gpusharing.core.placement.problems import Code
from gpusharing.core.placement.references import reference_problems
from gpusharing.core.placement.request import Request
from gpusharing.core.placement.sizing import size_problems

PLACEMENTS = placements("default")
TERM = {"key": "team", "operator": "In"}
OPAQUE = {"visibleDevicesFromEnv": "MINE"}
EVENLY, SPLIT = {"distribute": "evenly"}, {"split": "instances"}
CUT = {"sharing": {"replicas": 4}}
OTHER = service("b", 1)


def spec(pools: Wire | list[Wire], *services: Wire, **more: Any) -> Wire:
    """A spec, as a file has it."""
    return {"pools": pools if isinstance(pools, list) else [pools], "services": list(services), **more}


# What is wrong, and the same put right.
BROKEN: dict[str, tuple[Wire, Wire]] = {
    "two needs": (spec(pool(), shaped("a", gpus=2)), spec(pool(), shaped("a"))),
    "no need": (spec(pool(), service("a")), spec(pool(), service("a", leftover={}), OTHER)),
    "two pins": (spec(pool(), service("a", visibleDevices="0", **OPAQUE)), spec(pool(), service("a", **OPAQUE))),
    "shares twice": (
        spec(pool(), service("a", share=True, shareWith="b"), OTHER, enforcement="env"),
        spec(pool(), service("a", share=True), OTHER, enforcement="env"),
    ),
    "shares with a pin": (
        spec(pool(), service("a", shareWith="b", visibleDevices="0"), OTHER),
        spec(pool(), service("a", shareWith="b"), OTHER),
    ),
    "sees all with a pin": (
        spec(pool(), service("a", share=True, visibleDevices="0"), OTHER, enforcement="env"),
        spec(pool(), service("a", visibleDevices="GPU-a,GPU-b"), OTHER, enforcement="env"),
    ),
    "leftover with a pin": (spec(pool(), service("a", leftover={}, visibleDevices="0")), spec(pool(), OTHER)),
    "evenly without a shape": (spec(pool(2), service("a", 2, **EVENLY)), spec(pool(2), shaped("a", 1, 2, **EVENLY))),
    "split without a shape": (spec(pool(2), service("a", 2, **SPLIT)), spec(pool(2), shaped("a", 1, 2, **SPLIT))),
    "evenly by UUID": (
        spec(pool(2), shaped("a", 1, 2, visibleDevices="GPU-a", **EVENLY)),
        spec(pool(2), shaped("a", 1, 2, visibleDevices="0", **EVENLY)),
    ),
    "evenly and split": (spec(pool(2), shaped("a", **EVENLY, **SPLIT)), spec(pool(2), shaped("a", **SPLIT))),
    "a fraction of whole nodes": (
        spec(pool(**CUT), service("a", 1, fraction="50%", exclusiveNodes=True)),
        spec(pool(**CUT), service("a", 1, fraction="50%")),
    ),
    "a fraction of uncut GPUs": (
        spec([pool(), pool(name="aux", **CUT)], service("a", 1, fraction="80%", pool="gpu")),
        spec([pool(), pool(name="aux", **CUT)], service("a", 1, fraction="80%", pool="aux")),
    ),
    "a cap without auto": (spec(pool(2, maxNodes=3), OTHER), spec(pool("auto", maxNodes=3), OTHER)),
    "two sizes": (spec(pool(gpusByNode=[4]), OTHER), spec(pool(2, None, gpusByNode=[4, 8]), OTHER)),
    "fewer sizes than nodes": (spec(pool(3, None, gpusByNode=[4, 8]), OTHER), spec(pool(3, None), OTHER)),
    "more sizes than nodes": (
        spec(pool(1, None, gpusByNode=[4, 8]), OTHER),
        spec(pool(1, None, gpusByNode=[4]), OTHER),
    ),
    "many sizes for more nodes": (
        spec(pool(105, None, gpusByNode=[4] * 12), OTHER),
        spec(pool(12, None, gpusByNode=[4] * 12), OTHER),
    ),
    "sizes with auto": (spec(pool("auto", None, gpusByNode=[4]), OTHER), spec(pool("auto", None), OTHER)),
    "a term without values": (
        spec(pool(nodeSelector={"matchExpressions": [TERM]}), OTHER),
        spec(pool(nodeSelector={"matchExpressions": [{**TERM, "values": ["x"]}]}), OTHER),
    ),
    "no pool named": (
        spec([pool(), pool(name="aux")], OTHER),
        spec([pool(), pool(name="aux")], {**OTHER, "pool": "aux"}),
    ),
    "an unknown pool": (spec(pool(), {**OTHER, "pool": "gqu"}), spec(pool(), {**OTHER, "pool": "gpu"})),
    "an unknown lead": (spec(pool(), OTHER, lead="c"), spec(pool(), OTHER, lead="b")),
    "a lead that is not deployed": (
        spec(pool(), OTHER, service("a", 1, deploy=False), lead="a"),
        spec(pool(), OTHER, service("a", 1), lead="a"),
    ),
    "an unknown target": (spec(pool(), service("a", shareWith="c")), spec(pool(), service("a", shareWith="b"), OTHER)),
    "a target without GPUs": (
        spec(pool(), service("a", shareWith="b"), service("b", 0, **OPAQUE)),
        spec(pool(), service("a", shareWith="b"), service("b", **OPAQUE)),
    ),
    "a target elsewhere": (
        spec([pool(), pool(name="aux")], service("a", shareWith="b", pool="gpu"), {**OTHER, "pool": "aux"}),
        spec([pool(), pool(name="aux")], service("a", shareWith="b", pool="aux"), {**OTHER, "pool": "aux"}),
    ),
    "sees all under reserve": (
        spec(pool(), service("a", share=True), OTHER),
        spec(pool(), service("a", share=True), OTHER, enforcement="env"),
    ),
}
# What the schema itself refuses: a change of a valid spec, and where.
MALFORMED: dict[str, tuple[Wire, str]] = {
    "negative": (spec(pool(), service("a", -1)), "spec.services[0].gpus"),
    "too many GPUs": (spec(pool(), service("a", 4097)), "spec.services[0].gpus"),
    "no services": (spec(pool()), "spec.services"),
    "no pools": (spec([], OTHER), "spec.pools"),
    "too many services": (spec(pool(), *(service(f"s{n}", 0) for n in range(MAX_SERVICES + 1))), "spec.services"),
    "too many pools": (spec([pool(name=f"p{n}") for n in range(MAX_POOLS + 1)], OTHER), "spec.pools"),
    "a service twice": (spec(pool(), OTHER, OTHER), "spec.services[1]"),
    "a pool twice": (spec([pool(), pool()], OTHER), "spec.pools[1]"),
    "an unknown kind": (spec(pool(), service("a", 1, kind="tgi")), "spec.services[0].kind"),
    "over 100 %": (spec(pool(**CUT), service("a", 1, fraction="101%")), "spec.services[0].fraction"),
    "a number for a percentage": (spec(pool(**CUT), service("a", 1, fraction=80)), "spec.services[0].fraction"),
    "no node": (spec(pool(0), OTHER), "spec.pools[0].nodes"),
    "too many nodes": (spec(pool(257), OTHER), "spec.pools[0].nodes"),
    "another word for nodes": (spec(pool("autos"), OTHER), "spec.pools[0].nodes"),
    "a number as text": (spec(pool("4"), OTHER), "spec.pools[0].nodes"),
    "a part of a node": (spec(pool(1.5), OTHER), "spec.pools[0].nodes"),  # type: ignore[arg-type]
    "a dot in a name": (spec(pool(), service("a.b", 1)), "spec.services[0].name"),
    "a pin with a blank": (spec(pool(), service("a", visibleDevices="0, 1")), "spec.services[0].visibleDevices"),
    "no port": (spec(pool(), service("a", 1, port=0)), "spec.services[0].port"),
}


# --- rules


def test_what_a_rule_refuses_is_refused_in_the_planners_words_and_what_is_put_right_is_taken(fleet: Fleet) -> None:
    for what, (wrong, right) in BROKEN.items():
        said, expected = sentences(fleet, wrong), ours(wrong)
        assert said, what
        assert are_among(said, expected), what
        assert sentences(fleet, right) == ours(right) == set(), what


def test_of_several_services_that_break_a_rule_the_first_is_named(fleet: Fleet) -> None:
    wrong = spec([pool(), pool(name="aux")], service("a", 1, deploy=False), service("b", 1), service("c", 1))
    assert sentences(fleet, wrong) == {"service 'b' names no pool and the placement has 2 (gpu, aux)"}


def test_every_rule_has_a_case_here() -> None:
    schema = placement_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    properties = schema["properties"]
    rules = [
        rule["message"]
        for node in (schema, properties["pools"]["items"], properties["services"]["items"])
        for rule in node["x-kubernetes-validations"]
    ]
    patterns = [re.sub(r"<\w+>", ".+", re.escape(rule)) for rule in rules]
    found = {sentence for wrong, _ in BROKEN.values() for sentence in ours(wrong)}
    without = [
        rule for rule, pattern in zip(rules, patterns, strict=True) if not any(map(re.compile(pattern).match, found))
    ]
    # of two words that exclude each other the shape of the rule is the same, and the tables are one
    assert [rule for rule in without if "exclude each other" not in rule] == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=odd_specs())
def test_server_and_planner_agree_about_whatever_has_the_right_types(fleet: Fleet, wanted: Wire) -> None:
    wanted = {key: once(value) if key in {"pools", "services"} else value for key, value in wanted.items()}
    said, expected = sentences(fleet, wanted), ours(wanted)
    assert are_among(said, expected), said - expected
    assert bool(said) == bool(expected)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=specs())
def test_what_contradicts_nothing_is_taken(fleet: Fleet, wanted: Wire) -> None:
    assert sentences(fleet, {**wanted, "enforcement": "env"}) == set()


# 5.3 of the guide: the errors that need nothing but the fields
STATIC = {
    Code.DUPLICATE_SERVICE,
    Code.DUPLICATE_POOL,
    Code.INVALID_FIELDS,
    Code.UNKNOWN_POOL,
    Code.POOL_REQUIRED,
    Code.UNKNOWN_LEAD,
    Code.UNKNOWN_SHARE_TARGET,
    Code.SHARE_WITH_PIN,
    Code.GPUS_PER_NODE_LENGTH,
}


def test_of_the_recorded_placements_exactly_those_with_a_static_error_are_refused(fleet: Fleet) -> None:
    for name, case in cases().items():
        wanted = {**case["input"]["request"], "enforcement": "env"}
        broken = {error["code"] for error in case["expect"].get("errors", ())} & STATIC
        assert bool(refusal(fleet, wanted)) == bool(broken), name


@pytest.mark.parametrize("name", ["with.dot", "a" * 64])
def test_a_name_that_cannot_be_part_of_a_resource_name_is_refused(fleet: Fleet, name: str) -> None:
    [(_, said)] = refusal(fleet, spec(pool(), OTHER), name=name)
    assert placementrules.NAME_EXPECTED in said


def test_the_longest_name_is_taken(fleet: Fleet) -> None:
    assert refusal(fleet, spec(pool(), OTHER), name="a" * 63) == []


def test_the_largest_placement_is_within_the_cost_that_the_api_server_allows(fleet: Fleet) -> None:
    pools = [pool(256, None, f"{n}{'p' * 62}", gpusByNode=[8] * 256) for n in range(MAX_POOLS)]
    services = [
        service(f"{n:02}{'s' * 61}", 1, pool=pools[-1]["name"], fraction="50%") for n in range(MAX_SERVICES - 1)
    ]
    pools[-1] |= {"sharing": {"replicas": 2}}
    sharing = service("last", shareWith=services[-1]["name"], pool=pools[-1]["name"])
    assert refusal(fleet, spec(pools, *services, sharing, lead="last")) == []


# --- schema


def test_what_the_schema_refuses_is_refused_where_it_stands(fleet: Fleet) -> None:
    for what, (wrong, place) in MALFORMED.items():
        assert place in [at for at, _ in refusal(fleet, wrong)], what


def test_an_unknown_field_is_refused(fleet: Fleet) -> None:
    with pytest.raises(ApiStatusError, match=re.escape('unknown field "spec.services[0].gpu"')):
        fleet.api.create(PLACEMENTS, body(spec(pool(), service("a", gpu=1))), fieldValidation="Strict")


def test_defaults_are_filled_in_at_every_level(fleet: Fleet) -> None:
    created = fleet.api.create(PLACEMENTS, body(spec({"name": "gpu"}, shaped("a"), service("b", leftover={}))))
    made = PlacementObject.model_validate(created).spec
    assert made == PlacementSpec.model_validate(spec({"name": "gpu"}, shaped("a"), service("b", leftover={})))
    assert created["spec"]["pools"][0]["nodes"] == 1
    assert created["status"] == {"observedGeneration": 0}


# --- kubectl


def test_kubectl_get_shows_what_became_of_a_placement(fleet: Fleet) -> None:
    fleet.api.create(PLACEMENTS, body(spec(pool(), OTHER)))
    moment = "2026-11-30T12:00:00Z"
    ready = {"type": "Ready", "status": "False", "reason": "Reserving", "message": "", "lastTransitionTime": moment}
    status = {
        "summary": {"gpusNeeded": 3, "gpusFree": 1, "nodes": 1, "services": 2},
        "leadNode": "gpu-a",
        "planHash": "6d1f",
        "conditions": [ready],
    }
    fleet.api.patch(PLACEMENTS, "tried", {"status": status}, subresource="status")
    head, row = fleet.cluster.kubectl("get", "gplace", "-o", "wide").stdout.splitlines()
    assert head.split() == [
        *("NAME", "SERVICES", "GPUS", "NODES", "READY", "STATUS"),
        *("LEAD", "ENFORCEMENT", "PLAN", "AGE"),
    ]
    assert row.split()[:-1] == ["tried", "2", "3", "1", "False", "Reserving", "gpu-a", "reserve", "6d1f"]


# --- helpers


def body(wanted: Wire, name: str = "tried") -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": wanted,
    }


def once(listed: list[Wire]) -> list[Wire]:
    """The list without what has the name of an earlier one."""
    return list({each["name"]: each for each in reversed(listed)}.values())[::-1]


def refusal(fleet: Fleet, wanted: Wire, name: str = "tried") -> list[tuple[str, str]]:
    """Field and sentence of all that the server refuses; empty = it takes it."""
    try:
        fleet.api.create(PLACEMENTS, body(wanted, name), dryRun="All", fieldValidation="Strict")
    except ApiStatusError as error:
        if error.status != 422:
            raise
        return [(cause["field"], cause["message"]) for cause in error.body["details"]["causes"]]
    return []


def sentences(fleet: Fleet, wanted: Wire) -> set[str]:
    """The sentences of the rules that it breaks, as the server says them."""
    return {re.sub(r'^Invalid value: (".*?"|null): ', "", message) for _, message in refusal(fleet, wanted)}


def are_among(said: set[str], expected: set[str]) -> bool:
    """Whether each sentence is one of the expected, which may say more behind it."""
    return all(any(each.startswith(sentence) for each in expected) for sentence in said)


def ours(wanted: Wire) -> set[str]:
    """The sentences of the rules that it breaks, as the planner says them."""
    read = PlacementSpec.model_validate(wanted)
    return {problem.message for problem in _problems(read)} | {
        placementrules.OF_SERVICE.format(service=each.name, sentence=placementrules.SHARE_UNDER_RESERVE)
        for each in read.services
        if each.deploy and each.share and read.enforcement == "reserve"
    }


def _problems(read: PlacementSpec) -> Iterator[Any]:
    yield from reference_problems(Request(read), demands(read))
    pools = {each.name: each for each in read.pools}
    for each in read.services:
        if each.deploy:
            own = read.pools[0] if each.pool is None and len(pools) == 1 else pools.get(each.pool or "")
            yield from service_problems(each, own)
    for each in read.pools:
        yield from pool_problems(each)
        yield from (found for found in size_problems(each, None) if found.code == Code.GPUS_PER_NODE_LENGTH)
