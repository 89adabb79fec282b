"""The 50 configs of tests/vectors/configs: exactly the listed findings, each at its place, and nothing else.

`tests/unit/core/test_lint.py` holds the verdicts. Here every finding of `expect.json` is matched by config and path,
and every error or warning of ours must be listed there: no false alarms.
"""

import json
import re
from pathlib import Path

import pytest

from gpusharing.api.lint import LintFinding
from gpusharing.core.lint import lint

CONFIGS = Path(__file__).resolve().parents[3] / "vectors" / "configs"
EXPECT = json.loads((CONFIGS / "expect.json").read_text())["files"]

# Where the list names a place in other words: file and listed path → the paths that we name.
IN_OTHER_WORDS = {
    ("05", "(document)"): [""],
    ("46", "(second document)"): [""],
    # the mark of a syntax error: what stands there is the text before it
    ("43", "line 3"): ["sharing"],
    # in the file as it is written timeSlicing stands beside sharing, not below it
    ("39", "sharing.timeSlicing.resources[0].replicas"): ["timeSlicing.resources[0].replicas"],
    # three times the same: the second and the third are named
    ("37", "sharing.timeSlicing.resources"): ["sharing.timeSlicing.resources[1]", "sharing.timeSlicing.resources[2]"],
}


def findings_of(file: str) -> list[LintFinding]:
    return lint([(file, (CONFIGS / file).read_bytes().decode())], "per-node")


def places(file: str, listed: str) -> list[tuple[str, str, str]]:
    """Return severity, config and path of each place that a listed finding speaks of."""
    head = re.match(r"(?:\[(?P<config>[^]]+)] )?(?P<path>[^:]+?): (?P<text>.*)", listed)
    assert head, listed
    config, path = head["config"] or "", head["path"]
    ignored = re.search(r"ignored|unknown key|reset to all|never|only the first", head["text"])
    severity = "warning" if ignored or EXPECT[file]["verdict"] == "warning" else "error"
    if "the same resource" in listed or "at the top level instead" in listed:
        severity = "warning"
    if (words := IN_OTHER_WORDS.get((file[:2], path))) is not None:
        return [(severity, config, word) for word in words]
    if span := re.search(r"\[(\d+)\.\.(\d+)]", path):
        numbers = range(int(span[1]), int(span[2]) + 1)
        return [(severity, config, path.replace(span[0], f"[{number}]")) for number in numbers]
    if "[*]" in path:
        return [(severity, config, path.replace("[*]", f"[{number}]")) for number in (0, 1)]
    return [(severity, config, path)]


@pytest.mark.parametrize("file", sorted(EXPECT))
def test_exactly_the_listed_findings_are_made(file: str) -> None:
    want = {place for listed in EXPECT[file]["findings"] for place in places(file, listed)}
    got = {(found.severity, found.config, found.path) for found in findings_of(file) if found.severity != "hint"}
    assert got == want


@pytest.mark.parametrize(
    ("file", "config", "path"),
    [
        ("02", "any", "sharing.timeSlicing.resources[0].replicas"),
        ("08", "default", "flags.migStrategy"),
        ("08", "default", "flags.failOnInitError"),
        ("26", "a100-40gb", "flags.migStrategy"),
        ("28", "", "sharing.mps.failRequestsGreaterThanOne"),
        ("31", "default", "sharing.mps.failRequestsGreaterThanOne"),
        ("31", "", "gfd.enabled"),
        ("49", "bare", "sharing.timeSlicing.resources[0].name"),
    ],
)
def test_every_listed_hint_is_given(file: str, config: str, path: str) -> None:
    [name] = [name for name in EXPECT if name.startswith(file)]
    assert EXPECT[name]["hints"]
    assert ("hint", config, path) in {(found.severity, found.config, found.path) for found in findings_of(name)}


@pytest.mark.parametrize(
    ("file", "path", "word"),
    [
        ("02", "flags.renameByDefault", "renameByDefault: true"),
        ("03", "", ""),
        ("14", "sharing.timeSlicing.replicas", "replicas: 4"),
        ("18", "sharing.timeSlicing.replicas", "replicas: 8"),
        ("21", "resources.gpus", '"gpus"'),
        ("36", "sharing.timeSlicing.resources[1].rename", "nvidia.com/gpu-1"),
        ("39", "timeSlicing.resources[0].replicas", "replicas: 10"),
        ("43", "sharing", "\ttimeSlicing"),
        ("44", "", ""),
        ("07", "sharing.mps.resources[0].replicas", "{{ GPU_REPLICAS }}"),
        ("05", "config.default", "default: |-"),
        ("31", "sharing.mps.failRequestsGreaterThanOne", 'default: "version'),
    ],
)
def test_the_line_is_the_one_that_says_it(file: str, path: str, word: str) -> None:
    [name] = [name for name in EXPECT if name.startswith(file)]
    lines = (CONFIGS / name).read_bytes().decode().replace("\r\n", "\n").split("\n")
    first = next((found for found in findings_of(name) if found.path == path and path), None)
    assert (first is None) == (not path)
    assert first is None or word in lines[first.line - 1]


def test_line_ends_change_nothing() -> None:
    text = (CONFIGS / "36-one-resource-per-gpu-index.yaml").read_text()
    windows = text.replace("\n", "\r\n")
    assert lint([("f", windows)], "per-node") == lint([("f", text)], "per-node")
