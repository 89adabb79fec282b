"""The converter's rules, on small models of their own."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from gpusharing.api.crd import UnsupportedSchema, structural_schema


class Inner(BaseModel):
    """The inner one."""

    size: int = 3


def field(annotation: Any, **said: Any) -> dict[str, Any]:
    """The schema of one field."""
    model = type(
        "Model", (BaseModel,), {"__annotations__": {"it": annotation}, "it": Field(**said), "__module__": __name__}
    )
    schema: dict[str, Any] = structural_schema(model)["properties"]["it"]
    return schema


def test_a_reference_is_written_out_where_it_stands() -> None:
    assert field(Inner) == {
        "type": "object",
        "description": "The inner one.",
        "properties": {"size": {"type": "integer", "default": 3}},
    }


def test_what_the_field_says_wins_over_what_its_model_says() -> None:
    got = field(
        Inner, description="Mine.", default=Inner(size=4), json_schema_extra={"x-kubernetes-map-type": "atomic"}
    )
    assert got["description"] == "Mine."
    assert got["default"] == {"size": 4}
    assert got["x-kubernetes-map-type"] == "atomic"


def test_items_of_a_list_are_written_out_too() -> None:
    assert field(list[Inner])["items"]["properties"]["size"]["type"] == "integer"


def test_values_of_a_map_are_written_out_too() -> None:
    assert field(dict[str, Inner])["additionalProperties"]["properties"]["size"]["type"] == "integer"


def test_optional_is_the_type_itself_and_absent_instead_of_null() -> None:
    assert field(int | None, default=None) == {"type": "integer"}


def test_an_optional_model_keeps_the_field_s_description() -> None:
    got = field(Inner | None, default=None, description="Mine.")
    assert (got["type"], got["description"]) == ("object", "Mine.")
    assert "default" not in got


def test_a_default_that_says_something_stays() -> None:
    assert field(int, default=0) == {"type": "integer", "default": 0}
    assert field(bool, default=False) == {"type": "boolean", "default": False}
    assert field(list[int], default=[]) == {"type": "array", "items": {"type": "integer"}, "default": []}


def test_a_constant_is_an_enum_of_one() -> None:
    got = field(Literal["v1"])
    assert got["enum"] == ["v1"]
    assert "const" not in got


@pytest.mark.parametrize(
    "annotation",
    [int | str, list[int] | int, Inner | str | None],
    ids=["two scalars", "a list or its item", "a model or text"],
)
def test_a_union_has_no_structural_form(annotation: Any) -> None:
    with pytest.raises(UnsupportedSchema, match="union"):
        field(annotation, default=None)


def test_a_number_or_one_word_is_int_or_string_with_the_number_s_limits() -> None:
    got = field(Annotated[int, Field(ge=1, le=9)] | Literal["a.b"], default=1)
    assert got == {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "minimum": 1,
        "maximum": 9,
        "pattern": r"^a\.b$",
        "default": 1,
    }


def test_a_tuple_has_no_structural_form() -> None:
    with pytest.raises(UnsupportedSchema, match="tuples"):
        field(tuple[int, str])


def test_what_the_api_server_refuses_or_ignores_is_left_out() -> None:
    class Strict(BaseModel):
        """Strict."""

        model_config = ConfigDict(extra="forbid")

        it: str = Field(title="It", examples=["x"])
        keys: dict[Annotated[str, Field(max_length=3)], str] = Field(default={})

    schema = structural_schema(Strict)
    assert schema["properties"]["it"] == {"type": "string"}
    assert schema["properties"]["keys"] == {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "default": {},
    }
    assert set(schema) == {"description", "properties", "required", "type"}


@pytest.mark.parametrize(
    ("said", "kept"), [("int32", True), ("int64", True), ("date-time", True), ("uint8", False), ("path", False)]
)
def test_only_formats_that_the_api_server_knows_are_kept(said: str, kept: bool) -> None:
    got = field(int, json_schema_extra={"format": said})
    assert got.get("format") == (said if kept else None)


def test_limits_and_patterns_survive() -> None:
    got = field(str, min_length=1, max_length=5, pattern="^a+$")
    assert got == {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a+$"}


def test_extensions_survive_as_they_are() -> None:
    rule = {"x-kubernetes-validations": [{"rule": "self > 1", "message": "must be more than one"}]}
    assert field(int, json_schema_extra=rule)["x-kubernetes-validations"] == rule["x-kubernetes-validations"]
