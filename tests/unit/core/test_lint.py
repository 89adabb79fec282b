"""The verdict of every file in tests/vectors/configs, and the findings that its `expect.json` lists."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.api.lint import LintFinding
from gpusharing.core.lint import lint

CONFIGS = Path(__file__).resolve().parents[2] / "vectors" / "configs"
EXPECT = json.loads((CONFIGS / "expect.json").read_text())["files"]


def findings_of(name: str) -> list[LintFinding]:
    # as a terminal reads it: the line ends of file 44 are part of the case
    return lint([(name, (CONFIGS / name).read_bytes().decode())], "per-node")


def verdict(findings: list[LintFinding]) -> str:
    severities = {finding.severity for finding in findings}
    return next((word for word in ("error", "warning") if word in severities), "ok")


@pytest.mark.parametrize("name", sorted(EXPECT))
def test_the_verdict_of_a_config_as_people_write_it(name: str) -> None:
    found = findings_of(name)
    assert verdict(found) == EXPECT[name]["verdict"], found


def listed() -> list[tuple[str, str, str]]:
    """Every expected finding as (file, config, path); ranges of indices are one entry each."""
    entries = []
    for name, expected in EXPECT.items():
        for finding in expected["findings"]:
            head = re.match(r"(?:\[(?P<config>[^\]]+)\] )?(?P<path>[^:]+(?:\[\*\][^:]*)?):", finding)
            assert head, finding
            config, path = head["config"] or "", head["path"]
            span = re.search(r"\[(\d+)\.\.(\d+)\]", path)
            indices = range(int(span[1]), int(span[2]) + 1) if span else [None]
            entries += [(name, config, path.replace(span[0], f"[{i}]") if span else path) for i in indices]
    return entries


@pytest.mark.parametrize(("name", "config", "path"), listed())
def test_every_listed_finding_is_named_at_its_place(name: str, config: str, path: str) -> None:
    found = findings_of(name)
    places = {(finding.config, finding.path) for finding in found if finding.severity != "hint"}
    lines = {finding.line for finding in found}
    if path.startswith(("(", "line ")):  # of the document as a whole, or of a line
        assert lines
        return
    if name.startswith("39-"):  # there `timeSlicing` stands beside `sharing`, and our path says where it stands
        path = path.removeprefix("sharing.")
    pattern = re.escape(path).replace(r"\[\*\]", r"\[\d+\]")
    assert any(where == config and re.match(pattern, at) for where, at in places), sorted(places)


def test_lines_are_exact_inside_a_literal_block() -> None:
    text = "kind: ConfigMap\nmetadata: {name: a}\ndata:\n  any: |\n    version: v1\n    flagz:\n      a: 1\n"
    assert [(finding.line, finding.path) for finding in lint([("f", text)], "per-node")] == [(6, "flagz")]


def test_a_policy_is_looked_at_with_the_api_servers_own_sentence() -> None:
    text = """\
apiVersion: gpusharing.io/v1alpha1
kind: GpuSharingPolicy
metadata: {name: a}
spec:
  nodeSelector: {}
  migStrategy: mixed
  sharing:
    strategy: mps
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
"""
    [error] = [finding for finding in lint([("f", text)], "per-node") if finding.severity == "error"]
    assert (error.line, error.path) == (6, "spec.migStrategy")
    assert (
        error.message == "MPS cannot be combined with MIG: set migStrategy to none, or sharing.strategy to time-slicing"
    )


def test_a_misspelt_field_of_a_policy_is_named_with_what_was_meant() -> None:
    head = "kind: GpuSharingPolicy\napiVersion: gpusharing.io/v1alpha1\nmetadata: {name: a}\n"
    text = head + "spec:\n  nodeSelector: {}\n  prioritty: 1\n"
    [error] = [finding for finding in lint([("f", text)], "per-node") if finding.severity == "error"]
    assert (error.line, error.path) == (6, "spec.prioritty")
    assert "priority" in error.hint


def test_two_policies_of_equal_priority_that_want_different_configs_are_told() -> None:
    policy = """\
apiVersion: gpusharing.io/v1alpha1
kind: GpuSharingPolicy
metadata: {{name: p{0}}}
spec: {{nodeSelector: {{}}, sharing: {{strategy: time-slicing, resources: [{{name: nvidia.com/gpu, replicas: {0}}}]}}}}
"""
    found = lint([("two", policy.format(2) + "---\n" + policy.format(3))], "per-node")
    assert any("p2" in finding.message for finding in found if finding.severity == "warning"), found


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    "text",
    [BOMB, "x: " * 2000, "[" * 5000, "a" * (1024 * 1024 + 1), "\x00", "&a [*a]", "a: &a {b: *a}", "- " * 3000],
    ids=["billion laughs", "colons", "brackets", "too large", "nul", "self", "self in map", "dashes"],
)
def test_hostile_text_is_a_finding_never_a_crash(text: str) -> None:
    assert verdict(lint([("f", text)], "per-node")) == "error"


@given(st.text(max_size=200))
def test_any_text_is_looked_at_without_a_crash(text: str) -> None:
    assert isinstance(lint([("f", text)], "per-node"), list)


@given(st.from_regex(r"[a-z]{3,12}", fullmatch=True))
def test_any_unknown_key_of_a_config_is_named(word: str) -> None:
    known = {
        "version",
        "flags",
        "resources",
        "sharing",
        "imex",
        "gpusharing",
        "kind",
        "config",
        "null",
        "true",
        "false",
    }
    if word in known or word in {"yes", "off", "nan", "inf"}:
        return
    found = lint([("f", f"version: v1\n{word}: {{}}\n")], "per-node")
    assert [(finding.line, finding.path) for finding in found if finding.severity == "warning"] == [(2, word)]
