"""Kubernetes' own shapes, as far as our kinds use them: condition, label selector, object metadata."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

LABEL_KEY_MAX = 317  # DNS subdomain of 253, a slash, a name of 63
# Prefix and name as Kubernetes takes them; RE2 and Python read this alike (no lookaround, no final newline: fullmatch).
LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
LABEL_KEY_MESSAGE = "not a label key"
LABEL_KEY_HINT = "a key is a name of letters, digits, -, _ and ., with an optional DNS prefix and a slash before it"
VALUES_MESSAGE = "values must be set for the operators In and NotIn, and only for them"

_A_LABEL_KEY = f"size(k) <= {LABEL_KEY_MAX} && k.matches('{LABEL_KEY_PATTERN}')"
# A structural schema has no pattern for the keys of a map (`propertyNames`), so CEL says it.
LABEL_KEYS_RULE: dict[str, Any] = {
    "rule": f"self.all(k, {_A_LABEL_KEY})",
    "message": LABEL_KEY_MESSAGE,
    "messageExpression": f"'\"' + self.filter(k, !({_A_LABEL_KEY}))[0] + '\" is {LABEL_KEY_MESSAGE}: {LABEL_KEY_HINT}'",
}


class Model(BaseModel):
    """Base of everything users write: camelCase on the wire, frozen, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True)

    def to_wire(self) -> dict[str, Any]:
        """Return the plain dict as Kubernetes shows it, without what was not said."""
        wire: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return wire


class Report(Model):
    """Base of everything we read back: unknown fields of a newer version are ignored."""

    model_config = ConfigDict(extra="ignore", strict=False)


def rfc3339(moment: datetime) -> str:
    """Return the moment as Kubernetes writes times: UTC, whole seconds, `Z`."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


Timestamp = Annotated[datetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
LabelKey = Annotated[str, Field(min_length=1, max_length=LABEL_KEY_MAX, pattern=LABEL_KEY_PATTERN)]
LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE_PATTERN)]
ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Report):
    """One observation about an object, in the shape of `metav1.Condition`."""

    type: str = Field(description="What is observed, for example Ready.", min_length=1, max_length=316)
    status: ConditionStatus = Field(description="Whether it is so: True, False or Unknown.")
    reason: str = Field(
        description="One CamelCase word that says why; docs/troubleshooting has a page for each.",
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    )
    message: str = Field(default="", description="A sentence for people, with names and numbers.", max_length=32768)
    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that this was computed from.", ge=0
    )
    last_transition_time: Timestamp = Field(description="When the status last changed from one value to another.")


class LabelSelectorRequirement(Model):
    """One term of a label selector."""

    key: LabelKey = Field(description="The label's key, for example nvidia.com/gpu.product.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label is compared with the values."
    )
    values: list[LabelValue] | None = Field(
        default=None,
        description="The values for In and NotIn; absent for Exists and DoesNotExist.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    @property
    def values_fit(self) -> bool:
        """Whether there are values exactly where the operator needs some."""
        return (self.operator in {"In", "NotIn"}) == bool(self.values)


def values_fit(selector: str) -> str:
    """Return the CEL test whether the terms of a selector have values exactly where their operator needs some."""
    return (
        f"!has({selector}.matchExpressions) || {selector}.matchExpressions.all(e, "
        "(e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))"
    )


class LabelSelector(Model):
    """Which objects are meant, by their labels; all terms must hold."""

    match_labels: dict[Annotated[str, Field(max_length=LABEL_KEY_MAX)], LabelValue] | None = Field(
        default=None,
        description="Labels that must be there with exactly this value.",
        max_length=32,
        json_schema_extra={"x-kubernetes-validations": [LABEL_KEYS_RULE]},
    )
    match_expressions: list[LabelSelectorRequirement] | None = Field(
        default=None,
        description="Terms that must all hold.",
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
