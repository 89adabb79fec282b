"""Every sample is what it says: accepted as it stands, refused when a field is misspelt."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster.api import POLICIES, ApiStatusError
from tests.support.fleet import Fleet
from tests.support.install import ROOT

from gpusharing.api.policy import PolicyObject
from gpusharing.api.problems import parse
from gpusharing.core.checks.policy import check_spec

SAMPLES = sorted(path for path in (ROOT / "config" / "samples").glob("*.yaml") if path.name != "kustomization.yaml")
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)


def test_there_are_at_least_eight_samples() -> None:
    assert len(SAMPLES) >= 8


@each_sample
def test_a_sample_is_accepted_under_strict_validation(fleet: Fleet, sample: Path) -> None:
    for policy in _policies(sample):
        fleet.api.create(POLICIES, policy, fieldValidation="Strict", dryRun="All")
        created = fleet.api.create(POLICIES, policy, fieldValidation="Strict")
        assert _said(policy["spec"], created["spec"])


@each_sample
def test_a_sample_is_accepted_by_the_models_and_their_checks(sample: Path) -> None:
    for policy in _policies(sample):
        parsed, problems = parse(PolicyObject, policy)
        assert parsed is not None, problems
        assert [str(problem) for problem in check_spec(parsed.spec) if problem.severity == "error"] == []


@each_sample
def test_a_sample_with_a_misspelt_field_is_refused(fleet: Fleet, sample: Path) -> None:
    for policy in _policies(sample):
        for path, misspelt in _misspellings(policy["spec"]):
            with pytest.raises(ApiStatusError, match=re.escape(f'unknown field "spec.{path}"')) as refusal:
                fleet.api.create(POLICIES, {**policy, "spec": misspelt}, fieldValidation="Strict", dryRun="All")
            assert refusal.value.status == 400


@each_sample
def test_a_sample_opens_with_one_paragraph_that_tells_its_story(sample: Path) -> None:
    comment, _, rest = sample.read_text().partition("apiVersion:")
    lines = comment.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("# ") for line in lines), "one paragraph of comment, then the policy"
    assert "\n#" not in rest
    assert _policies(sample)[0]["metadata"]["name"] == sample.stem


def test_all_samples_can_be_applied_at_once(fleet: Fleet) -> None:
    fleet.cluster.kubectl("apply", "-k", str(ROOT / "config" / "samples"))
    names = {policy["metadata"]["name"] for policy in fleet.api.list(POLICIES)}
    assert names == {policy["metadata"]["name"] for sample in SAMPLES for policy in _policies(sample)}


def _policies(sample: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(sample.read_text()))


def _said(said: Any, stored: Any) -> bool:
    """Whether everything that the sample says stands in the stored object, beside defaults."""
    if isinstance(said, dict):
        return all(key in stored and _said(value, stored[key]) for key, value in said.items())
    if isinstance(said, list):
        return len(said) == len(stored) and all(map(_said, said, stored))
    return bool(said == stored)


def _misspellings(spec: Any, path: str = "") -> list[tuple[str, Any]]:
    """Where one field is misspelt beside the right one (so that nothing is missing), and the spec with it."""
    found = []
    for key, value in spec.items():
        if key == "matchLabels":
            continue  # its keys are the user's own
        here = f"{path}.{key}x" if path else f"{key}x"
        found.append((here, {**spec, f"{key}x": value}))
        if isinstance(value, dict):
            found += [(deep, {**spec, key: inner}) for deep, inner in _misspellings(value, here[:-1])]
        if isinstance(value, list) and isinstance(value[0], dict):
            deeper = _misspellings(value[0], f"{here[:-1]}[0]")
            found += [(deep, {**spec, key: [inner, *value[1:]]}) for deep, inner in deeper]
    return found
