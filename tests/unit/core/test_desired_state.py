import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import ago, make_node, make_policy, make_spec, ranked
from tests.support.strategies import json_values, specs

from gpusharing.api.pluginconfig import load
from gpusharing.core.desired_state import Layout, Outcome, as_enforced, assign, compile_policy, render

VECTORS = Path(__file__).parents[2] / "vectors"
PINNED = json.loads((VECTORS / "config_names.json").read_text())["names"]
LAYOUTS: list[Layout] = ["per-node", "shared"]
layouts = st.sampled_from(LAYOUTS)


# --- a policy's config and its name


@pytest.mark.parametrize("pin", PINNED, ids=[pin["story"] for pin in PINNED])
def test_the_name_of_a_pinned_spec_never_changes(pin: dict[str, Any]) -> None:
    spec = make_spec(**pin["spec"])
    assert {"perNode": render(spec, "per-node").name, "shared": render(spec, "shared").name} == {
        "perNode": pin["perNode"],
        "shared": pin["shared"],
    }


@given(specs, layouts)
def test_a_name_is_a_label_value_and_a_key_of_a_configmap(spec: dict[str, Any], layout: Layout) -> None:
    name = render(make_spec(**spec), layout).name
    assert len(name) <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)


@given(specs, layouts)
def test_a_name_ends_in_the_first_eight_digits_of_the_digest(spec: dict[str, Any], layout: Layout) -> None:
    rendered = render(make_spec(**spec), layout)
    assert rendered.name.rpartition("-")[2] == rendered.digest[:8] == rendered.config.digest()[:8]


@given(specs, layouts)
def test_the_text_is_read_back_strictly_as_the_same_config(spec: dict[str, Any], layout: Layout) -> None:
    rendered = render(make_spec(**spec), layout)
    assert load(rendered.text).digest() == rendered.digest


@given(specs, specs, layouts)
def test_two_specs_have_one_name_exactly_if_their_configs_are_the_same(
    one: dict[str, Any], other: dict[str, Any], layout: Layout
) -> None:
    first, second = render(make_spec(**one), layout), render(make_spec(**other), layout)
    assert (first.name == second.name) == (first.text == second.text)


@given(specs, layouts, st.randoms())
def test_the_order_of_lists_does_not_change_the_name(spec: dict[str, Any], layout: Layout, random: Any) -> None:
    shuffled = json.loads(json.dumps(spec))
    for holder, key in ((shuffled.get("sharing"), "resources"), (shuffled.get("plugin"), "deviceListStrategy")):
        if holder and key in holder:
            random.shuffle(holder[key])
    assert render(make_spec(**spec), layout) == render(make_spec(**shuffled), layout)


@given(specs)
def test_in_layout_shared_no_key_of_our_own_is_written(spec: dict[str, Any]) -> None:
    assert "gpusharing" not in render(make_spec(**spec), "shared").config.canonical()


@given(specs, layouts)
def test_the_allocation_policy_is_always_rendered_for_nvidias_plugin(spec: dict[str, Any], layout: Layout) -> None:
    plugin = render(make_spec(**spec), layout).config.canonical()["flags"]["plugin"]
    packed = spec.get("allocation", {}).get("policy") == "packed"
    assert plugin["sharedDevicesAllocationPolicy"] == ("packed" if packed else "distributed")


def test_a_whole_config_reads_as_the_plugin_wants_it() -> None:
    policy = (
        make_policy()
        .mig("mixed")
        .allocating("packed", keepTogether="preferred")
        .sharing({"nvidia.com/mig-1g.10gb": 2, "nvidia.com/gpu": 4}, renameByDefault=True)
        .plugin(deviceListStrategy=["envvar"], deviceIDStrategy="uuid", passDeviceSpecs=True, failOnInitError=False)
    )
    assert policy.rendered().config.canonical() == {
        "version": "v1",
        "flags": {
            "migStrategy": "mixed",
            "failOnInitError": False,
            "plugin": {
                "deviceListStrategy": ["envvar"],
                "deviceIDStrategy": "uuid",
                "passDeviceSpecs": True,
                "sharedDevicesAllocationPolicy": "packed",
            },
        },
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "resources": [
                    {"name": "nvidia.com/gpu", "replicas": 4},
                    {"name": "nvidia.com/mig-1g.10gb", "replicas": 2},
                ],
            }
        },
        "gpusharing": {"allocation": {"policy": "packed", "keepTogether": "preferred"}},
    }
    assert policy.rendered().name.startswith("packed-mixed-4x-")


def test_mps_is_a_section_of_its_own() -> None:
    sharing = make_policy().sharing(4, "mps").rendered().config.canonical()["sharing"]
    assert sharing == {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}


# --- reading a policy object


@given(json_values)
def test_whatever_stands_in_the_spec_a_policy_compiles_or_has_problems(spec: object) -> None:
    policy = compile_policy({"metadata": {"name": "p"}, "spec": spec}, "per-node")
    invalid = (policy.spec, policy.selector, policy.rendered) == (None, None, None)
    assert invalid == bool(policy.problems)


def test_a_spec_that_breaks_a_rule_of_the_schema_has_no_config() -> None:
    policy = make_policy().invalid().build()
    assert (policy.spec, policy.rendered, policy.enforced) == (None, None, False)
    assert [problem.path for problem in policy.problems] == [
        "spec.sharing.resources[0].name",
        "spec.sharing.resources[0].replicas",
    ]


def test_an_object_without_a_spec_is_invalid() -> None:
    (problem,) = compile_policy({"metadata": {"name": "p"}}, "per-node").problems
    assert str(problem) == "spec: null is not a mapping"


def test_identity_and_age_are_taken_from_the_metadata() -> None:
    policy = make_policy("p").uid("u").generation(7).born(ago(hours=2)).build()
    assert (policy.name, policy.uid, policy.generation, policy.created) == ("p", "u", 7, ago(hours=2))


@pytest.mark.parametrize(
    "created",
    [None, "", "yesterday", 17, {"a": 1}],
    ids=["absent", "empty", "no time", "a number", "a mapping"],
)
def test_a_policy_that_is_not_created_yet_is_the_youngest(created: object) -> None:
    obj = {"metadata": {"name": "new", "creationTimestamp": created}, "spec": {"nodeSelector": {}}}
    existing = make_policy("zzz").build()
    assert ranked(compile_policy(obj, "per-node"), existing)[0] is existing


@pytest.mark.parametrize(
    "created",
    [
        "2026-11-29T12:00:00Z",
        "2026-11-29T13:00:00+01:00",
        "2026-11-29T12:00:00",
        datetime(2026, 11, 29, 12, tzinfo=UTC),
    ],
    ids=["as Kubernetes writes it", "another zone", "without a zone", "as YAML reads it unquoted"],
)
def test_a_creation_time_is_read_however_a_file_writes_it(created: object) -> None:
    obj = {"metadata": {"name": "p", "creationTimestamp": created}, "spec": {"nodeSelector": {}}}
    assert compile_policy(obj, "per-node").created == ago(days=1)


def test_as_enforced_only_the_mode_differs() -> None:
    policy = make_policy().dry_run().sharing(4).build()
    assert as_enforced(policy).enforced
    assert as_enforced(policy).rendered == policy.rendered
    assert as_enforced(as_enforced(policy)) == as_enforced(policy)
    invalid = make_policy().invalid().build()
    assert as_enforced(invalid) is invalid


# --- who owns a node


def test_the_highest_priority_owns_the_node() -> None:
    high, low = make_policy("high").priority(1).born(ago(days=1)).build(), make_policy("low").born(ago(days=9)).build()
    assignment = assign(make_node().build(), ranked(low, high), holder=None)
    assert (assignment.outcome, assignment.policy, assignment.matched) == (Outcome.OWNED, high, ("high", "low"))


def test_a_negative_priority_comes_after_none() -> None:
    low, none = make_policy("low").priority(-1).born(ago(days=9)).build(), make_policy("none").build()
    assert assign(make_node().build(), ranked(low, none), holder=None).policy is none


def test_of_two_policies_with_equal_priority_the_older_owns_the_node() -> None:
    young, old = make_policy("a").born(ago(days=1)).build(), make_policy("b").born(ago(days=2)).build()
    assert assign(make_node().build(), ranked(young, old), holder=None).policy is old


def test_of_two_policies_of_equal_priority_and_age_the_first_by_name_owns_the_node() -> None:
    a, b = make_policy("a").build(), make_policy("b").build()
    assert assign(make_node().build(), ranked(b, a), holder=None).policy is a


class TestTies:
    def test_equal_priority_and_another_config_is_a_tie(self) -> None:
        old, young = make_policy("old").born(ago(days=2)).build(), make_policy("young").sharing(4).build()
        assert assign(make_node().build(), ranked(old, young), holder=None).tied == ("young",)

    def test_equal_priority_and_the_same_config_is_none(self) -> None:
        old, young = make_policy("old").born(ago(days=2)).sharing(4).build(), make_policy("young").sharing(4).build()
        assert assign(make_node().build(), ranked(old, young), holder=None).tied == ()

    def test_a_lower_priority_is_none(self) -> None:
        high, low = make_policy("high").priority(1).build(), make_policy("low").sharing(4).build()
        assert assign(make_node().build(), ranked(high, low), holder=None).tied == ()

    def test_only_the_winner_is_tied_with_not_the_next(self) -> None:
        winner = make_policy("winner").priority(1).build()
        second, third = make_policy("second").sharing(4).build(), make_policy("third").sharing(8).build()
        assert assign(make_node().build(), ranked(winner, second, third), holder=None).tied == ()

    def test_a_policy_that_does_not_match_is_in_no_tie(self) -> None:
        old = make_policy("old").born(ago(days=2)).build()
        other = make_policy("other").selecting({"team": "x"}).sharing(4).build()
        assert assign(make_node().build(), ranked(old, other), holder=None).tied == ()

    def test_a_policy_in_dry_run_is_in_no_tie(self) -> None:
        old, dry = make_policy("old").born(ago(days=2)).build(), make_policy("dry").dry_run().sharing(4).build()
        assert assign(make_node().build(), ranked(old, dry), holder=None).tied == ()


class TestDryRun:
    def test_it_takes_no_node_and_counts_it_as_matched(self) -> None:
        dry = make_policy("dry").priority(9).dry_run().build()
        assignment = assign(make_node().build(), [dry], holder=None)
        assert (assignment.outcome, assignment.policy, assignment.matched) == (Outcome.UNCLAIMED, None, ("dry",))

    def test_it_does_not_keep_another_from_a_node(self) -> None:
        dry, other = make_policy("dry").priority(9).dry_run().build(), make_policy("other").build()
        assignment = assign(make_node().build(), ranked(dry, other), holder=None)
        assert (assignment.policy, assignment.matched) == (other, ("dry", "other"))

    def test_it_freezes_a_node_that_it_holds(self) -> None:
        dry, other = make_policy("dry").dry_run().build(), make_policy("other").priority(9).build()
        assignment = assign(make_node().build(), ranked(dry, other), holder=dry)
        assert (assignment.outcome, assignment.policy) == (Outcome.FROZEN, dry)

    def test_it_freezes_a_node_that_it_no_longer_names(self) -> None:
        dry = make_policy("dry").selecting({"team": "x"}).dry_run().build()
        assert assign(make_node().build(), [dry], holder=dry).outcome is Outcome.FROZEN


def test_a_holder_whose_spec_became_invalid_freezes_the_node() -> None:
    broken = make_policy("broken").invalid().build()
    assignment = assign(make_node().build(), ranked(broken, make_policy("other").build()), holder=broken)
    assert (assignment.outcome, assignment.policy) == (Outcome.FROZEN, broken)


def test_an_invalid_policy_matches_nothing() -> None:
    assignment = assign(make_node().build(), [make_policy().invalid().build()], holder=None)
    assert (assignment.outcome, assignment.matched) == (Outcome.UNCLAIMED, ())


def test_an_enforced_holder_has_no_privilege() -> None:
    holder, high = make_policy("holder").build(), make_policy("high").priority(1).build()
    assert assign(make_node().build(), ranked(holder, high), holder=holder).policy is high


def test_a_node_under_skip_is_left_alone_whoever_holds_it() -> None:
    node, policy = make_node().skipped().build(), make_policy().build()
    assignment = assign(node, [policy], holder=policy)
    assert (assignment.outcome, assignment.policy, assignment.matched) == (Outcome.HANDS_OFF, None, ("p",))


@pytest.mark.parametrize("value", ["false", "TRUE", "", "yes"])
def test_skip_means_true_and_nothing_else(value: str) -> None:
    node, policy = make_node().label("gpusharing.io/skip", value).build(), make_policy().build()
    assert assign(node, [policy], holder=None).outcome is Outcome.OWNED


def test_a_node_without_gpus_is_owned_by_nobody() -> None:
    node = make_node().without("nvidia.com/gpu.product").build()
    assert assign(node, [make_policy().build()], holder=None).outcome is Outcome.UNCLAIMED
    assert assign(node, [make_policy().build()], holder=None, reports_gpus=True).outcome is Outcome.OWNED


# --- laws

products = st.sampled_from(["NVIDIA-L4", "NVIDIA-L4-SHARED", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H20-3e"])
nodes = st.builds(
    lambda product, team, skip: (lambda node: node.skipped() if skip else node)(
        make_node().model(product).label("team", team) if team else make_node().model(product)
    ).build(),
    products,
    st.sampled_from(["", "x"]),
    st.booleans(),
)
SPECS = [
    make_policy(),
    make_policy().dry_run(),
    make_policy().invalid(),
    make_policy().sharing(4),
    make_policy().sharing(4).priority(1),
    make_policy().sharing(4).priority(1).adopting(),
    make_policy().sharing(8).priority(1),
    make_policy().priority(-1).allocating("packed"),
    make_policy().selecting({"team": "x"}).priority(2),
    make_policy().where("nvidia.com/gpu.product", "In", "NVIDIA-L4", "NVIDIA-H20-3e").sharing(2),
    make_policy().where("nvidia.com/gpu.product", "NotIn", "NVIDIA-L4").priority(1).dry_run(),
    make_policy().where("team", "DoesNotExist").mig("mixed"),
]
policy_sets = st.lists(st.tuples(st.sampled_from(SPECS), st.integers(0, 2)), max_size=6).map(
    lambda drawn: [
        replace(builder, name=f"p{number}", policy_uid=f"u{number}", created=ago(days=age)).build()
        for number, (builder, age) in enumerate(drawn)
    ]
)


@given(nodes, policy_sets, st.randoms())
def test_the_owner_does_not_depend_on_the_order_in_which_policies_are_listed(
    node: Any, policies: list[Any], random: Any
) -> None:
    shuffled = list(policies)
    random.shuffle(shuffled)
    assert assign(node, ranked(*policies), holder=None) == assign(node, ranked(*shuffled), holder=None)


@given(nodes, policy_sets)
def test_an_owner_that_holds_the_node_stays_its_owner(node: Any, policies: list[Any]) -> None:
    first = assign(node, ranked(*policies), holder=None)
    if first.outcome is Outcome.OWNED:
        assert assign(node, ranked(*policies), holder=first.policy) == first


@given(nodes, policy_sets)
def test_no_matching_policy_ranks_above_the_owner(node: Any, policies: list[Any]) -> None:
    assignment = assign(node, ranked(*policies), holder=None)
    if assignment.outcome is not Outcome.OWNED:
        return
    assert assignment.policy is not None
    enforced = [policy for policy in policies if policy.enforced and policy.selector.matches(node.labels)]
    assert assignment.policy.rank == min(policy.rank for policy in enforced)
    assert set(assignment.tied) <= set(assignment.matched) - {assignment.policy.name}


@given(nodes, policy_sets)
def test_a_policy_that_does_not_match_changes_nothing(node: Any, policies: list[Any]) -> None:
    stranger = make_policy("stranger").selecting({"nobody": "has-this"}).priority(99).build()
    assert assign(node, ranked(*policies, stranger), holder=None) == assign(node, ranked(*policies), holder=None)
