"""Policies of files: each on its own, and against one another."""

import pytest

from gpusharing.core import policyfiles
from gpusharing.core.policyfiles import Claim, ties


def policy(**spec: object) -> dict[str, object]:
    return {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuSharingPolicy",
        "metadata": {"name": "a"},
        "spec": {"nodeSelector": {}, **spec},
    }


def errors(obj: dict[str, object]) -> list[str]:
    _, problems = policyfiles.check(obj, "per-node")
    return [problem.path for problem in problems if problem.severity == "error"]


def test_an_unknown_field_does_not_hide_what_else_is_wrong() -> None:
    assert errors(policy(prioritty=1, allocation={"policy": "spread", "keepTogether": "required"})) == [
        "spec.prioritty",
        "spec.allocation.keepTogether",
    ]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"apiVersion": "gpusharing.io/v1"}, "apiVersion"),
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": "A_b"}}, "metadata.name"),
        ({"metadata": {"name": "a" * 254}}, "metadata.name"),
        ({"spec": None}, "spec"),
        ({"spec": {}}, "spec.nodeSelector"),
        ({"specs": {}}, "specs"),
    ],
    ids=str,
)
def test_what_the_api_server_refuses_is_an_error(change: dict[str, object], path: str) -> None:
    assert errors({**policy(), **change}) == [path]


def claim_of(obj: dict[str, object]) -> Claim | None:
    return policyfiles.check(obj, "per-node")[0]


def test_a_dry_run_claims_nothing() -> None:
    assert claim_of(policy()) is not None
    assert claim_of(policy(mode="dry-run")) is None
    assert claim_of(policy(migStrategy="mix")) is None


def test_advice_takes_no_claim_away() -> None:
    made, problems = policyfiles.check(policy(allocation={"policy": "packed"}), "per-node")
    assert made is not None
    assert [problem.severity for problem in problems] == ["warning"]


def claim(name: str, labels: dict[str, str] | None = None, **spec: object) -> Claim:
    obj = policy(nodeSelector={"matchLabels": labels or {}}, **spec)
    made = claim_of({**obj, "metadata": {"name": name}})
    assert made is not None
    return made


MIXED = {"migStrategy": "mixed"}


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        ([claim("a"), claim("b", **MIXED)], [(1, "spec.priority")]),
        ([claim("a", {"x": "1"}), claim("b", **MIXED)], [(1, "spec.priority")]),
        (
            [claim("a"), claim("b", **MIXED), claim("c", migStrategy="single")],
            [(1, "spec.priority"), (2, "spec.priority")],
        ),
        ([claim("a"), claim("a", **MIXED)], [(1, "metadata.name")]),
        ([claim("a"), claim("b")], []),
        ([claim("a", priority=1), claim("b", **MIXED)], []),
        ([claim("a", {"x": "1"}), claim("b", {"x": "2"}, **MIXED)], []),
        ([claim("a", {"x": "1"}), claim("b", {"y": "1"}, **MIXED)], []),
    ],
    ids=["all nodes", "some of all", "three", "one name", "one config", "priority", "other nodes", "maybe others"],
)
def test_policies_that_surely_tie_are_told(claims: list[Claim], want: list[tuple[int, str]]) -> None:
    assert [(place, problem.path) for place, problem in ties(claims)] == want
    assert {problem.severity for _, problem in ties(claims)} <= {"warning"}
