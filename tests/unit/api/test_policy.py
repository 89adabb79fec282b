"""Laws of the policy's schema: what users meet in `kubectl explain`, and what bounds the cost of its CEL rules."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.builders import make_spec

from gpusharing.api.crd import gpu_node_crd, policy_crd
from gpusharing.api.policy import PolicySpec

JsonObject = dict[str, Any]


def schema_of(crd: JsonObject) -> JsonObject:
    (version,) = crd["spec"]["versions"]
    schema: JsonObject = version["schema"]["openAPIV3Schema"]
    return schema


def places(schema: JsonObject, path: str = "") -> Iterator[tuple[str, JsonObject]]:
    """Every place of a schema: fields, list items, map values."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from places(child, f"{path}.{name}")
    if "items" in schema:
        yield from places(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from places(schema["additionalProperties"], f"{path}.*")


POLICY = dict(places(schema_of(policy_crd())))
GPU_NODE = dict(places(schema_of(gpu_node_crd())))
SPEC = {path: place for path, place in POLICY.items() if path.startswith(".spec")}
EVERYWHERE = {f"{kind}{path}": place for kind, of in (("gsp", POLICY), ("gn", GPU_NODE)) for path, place in of.items()}
# Items of a list and values of a map are described by the field that holds them.
FIELDS = {
    path: place for path, place in EVERYWHERE.items() if not path.endswith(("]", ".*")) and ".metadata" not in path
}


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_says_what_it_is_in_a_sentence(path: str) -> None:
    assert FIELDS[path].get("description", "").strip().endswith("."), path


@pytest.mark.parametrize("path", [path for path, place in EVERYWHERE.items() if place.get("type") == "array"])
def test_every_list_says_how_it_is_merged(path: str) -> None:
    place = EVERYWHERE[path]
    assert place["x-kubernetes-list-type"] in {"atomic", "set", "map"}
    if place["x-kubernetes-list-type"] == "map":
        keys, item = place["x-kubernetes-list-map-keys"], place["items"]
        assert set(keys) <= set(item["properties"])
        assert all(key in item["required"] or "default" in item["properties"][key] for key in keys)


class TestEveryPlaceOfTheSpecIsBounded:
    @pytest.mark.parametrize("path", [path for path, place in SPEC.items() if place.get("type") == "array"])
    def test_lists(self, path: str) -> None:
        assert SPEC[path]["maxItems"] <= 64

    @pytest.mark.parametrize("path", [path for path, place in SPEC.items() if place.get("type") == "string"])
    def test_text(self, path: str) -> None:
        assert "enum" in SPEC[path] or SPEC[path]["maxLength"] <= 317

    @pytest.mark.parametrize("path", [path for path, place in SPEC.items() if "additionalProperties" in place])
    def test_maps(self, path: str) -> None:
        assert SPEC[path]["maxProperties"] <= 32

    @pytest.mark.parametrize("path", [path for path, place in SPEC.items() if place.get("type") == "integer"])
    def test_numbers(self, path: str) -> None:
        assert SPEC[path]["format"] == "int32"


def test_the_status_has_no_default_but_that_nobody_has_looked_yet() -> None:
    defaults = {
        path: place["default"] for path, place in EVERYWHERE.items() if ".status" in path and "default" in place
    }
    assert defaults == {"gsp.status": {"observedGeneration": 0}}


def test_nothing_is_preserved_that_the_schema_does_not_know() -> None:
    unknown = "x-kubernetes-preserve-unknown-fields"
    assert [path for path, place in EVERYWHERE.items() if unknown in place] == []


def test_defaults_are_nvidias_behaviour() -> None:
    spec = make_spec(sharing={"strategy": "time-slicing", "resources": [{"name": "nvidia.com/gpu", "replicas": 2}]})
    assert (spec.priority, spec.mode, spec.mig_strategy, spec.adopt_manual) == (0, "enforce", "none", False)
    assert spec.allocation.model_dump() == {"policy": "distributed", "keep_together": "none", "topology": "none"}
    assert spec.sharing is not None
    assert (spec.sharing.rename_by_default, spec.sharing.fail_requests_greater_than_one) == (False, None)
    assert spec.plugin is None


def test_the_flags_of_the_plugin_have_no_default() -> None:
    assert [path for path, place in SPEC.items() if path.startswith(".spec.plugin") and "default" in place] == []


def test_the_selector_is_the_only_field_that_must_be_written() -> None:
    assert SPEC[".spec"]["required"] == ["nodeSelector"]
    assert PolicySpec.model_validate({"nodeSelector": {}}, by_alias=True).sharing is None


def test_defaults_reach_every_level_of_an_empty_spec() -> None:
    allocation = SPEC[".spec.allocation"]
    assert "default" in allocation
    assert {name: child["default"] for name, child in allocation["properties"].items()} == {
        "policy": "distributed",
        "keepTogether": "none",
        "topology": "none",
    }


@pytest.mark.parametrize(
    ("crd", "want"),
    [
        (policy_crd(), ["Allocation", "Sharing", "MIG", "Nodes", "Applied", "Ready", "Status", "Age"]),
        (gpu_node_crd(), ["Model", "GPUs", "Desired", "Served", "InUse", "Ready", "Age"]),
    ],
    ids=["gsp", "gn"],
)
class TestPrinterColumns:
    def columns(self, crd: JsonObject) -> list[JsonObject]:
        (version,) = crd["spec"]["versions"]
        columns: list[JsonObject] = version["additionalPrinterColumns"]
        return columns

    def test_get_shows_those_of_the_design(self, crd: JsonObject, want: list[str]) -> None:
        assert [column["name"] for column in self.columns(crd) if not column.get("priority")] == want

    def test_an_age_is_a_date_or_it_prints_a_timestamp(self, crd: JsonObject, want: list[str]) -> None:
        assert {column["name"]: column["type"] for column in self.columns(crd)}["Age"] == "date"

    def test_each_points_at_a_field_that_there_is(self, crd: JsonObject, want: list[str]) -> None:
        known = dict(places(schema_of(crd)))
        for column in self.columns(crd):
            path = column["jsonPath"]
            if path.startswith(".metadata"):
                continue
            if ".conditions[" in path:
                path = ".status.conditions[]." + path.rpartition(".")[2]
            assert path.replace("[0]", "[]") in known, path


def test_the_wide_columns_are_priority_and_config() -> None:
    (version,) = policy_crd()["spec"]["versions"]
    assert [c["name"] for c in version["additionalPrinterColumns"] if c.get("priority")] == ["Priority", "Config"]


@pytest.mark.parametrize(
    ("crd", "plural", "short"),
    [(policy_crd(), "gpusharingpolicies", "gsp"), (gpu_node_crd(), "gpunodes", "gn")],
    ids=["gsp", "gn"],
)
def test_names_of_a_kind(crd: JsonObject, plural: str, short: str) -> None:
    spec = crd["spec"]
    assert (spec["names"]["plural"], spec["names"]["shortNames"]) == (plural, [short])
    assert (spec["names"]["categories"], spec["scope"]) == (["gpu"], "Cluster")
    assert crd["metadata"]["name"] == f"{plural}.gpusharing.io"
    assert spec["versions"][0]["subresources"] == {"status": {}}


def test_every_rule_has_a_sentence_for_people() -> None:
    rules = [rule for place in SPEC.values() for rule in place.get("x-kubernetes-validations", ())]
    assert len(rules) >= 9
    assert all(len(rule["message"]) > 10 for rule in rules)
