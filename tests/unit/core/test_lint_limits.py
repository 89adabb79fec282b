"""Lint of files that hold too much: it ends soon, says what it left out, and no error is lost."""

import pytest

from gpusharing.core.lint import CONFIGS_MAX, FINDINGS_MAX, lint


def counts(text: str) -> dict[str, int]:
    severities = [finding.severity for finding in lint([("f", text)], "per-node")]
    return {severity: severities.count(severity) for severity in ("error", "warning", "hint")}


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n---\n", "\ufeff"], ids=repr)
def test_an_empty_file_is_a_hint(text: str) -> None:
    assert counts(text) == {"error": 0, "warning": 0, "hint": 1}


def entries(count: int, more: str = "") -> str:
    listed = "    - {name: nvidia.com/gpus, replicas: 2}\n" * count
    return f"sharing:\n  timeSlicing:\n    resources:\n{listed}{more}"


def test_as_many_findings_as_are_allowed_are_all_told() -> None:
    # each entry is a resource that no GPU has, and from the second on one that stands twice
    assert counts(entries(FINDINGS_MAX // 2)) == {"error": 0, "warning": FINDINGS_MAX - 1, "hint": 0}


def test_of_too_many_findings_the_errors_are_kept_and_the_rest_is_counted() -> None:
    found = lint([("f", entries(FINDINGS_MAX, "    - {name: nvidia.com/gpu, replicas: 1}\n"))], "per-node")
    assert len(found) == FINDINGS_MAX + 1
    assert [finding.path for finding in found if finding.severity == "error"] == [
        f"sharing.timeSlicing.resources[{FINDINGS_MAX}].replicas"
    ]
    [left_out] = [finding for finding in found if finding.severity == "hint"]
    assert left_out.message == f"{FINDINGS_MAX} more findings are left out"


def test_of_too_many_equal_keys_the_first_are_told_and_what_broke_the_text_too() -> None:
    text = "a: 1\n" * (FINDINGS_MAX + 10)
    assert counts(text)["warning"] == FINDINGS_MAX + 1 + 1  # the last one of them, and the unknown key itself
    assert counts(f"{text}b: [\n")["error"] == 1


@pytest.mark.parametrize(
    ("head", "entry", "path"),
    [
        ("kind: ConfigMap\ndata:\n", "  k{}: 'sharing: null'\n", "data"),
        ("kind: List\nitems:\n", "- {{kind: ConfigMap, data: {{k{}: 'sharing: null'}}}}\n", "items"),
    ],
    ids=["configs", "objects"],
)
def test_more_entries_than_are_looked_at_are_an_error_that_counts_them(head: str, entry: str, path: str) -> None:
    text = head + "".join(entry.format(number) for number in range(CONFIGS_MAX))
    assert counts(text) == {"error": 0, "warning": 0, "hint": 0}
    [error] = lint([("f", text + entry.format(CONFIGS_MAX))], "per-node")
    assert (error.severity, error.path) == ("error", path)
    assert error.message == f"{CONFIGS_MAX + 1} entries: only the first {CONFIGS_MAX} were looked at"
