"""Every sample is what it says: accepted as it stands, refused when a field is misspelt."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster.api import POLICIES, ApiStatusError, placements
from tests.support.fleet import Fleet
from tests.support.install import ROOT

from gpusharing.api import names
from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.api.policy import PolicyObject
from gpusharing.api.problems import parse
from gpusharing.core.checks.policy import check_spec
from gpusharing.core.placement.plan import Plan, Refusal
from gpusharing.core.placement.planner import place
from gpusharing.core.placement.problems import Code
from gpusharing.core.placement.request import Request

IN_DEFAULT = placements("default")
FOLDER = ROOT / "config" / "samples"
PLACEMENTS = FOLDER / "placements"
SAMPLES = sorted(
    path for folder in (FOLDER, PLACEMENTS) for path in folder.glob("*.yaml") if path.name != "kustomization.yaml"
)
# not to be applied: what `kubectl gpusharing place` is shown with
OFFLINE = sorted((ROOT / "config" / "placements").glob("*.yaml"))
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)


def test_there_are_at_least_eight_samples() -> None:
    assert len(SAMPLES) >= 8


def test_every_sample_is_accepted_under_strict_validation(fleet: Fleet) -> None:
    for sample in [*SAMPLES, *OFFLINE]:
        for said in _objects(sample):
            where = _collection(said)
            made = fleet.api.create(where, _in_default(said), fieldValidation="Strict")
            assert _said(said["spec"], made["spec"]), sample


@each_sample
def test_a_sample_is_accepted_by_the_models_and_their_checks(sample: Path) -> None:
    for said in _objects(sample):
        if said["kind"] == names.PLACEMENT_KIND:
            refusal = place(Request(PlacementSpec.model_validate(said["spec"])))
            assert not isinstance(refusal, Refusal), refusal
            continue
        parsed, problems = parse(PolicyObject, said)
        assert parsed is not None, problems
        assert [str(problem) for problem in check_spec(parsed.spec) if problem.severity == "error"] == []


def test_of_the_samples_of_placements_packed_leaves_room_and_distributed_does_not() -> None:
    """On a node of four GPUs with four notebooks, as the policy of each lays them out."""
    for story, in_use in (("packed-leaves-room", (4, 0, 0, 0)), ("distributed-leaves-none", (1, 1, 1, 1))):
        policy, placement = _objects(PLACEMENTS / f"{story}.yaml")
        labels = policy["spec"]["nodeSelector"]["matchLabels"]
        assert policy["spec"]["allowPlacements"] is True
        gpus = [{"index": index, "shares": 4, "inUse": held} for index, held in enumerate(in_use)]
        inventory = Inventory.model_validate({"nodes": [{"name": "gpu-a", "labels": labels, "gpus": gpus}]})
        outcome = place(Request(PlacementSpec.model_validate(placement["spec"])), inventory)
        if story == "packed-leaves-room":
            assert isinstance(outcome, Plan)
            assert [slot.free for slot in outcome.slots] == [()]
        else:
            assert isinstance(outcome, Refusal)
            [error] = outcome.errors
            assert (error.code, "the packed policy would hold them on 1" in error.hint) == (Code.UNPLACEABLE, True)


def test_a_sample_with_a_misspelt_field_is_refused(fleet: Fleet) -> None:
    for sample in SAMPLES:
        for said in _objects(sample):
            for path, misspelt in _misspellings(said["spec"]):
                wrong = {**_in_default(said), "spec": misspelt}
                with pytest.raises(ApiStatusError, match=re.escape(f'unknown field "spec.{path}"')) as refusal:
                    fleet.api.create(_collection(said), wrong, fieldValidation="Strict", dryRun="All")
                assert refusal.value.status == 400


@each_sample
def test_a_sample_opens_with_one_paragraph_that_tells_its_story(sample: Path) -> None:
    comment, _, rest = sample.read_text().partition("apiVersion:")
    lines = comment.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("# ") for line in lines), "one paragraph of comment, then the object"
    assert "\n#" not in rest
    assert _objects(sample)[0]["metadata"]["name"] == sample.stem


def test_all_samples_can_be_applied_at_once(fleet: Fleet) -> None:
    for folder in (FOLDER, PLACEMENTS):
        fleet.cluster.kubectl("apply", "-k", str(folder))
    there = {item["metadata"]["name"] for where in (POLICIES, IN_DEFAULT) for item in fleet.api.list(where)}
    assert there == {said["metadata"]["name"] for sample in SAMPLES for said in _objects(sample)}


def _objects(sample: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(sample.read_text()))


def _collection(said: dict[str, Any]) -> str:
    return IN_DEFAULT if said["kind"] == names.PLACEMENT_KIND else POLICIES


def _in_default(said: dict[str, Any]) -> dict[str, Any]:
    """The object without the namespace that a file names, which is not there."""
    return {**said, "metadata": {"name": said["metadata"]["name"]}}


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
