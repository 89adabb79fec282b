import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import json_values, specs

from gpusharing.api.policy import PolicyObject, PolicySpec
from gpusharing.api.problems import Problem, dotted, nearest, parse, quoted
from gpusharing.api.reasons import Reason


def said(data: object) -> list[str]:
    return [str(problem) for problem in parse(PolicySpec, data, at="spec")[1]]


def sharing(**fields: Any) -> dict[str, Any]:
    resource = {"name": "nvidia.com/gpu", "replicas": 4}
    return {"nodeSelector": {}, "sharing": {"strategy": "mps", "resources": [resource], **fields}}


WRONG: dict[str, tuple[object, str]] = {
    "no mapping": ("x", 'spec: "x" is not a mapping'),
    "nothing": (None, "spec: null is not a mapping"),
    "required field missing": ({}, "spec.nodeSelector: missing. hint: nodeSelector is required"),
    "unknown field, near a known one": (
        {"nodeSelector": {}, "prioritty": 1},
        "spec.prioritty: unknown field. hint: did you mean priority?",
    ),
    "unknown field, near none": (
        {"nodeSelector": {}, "x": 1},
        "spec.x: unknown field. hint: known here: nodeSelector, priority, mode, migStrategy, allocation, sharing, "
        "adoptManual, allowPlacements, plugin",
    ),
    "unknown field in a list": (
        sharing(resources=[{"name": "nvidia.com/gpu", "replicas": 4, "replica": 2}]),
        "spec.sharing.resources[0].replica: unknown field. hint: did you mean replicas?",
    ),
    "a field of the Python model": (
        {"nodeSelector": {}, "adopt_manual": True},
        "spec.adopt_manual: unknown field. hint: did you mean adoptManual?",
    ),
    "another letter case": (
        {"nodeSelector": {}, "plugin": {"deviceIdStrategy": "uuid"}},
        "spec.plugin.deviceIdStrategy: unknown field. hint: did you mean deviceIDStrategy?",
    ),
    "text for a number": ({"nodeSelector": {}, "priority": "4"}, 'spec.priority: "4": must be a valid integer'),
    "a float for a number": ({"nodeSelector": {}, "priority": 4.0}, "spec.priority: 4.0: must be a valid integer"),
    "a boolean for a number": ({"nodeSelector": {}, "priority": True}, "spec.priority: true: must be a valid integer"),
    "a number for a boolean": ({"nodeSelector": {}, "adoptManual": 1}, "spec.adoptManual: 1: must be a valid boolean"),
    "text for a boolean": (
        {"nodeSelector": {}, "adoptManual": "true"},
        'spec.adoptManual: "true": must be a valid boolean',
    ),
    "a number for text": (
        {"nodeSelector": {"matchLabels": {"a": 1}}},
        "spec.nodeSelector.matchLabels.a: 1: must be a valid string",
    ),
    "a scalar for a list": (sharing(resources="all"), 'spec.sharing.resources: "all": must be a valid list'),
    "a list for a mapping": ({"nodeSelector": []}, "spec.nodeSelector: [] is not a mapping"),
    "a word outside the enum": (
        {"nodeSelector": {}, "migStrategy": "Mixed"},
        "spec.migStrategy: \"Mixed\" is not one of 'none', 'single' or 'mixed'",
    ),
    "a number too big": (
        {"nodeSelector": {}, "priority": 2**31},
        "spec.priority: 2147483648: must be less than or equal to 2147483647",
    ),
    "null for what has a default": (
        {"nodeSelector": {}, "allocation": None},
        "spec.allocation: null is not a mapping",
    ),
}


@pytest.mark.parametrize(("data", "want"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_with_its_place_and_a_hint(data: object, want: str) -> None:
    assert said(data) == [want]


def test_everything_is_said_at_once_and_in_the_order_of_the_text() -> None:
    spec = {
        "zone": "a",
        "priority": "high",
        "sharing": {"resources": [{"replicas": 2.0, "nam": "x"}], "strategy": "time-slicin"},
        "nodeSelector": {"matchLabelz": {}},
    }
    assert [line.split(":")[0] for line in said(spec)] == [
        "spec.zone",
        "spec.priority",
        "spec.sharing.resources[0].replicas",
        "spec.sharing.resources[0].nam",
        "spec.sharing.resources[0].name",
        "spec.sharing.strategy",
        "spec.nodeSelector.matchLabelz",
    ]


def test_problems_of_a_second_list_entry_come_after_those_of_the_first() -> None:
    resources = [{"name": 1, "replicas": 2}, {"name": "x", "replicas": "2"}, {"name": 3, "replicas": 4}]
    assert [line.split(":")[0] for line in said(sharing(resources=resources))] == [
        "spec.sharing.resources[0].name",
        "spec.sharing.resources[1].replicas",
        "spec.sharing.resources[2].name",
    ]


@given(json_values)
def test_whatever_is_parsed_either_the_model_comes_back_or_problems_do(data: object) -> None:
    model, problems = parse(PolicySpec, data)
    assert (model is None) == bool(problems)


@given(st.dictionaries(st.sampled_from(["nodeSelector", "priority", "sharing", "allocation", "plugin"]), json_values))
def test_the_same_input_has_the_same_problems_in_the_same_order(data: dict[str, Any]) -> None:
    assert said(data) == said(json.loads(json.dumps(data)))


@given(specs)
def test_a_valid_spec_comes_back_as_it_was_written(spec: dict[str, Any]) -> None:
    model, problems = parse(PolicySpec, spec)
    assert model is not None, problems
    written = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert written == spec


@pytest.mark.parametrize(
    "value",
    [{datetime.date(2026, 1, 1): "x"}, [{("a", "b"): 1}], {1: {2: 3}}],
    ids=["a date as key", "a tuple as key", "numbers as keys"],
)
def test_what_yaml_can_hold_and_json_cannot_is_a_problem_and_no_crash(value: object) -> None:
    assert said({"nodeSelector": {"matchLabels": value}})
    assert said({"nodeSelector": {}, "priority": value})


def test_a_value_that_holds_itself_is_a_problem_and_no_crash() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert said({"nodeSelector": {}, "priority": loop}) == ["spec.priority: a list: must be a valid integer"]


def test_metadata_may_hold_anything_that_the_api_server_knows() -> None:
    obj = {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuSharingPolicy",
        "metadata": {"name": "p", "annotations": {"a": "b"}, "managedFields": []},
        "spec": {"nodeSelector": {}},
    }
    assert parse(PolicyObject, obj)[1] == []


def test_a_file_of_another_kind_is_said_to_be_one() -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "spec": {"nodeSelector": {}}}
    assert [str(problem) for problem in parse(PolicyObject, obj)[1]] == [
        "apiVersion: \"v1\" is not one of 'gpusharing.io/v1alpha1'",
        "kind: \"ConfigMap\" is not one of 'GpuSharingPolicy'",
    ]


class TestProblem:
    def test_without_a_path_it_is_the_message_alone(self) -> None:
        assert str(Problem("", "empty")) == "empty"

    def test_the_hint_comes_last(self) -> None:
        assert str(Problem("spec.x", "unknown field", "did you mean y?")) == (
            "spec.x: unknown field. hint: did you mean y?"
        )

    def test_it_is_an_error_of_the_spec_unless_said_otherwise(self) -> None:
        assert (Problem("", "").severity, Problem("", "").reason) == ("error", Reason.INVALID_SPEC)


class TestQuoted:
    @given(st.text())
    def test_text_of_a_user_stays_on_one_line_and_short(self, text: str) -> None:
        assert "\n" not in quoted(text)
        assert "\r" not in quoted(text)
        assert len(quoted(text)) <= 80

    def test_what_was_cut_ends_in_dots(self) -> None:
        assert quoted("x" * 200).endswith("x…")

    def test_words_of_every_language_stay_readable(self) -> None:
        assert quoted("größer") == '"größer"'


class TestNearest:
    def test_it_ignores_letter_case(self) -> None:
        assert nearest("DEVICEIDSTRATEGY", ["deviceIDStrategy", "policy"]) == "deviceIDStrategy"

    def test_a_word_like_none_suggests_none(self) -> None:
        assert nearest("zzzz", ["priority", "mode"]) == ""


@pytest.mark.parametrize(
    ("path", "want"),
    [((), ""), (("a",), "a"), (("a", "b"), "a.b"), (("a", 0, "b"), "a[0].b"), (("a", 0, 1), "a[0][1]")],
    ids=repr,
)
def test_a_path_reads_as_people_write_it(path: tuple[str | int, ...], want: str) -> None:
    assert dotted(path) == want
