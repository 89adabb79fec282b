"""docs/reference/lint.md is true: each row of its tables, and its example word for word."""

import re
from pathlib import Path

import pytest

from gpusharing.api.lint import LintFinding
from gpusharing.core.lint import lint

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "lint.md").read_text()
POLICY = "{{apiVersion: gpusharing.io/v1alpha1, kind: GpuSharingPolicy, metadata: {{name: a}}, spec: {}}}"


SECTIONS = [section for section in PAGE.split("\n## ") if "| you write |" in section]


def rows() -> list[tuple[str, str]]:
    """Every row of a table with the columns `you write` and `lint`: the text to look at, and the severity."""
    found = []
    for section in SECTIONS:
        for written, severity in re.findall(r"^\| `([^`]+)` \|.*?\| (error|warning|hint) \|", section, re.MULTILINE):
            spec = written if written.startswith("{") else f"{{{written}}}"
            found.append((POLICY.format(spec) if section.startswith("Policies") else written, severity))
    return found


def severity_of(findings: list[LintFinding]) -> str:
    severities = {finding.severity for finding in findings}
    return next((severity for severity in ("error", "warning", "hint") if severity in severities), "")


@pytest.mark.parametrize(("text", "severity"), rows(), ids=lambda value: value[:60])
def test_a_row_of_the_page_is_what_lint_says(text: str, severity: str) -> None:
    findings = lint([("f", text)], "per-node")
    assert severity_of(findings) == severity, findings


def test_no_row_is_left_out() -> None:
    assert len(rows()) == sum(section.count("\n| `") for section in SECTIONS) > 40


def test_the_example_of_the_page_is_word_for_word() -> None:
    config, printed = re.findall(r"^```(?:yaml|console)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = []
    for finding in lint([("config.yaml", config)], "per-node"):
        lines += [
            f"config.yaml:{finding.line}: {finding.severity}: [{finding.config}] {finding.path}: {finding.message}"
        ]
        lines += [f"  hint: {finding.hint}"]
    assert printed.splitlines()[1:-1] == lines


def test_every_field_of_a_finding_is_told() -> None:
    told = PAGE.partition("## For programs")[2]
    assert [name for name in LintFinding.model_fields if f"| `{name}` |" not in told] == []
