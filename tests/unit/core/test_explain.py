from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import PolicyBuilder, ago, make_node, make_policy, ranked
from tests.support.strategies import specs

from gpusharing.core.desired_state import Outcome, Policy, assign
from gpusharing.core.explain import Explanation, explain
from gpusharing.core.matching import Node

NODE = make_node("a").model("NVIDIA-L4").build()


def explained(*policies: PolicyBuilder, node: Node = NODE, holder: PolicyBuilder | None = None) -> Explanation:
    built = {builder.name: builder.build() for builder in policies}
    kept = built[holder.name] if holder else None
    return explain(node, ranked(*built.values()), holder=kept, reports_gpus=False)


def why(explanation: Explanation) -> dict[str, str]:
    return {considered.policy: considered.why for considered in explanation.considered}


class TestTheRuleByWhichOneWon:
    def test_it_was_the_only_one(self) -> None:
        assert explained(make_policy("p")).rule == "the only enforced policy that matches"

    def test_a_dry_run_beside_it_does_not_count(self) -> None:
        dry = make_policy("dry").priority(9).dry_run()
        assert explained(make_policy("p"), dry).rule == "the only enforced policy that matches"

    def test_by_priority(self) -> None:
        explanation = explained(make_policy("high").priority(5), make_policy("low").priority(-1), make_policy("mid"))
        assert (explanation.winner, explanation.rule) == ("high", "highest priority: 5 before 0 of mid")

    def test_by_age(self) -> None:
        explanation = explained(make_policy("young"), make_policy("old").born(ago(days=9)))
        assert (explanation.winner, explanation.rule) == ("old", "equal priority as young, and older")

    def test_by_name(self) -> None:
        explanation = explained(make_policy("b"), make_policy("a"))
        assert (explanation.winner, explanation.rule) == ("a", "equal priority and age as b, and first by name")

    def test_nobody_because_none_matches(self) -> None:
        explanation = explained(make_policy("p").selecting({"team": "x"}), make_policy("dry").dry_run())
        assert (explanation.winner, explanation.rule) == ("", "no enforced policy matches")

    def test_nobody_because_the_node_is_left_alone(self) -> None:
        explanation = explained(make_policy("p"), node=make_node().skipped().build())
        assert explanation.rule == "the label gpusharing.io/skip=true asks to leave the node as it is"

    def test_nobody_because_it_has_no_gpu(self) -> None:
        bare = make_node().without("nvidia.com/gpu.product").build()
        assert explained(make_policy("p"), node=bare).rule == "no label and no report says that it has a GPU"

    @pytest.mark.parametrize(
        ("node", "words"),
        [
            (
                make_node().label("nvidia.com/gpu.deploy.operands", "false"),
                "it is labelled nvidia.com/gpu.deploy.operands=false",
            ),
            (
                make_node().label("nvidia.com/gpu.workload.config", "vm-vgpu"),
                "it is labelled nvidia.com/gpu.workload.config=vm-vgpu",
            ),
            (make_node().out_of_scope(), "the controller's node selector leaves it out"),
        ],
        ids=["operands", "workload", "scope"],
    )
    def test_nobody_because_a_label_excludes_it(self, node: Any, words: str) -> None:
        explanation = explained(make_policy("p"), node=node.build())
        assert (explanation.gpu_node, explanation.rule) == (False, words)
        assert words in why(explanation)["p"]

    def test_the_one_that_holds_it_is_in_dry_run(self) -> None:
        dry = make_policy("dry").dry_run()
        explanation = explained(dry, make_policy("p").priority(9), holder=dry)
        assert explanation.winner == "dry"
        assert explanation.rule == "the policy that holds the node is in mode dry-run, so the node stays as it is"
        assert why(explanation) == {
            "p": "matches, but the node is left as it is",
            "dry": "holds the node, and in mode dry-run keeps it as it is",
        }

    def test_the_one_that_holds_it_is_invalid(self) -> None:
        broken = make_policy("broken").invalid()
        explanation = explained(broken, holder=broken)
        assert explanation.rule == "the policy that holds the node is invalid, so the node stays as it is"


class TestEveryPolicyConsidered:
    def test_the_owner(self) -> None:
        assert why(explained(make_policy("p"))) == {"p": "owns the node"}

    def test_a_term_that_fails_is_named_with_what_the_node_has(self) -> None:
        policy = make_policy("p").selecting({"team": "x", "nvidia.com/gpu.product": "NVIDIA-A10"})
        policy = policy.where("zone", "NotIn", "b").where("team", "Exists")
        assert why(explained(policy))["p"] == (
            "does not match: team in (x) (the node has no such label); "
            "nvidia.com/gpu.product in (NVIDIA-A10) (the node has NVIDIA-L4); team (the node has no such label)"
        )

    def test_a_tie_and_a_loss_by_rank_are_told_apart(self) -> None:
        explanation = explained(
            make_policy("old").born(ago(days=9)),
            make_policy("tied").sharing(4),
            make_policy("same"),
            make_policy("low").priority(-1).sharing(4),
        )
        assert why(explanation) == {
            "old": "owns the node",
            "tied": "matches, and ties on priority; the older policy wins",
            "same": "matches, and loses by rank",
            "low": "matches, and loses by rank",
        }

    def test_a_dry_run_takes_no_node(self) -> None:
        assert why(explained(make_policy("dry").dry_run())) == {"dry": "matches, but mode dry-run takes no node"}

    def test_under_skip_nobody_loses_by_rank(self) -> None:
        explanation = explained(make_policy("p"), node=make_node().skipped().build())
        assert why(explanation) == {"p": "matches, but the node is left as it is"}

    def test_an_invalid_spec_says_what_is_wrong_with_it(self) -> None:
        (considered,) = explained(make_policy("broken").invalid()).considered
        assert (considered.mode, considered.matches) == ("invalid", False)
        assert considered.why.startswith('its spec is invalid: spec.sharing.resources[0].name: "gpu" is not a resource')

    def test_all_are_listed_in_order_of_rank(self) -> None:
        explanation = explained(
            make_policy("low").priority(-1),
            make_policy("other").selecting({"team": "x"}),
            make_policy("high").priority(1),
        )
        assert [considered.policy for considered in explanation.considered] == ["high", "other", "low"]
        assert [considered.priority for considered in explanation.considered] == [1, 0, -1]


def test_the_config_of_the_winner_is_shown() -> None:
    rendered = make_policy("p").sharing(4).rendered()
    explanation = explained(make_policy("p").sharing(4))
    assert (explanation.config_name, explanation.config_text) == (rendered.name, rendered.text)


def test_without_a_winner_no_config_is_shown() -> None:
    explanation = explained(make_policy("dry").dry_run())
    assert (explanation.config_name, explanation.config_text) == ("", "")


nodes = st.builds(
    lambda product, skip, gpu: (lambda node: node.skipped() if skip else node)(
        make_node().model(product) if gpu else make_node().without("nvidia.com/gpu.product")
    ).build(),
    st.sampled_from(["NVIDIA-L4", "NVIDIA-L4-SHARED", "NVIDIA-A100-SXM4-80GB"]),
    st.booleans(),
    st.sampled_from([True, True, False]),
)
policies = st.lists(st.one_of(specs, st.just({"nodeSelector": {"x": 1}})), max_size=5).map(
    lambda drawn: [make_policy(f"p{n}").with_spec(**spec).born(ago(days=n % 2)).build() for n, spec in enumerate(drawn)]
)


@given(nodes, policies, st.data())
def test_it_explains_the_very_assignment_that_is_made(node: Node, drawn: list[Policy], data: st.DataObject) -> None:
    candidates = ranked(*drawn)
    holder = data.draw(st.sampled_from([None, *candidates]))
    assignment = assign(node, candidates, holder=holder)
    explanation = explain(node, candidates, holder=holder, reports_gpus=False)
    assert explanation.outcome is assignment.outcome
    assert explanation.winner == (assignment.policy.name if assignment.policy else "")
    assert tuple(c.policy for c in explanation.considered if c.matches) == assignment.matched
    owners = [c.policy for c in explanation.considered if c.why == "owns the node"]
    assert owners == ([explanation.winner] if assignment.outcome is Outcome.OWNED else [])
    tied = [c.policy for c in explanation.considered if "ties on priority" in c.why]
    assert tied == list(assignment.tied)
    assert all(c.why for c in explanation.considered)
    assert explanation.rule
