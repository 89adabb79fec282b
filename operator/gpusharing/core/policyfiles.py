"""Policies as they stand in files: every problem of one, and what several have against one another."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpusharing.api import names
from gpusharing.api.policy import PolicyObject, PolicySpec
from gpusharing.api.problems import Problem, parse, quoted
from gpusharing.core.checks.advice import advise
from gpusharing.core.checks.policy import check_spec
from gpusharing.core.desired_state import Layout, render
from gpusharing.core.matching import Selector, Term

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a valid policy asks for: its config, for the nodes that all its terms name."""

    name: str
    priority: int
    digest: str
    terms: frozenset[Term]


def name_of(policy: Mapping[str, Any]) -> str:
    """Return the policy's name; empty where it has none."""
    metadata = policy.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def check(policy: Mapping[str, Any], layout: Layout) -> tuple[Claim | None, list[Problem]]:
    """Return everything that is wrong with a policy of a file; and its claim, if it may be enforced."""
    _, problems = parse(PolicyObject, policy)
    problems += _name(name_of(policy))
    spec = _readable(policy.get("spec"))
    if spec is None:
        return None, problems
    problems += check_spec(spec)
    if any(problem.severity == "error" for problem in problems):
        return None, problems
    problems += advise(spec, layout)
    if spec.mode != "enforce":
        return None, problems
    terms = frozenset(Selector.of(spec.node_selector).terms)
    return Claim(name_of(policy), spec.priority, render(spec, layout).digest, terms), problems


def _readable(spec: Any) -> PolicySpec | None:
    """Return the spec without its unknown fields, so that one typo does not hide what else is wrong."""
    try:
        return PolicySpec.model_validate(spec, extra="ignore")
    except ValidationError:
        return None


def _name(name: str) -> Iterator[Problem]:
    if not name:
        yield Problem("metadata.name", "missing", "every policy has a name")
    elif len(name) > names.DNS_SUBDOMAIN_MAX or not _OBJECT_NAME.fullmatch(name):
        hint = "lower case letters, digits, - and ., beginning and ending with a letter or digit"
        yield Problem("metadata.name", f"{quoted(name)} cannot be a name", hint)


def ties(claims: Sequence[Claim]) -> Iterator[tuple[int, Problem]]:
    """Yield, by its place, each policy that surely meets an earlier one of equal priority with another config."""
    for place, claim in enumerate(claims):
        for earlier in claims[:place]:
            if claim.name == earlier.name:
                message = "this name stands twice: the policy applied last is the one that remains"
                yield place, Problem("metadata.name", message, "give each policy its own name", "warning")
                break
            if claim.priority == earlier.priority and claim.digest != earlier.digest and _nested(claim, earlier):
                message = f"the same as of {earlier.name}, which names these nodes too and wants another config"
                hint = "the older policy would own them: give one of the two a higher spec.priority"
                yield place, Problem("spec.priority", message, hint, "warning")
                break


def _nested(one: Claim, other: Claim) -> bool:
    """Whether every node that one of them names is named by the other."""
    return one.terms <= other.terms or other.terms <= one.terms
