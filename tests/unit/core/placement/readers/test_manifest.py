"""A file of ours: one GpuPlacement among whatever else, or a bare spec."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.core.placement.readers.manifest import Manifest, read

SPEC = "pools: [{name: gpu, gpusPerNode: 4}]\nservices: [{name: a, gpus: 1}]\n"
PLACEMENT = (
    "apiVersion: gpusharing.io/v1alpha1\nkind: GpuPlacement\nmetadata: {name: rl-eval, namespace: team-a}\n"
    "spec: {pools: [{name: gpu, gpusPerNode: 4}], services: [{name: a, gpus: 1}]}\n"
)
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n"


def right(text: str) -> Manifest:
    found = read(text)
    assert isinstance(found, Manifest), found
    return found


def wrong(text: str) -> list[str]:
    found = read(text)
    assert isinstance(found, tuple), found
    return [str(problem) for problem in found]


def test_a_manifest_has_a_name_and_a_namespace() -> None:
    found = right(PLACEMENT)
    assert (found.name, found.namespace, found.spec.services[0].name) == ("rl-eval", "team-a", "a")


def test_a_bare_spec_has_neither() -> None:
    assert right(SPEC) == Manifest(right(PLACEMENT).spec)


def test_json_is_read_too() -> None:
    assert right(json.dumps({"pools": [{"name": "gpu"}], "services": [{"name": "a", "gpus": 1}]}))


def test_what_a_cluster_adds_does_not_matter() -> None:
    saved = PLACEMENT.replace("namespace: team-a", "namespace: team-a, uid: u, generation: 3") + "status: {x: 1}\n"
    assert right(saved) == right(PLACEMENT)


@pytest.mark.parametrize(
    "text",
    [f"{SERVICE}---\n{PLACEMENT}", f"---\n{PLACEMENT}---\n", f"kind: List\nitems:\n- {json.dumps({'kind': 'Pod'})}\n"],
)
def test_other_documents_do_not_matter(text: str) -> None:
    if "List" in text:
        assert wrong(text) == ["InvalidDocument: 0 documents of kind GpuPlacement, expected exactly one"]
    else:
        assert right(text) == right(PLACEMENT)


@pytest.mark.parametrize(
    ("text", "count"), [(f"{PLACEMENT}---\n{PLACEMENT}", 2), (SERVICE, 0), (f"{SPEC}---\n{SPEC}", 0)]
)
def test_exactly_one_placement_is_expected(text: str, count: int) -> None:
    assert wrong(text) == [f"InvalidDocument: {count} documents of kind GpuPlacement, expected exactly one"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "null, expected a mapping"),
        ("[]", "[], expected a mapping"),
        ("just text", '"just text", expected a mapping'),
        (SPEC.replace("gpus: 1", "gpus: -1"), "spec.services[0].gpus: -1, expected an integer 0-4096"),
        (SPEC.partition("services")[0] + "services: []", "spec.services: [], expected at least 1 entry"),
        (PLACEMENT.replace("v1alpha1", "v2"), 'apiVersion: "gpusharing.io/v2", expected gpusharing.io/v1alpha1'),
        (
            PLACEMENT.replace("rl-eval", "rl.eval"),
            'metadata.name: "rl.eval", expected a name of at most 63 lower-case letters, digits and -',
        ),
        ("pools: [", "line 1: "),
        (SPEC + "lead: a\nlead: b\n", "line 4: lead: the key stands twice"),
    ],
)
def test_what_is_no_placement_is_an_invalid_document(text: str, want: str) -> None:
    (said,) = wrong(text)
    assert said.startswith(f"InvalidDocument: {want}"), said


def test_ten_thousand_services_are_too_many() -> None:
    text = f"pools: [{{name: gpu}}]\nservices: [{','.join(['{}'] * 10_000)}]"
    assert wrong(text) == ["InvalidDocument: spec.services: 10000 services, at most 64"]


def test_everything_wrong_is_said_at_once() -> None:
    broken = PLACEMENT.replace("gpusharing.io/v1alpha1", "v1").replace("gpus: 1", "gpus: -1, colour: red")
    assert len(wrong(broken)) == 3


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=60))
def test_any_text_has_an_answer(text: str) -> None:
    read(text)
