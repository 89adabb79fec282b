"""The names that stand for a service's GPUs in a cluster: short enough, distinct, and never another namespace's."""

import re
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.core.placement.resourcenames import NAMESPACE_MAX, resource_name

# what Kubernetes takes behind the slash of a resource's name
QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABELS = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


def test_a_name_says_whose_it_is() -> None:
    assert resource_name("team-a", "rl-eval", "policy") == "place.gpusharing.io/policy.rl-eval.team-a"
    assert resource_name("team-a", "rl-eval", "giant", 1) == "place.gpusharing.io/giant.r1.rl-eval.team-a"


def test_a_long_name_is_cut_with_a_hash_and_keeps_its_namespace() -> None:
    assert (
        resource_name("team-a", "x" * 40, "policy") == "place.gpusharing.io/policy.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxx.team-a"
    )
    cut = resource_name("team-a", "x" * 50, "policy").partition("/")[2]
    assert re.fullmatch(r"policy\.x{40}-[0-9a-f]{8}\.team-a", cut)
    longest = resource_name("n" * NAMESPACE_MAX, "placement", "service").partition("/")[2]
    assert re.fullmatch(r"[0-9a-f]{8}\.n{54}", longest)


@settings(deadline=None, max_examples=60)
@given(LABELS.filter(lambda name: len(name) <= NAMESPACE_MAX), LABELS, LABELS, st.none() | st.integers(0, 255))
def test_every_name_is_one_that_kubernetes_takes(
    namespace: str, placement: str, service: str, rank: int | None
) -> None:
    name = resource_name(namespace, placement, service, rank).removeprefix("place.gpusharing.io/")
    assert QUALIFIED.fullmatch(name)
    assert name.endswith(f".{namespace}")


@settings(deadline=None, max_examples=30)
@given(
    LABELS, st.lists(LABELS, min_size=2, max_size=3, unique=True), st.lists(LABELS, min_size=2, max_size=3, unique=True)
)
def test_names_are_distinct(namespace: str, placements: list[str], services: list[str]) -> None:
    names = [resource_name(namespace[:NAMESPACE_MAX], *each) for each in product(placements, services, [None, 0, 1])]
    assert len(set(names)) == len(names)
