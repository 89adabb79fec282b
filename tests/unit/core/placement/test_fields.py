"""Rules about the fields of one service or pool: each is a sentence behind `InvalidFields`, offline as in a cluster."""

import pytest
from tests.support.planning import Wire, messages, planned, pool, refused, service, shaped, spec

SHARED = {"sharing": {"replicas": 4}}


OPAQUE = {"visibleDevicesFromEnv": "X"}


@pytest.mark.parametrize(
    ("wanted", "one", "other"),
    [
        (service("a", visibleDevices="0", **OPAQUE), "visibleDevices", "visibleDevicesFromEnv"),
        (service("a", share=True, shareWith="b"), "share", "shareWith"),
        (service("a", share=True, **OPAQUE), "share", "visibleDevicesFromEnv"),
        (service("a", shareWith="b", visibleDevices="0"), "shareWith", "visibleDevices"),
        (service("a", shareWith="b", **OPAQUE), "shareWith", "visibleDevicesFromEnv"),
        (service("a", leftover={}, visibleDevices="0"), "leftover", "visibleDevices"),
        (service("a", leftover={}, **OPAQUE), "leftover", "visibleDevicesFromEnv"),
        (shaped("a", distribute="evenly", split="instances"), "distribute", "split"),
        (shaped("a", distribute="evenly", exclusiveNodes=True), "distribute", "exclusiveNodes"),
        (shaped("a", distribute="evenly", span="tail"), "distribute", "span: tail"),
        (shaped("a", split="instances", exclusiveNodes=True), "split", "exclusiveNodes"),
        (shaped("a", split="instances", span="tail"), "split", "span: tail"),
        (shaped("a", split="instances", visibleDevices="0"), "split", "visibleDevices"),
        (shaped("a", split="instances", **OPAQUE), "split", "visibleDevicesFromEnv"),
        (service("a", leftover={}, fraction="50%"), "fraction", "leftover"),
        (service("a", 1, exclusiveNodes=True, fraction="50%"), "fraction", "exclusiveNodes"),
        (service("a", 1, fraction="50%", **OPAQUE), "fraction", "visibleDevicesFromEnv"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_two_fields_that_exclude_each_other_are_named(wanted: Wire, one: str, other: str) -> None:
    refusal = refused(spec(pool(**SHARED), wanted, service("b", 1)))
    assert f"InvalidFields: service 'a': {one} and {other} exclude each other" in messages(refusal)
    assert refusal.exit == 2


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (
            service("a"),
            "one of gpus, parallelism, leftover, visibleDevices, visibleDevicesFromEnv, share, shareWith must be set",
        ),
        (service("a", 1, parallelism={}, leftover={}), "only one of gpus, parallelism, leftover may be set"),
        (service("a", 2, distribute="evenly"), "distribute needs parallelism"),
        (service("a", 2, split="instances"), "split needs parallelism"),
    ],
    ids=["no need", "three needs", "distribute", "split"],
)
def test_a_field_that_another_needs_is_named(wanted: Wire, sentence: str) -> None:
    assert f"InvalidFields: service 'a': {sentence}" in messages(refused(spec(pool(), wanted, service("b", 1))))


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (pool(maxNodes=3), "maxNodes needs nodes: auto"),
        (pool(gpusByNode=[4]), "gpusPerNode and gpusByNode exclude each other"),
        (
            pool(nodeSelector={"matchExpressions": [{"key": "team", "operator": "In"}]}),
            "nodeSelector: values must be set for the operators In and NotIn, and only for them",
        ),
    ],
    ids=["maxNodes", "both sizes", "selector"],
)
def test_the_fields_of_a_pool_are_looked_at_too(wanted: Wire, sentence: str) -> None:
    assert messages(refused(spec(wanted, service("a", 1)))) == [f"InvalidFields: pool 'gpu': {sentence}"]


def test_a_fraction_needs_gpus_that_are_cut() -> None:
    assert messages(refused(spec(pool(), service("a", 1, fraction="50%")))) == [
        "InvalidFields: service 'a': fraction needs sharing.replicas of at least 2 on its pool 'gpu'"
    ]


def test_a_list_that_counts_on_every_node_is_one_of_indexes() -> None:
    said = messages(refused(spec(pool(2), shaped("a", 1, 2, distribute="evenly", visibleDevices="GPU-a"))))
    assert (
        "InvalidFields: service 'a': distribute: evenly needs visibleDevices by index, which count on every node"
        in said
    )


def test_the_fields_of_a_service_in_no_pool_are_looked_at_all_the_same() -> None:
    lost = service("a", pool="lost", split="instances", visibleDevices="1,1", gpus=1)
    assert [each.split(":")[0] for each in messages(refused(spec(pool(), lost)))] == [
        "UnknownPool",
        "InvalidFields",
        "InvalidFields",
        "PinRepeats",
    ]


@pytest.mark.parametrize("beside", [{"gpus": 2}, {"parallelism": {"tensor": 2}}], ids=["gpus", "a shape"])
def test_sharing_wins_over_a_need_beside_it(beside: Wire) -> None:
    plan = planned(
        spec(pool(), service("a", 1), service("b", share=True, **beside), service("c", shareWith="a", **beside))
    )
    assert [each.gpus_needed for each in plan.services] == [1, 0, 0]


def test_a_service_that_is_not_deployed_is_ignored_whatever_it_says() -> None:
    plan = planned(spec(pool(), service("a", 1), service("a", 99, pool="nowhere", share=True, deploy=False)))
    assert [each.name for each in plan.services] == ["a"]
