import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.builders import NOW

from gpusharing.api.meta import LABEL_KEY_PATTERN, LABEL_VALUE_PATTERN, Condition, LabelSelector, rfc3339

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=zones, min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)))
def test_a_moment_is_written_in_utc_and_read_back_to_the_second(moment: datetime) -> None:
    written = rfc3339(moment)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", written)
    assert datetime.fromisoformat(written) == moment.astimezone(UTC).replace(microsecond=0)


def test_a_moment_of_another_zone_is_not_mislabelled_as_utc() -> None:
    assert rfc3339(datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))) == "2025-12-31T23:30:00Z"


def test_a_condition_is_shown_as_kubernetes_shows_it() -> None:
    condition = Condition(
        type="Ready",
        status="True",
        reason="Applied",
        message="4 of 4.",
        observed_generation=3,
        last_transition_time=NOW,
    )
    assert condition.to_wire() == {
        "type": "Ready",
        "status": "True",
        "reason": "Applied",
        "message": "4 of 4.",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-11-30T12:00:00Z",
    }
    assert Condition.model_validate(condition.to_wire()) == condition


def test_a_condition_of_a_newer_version_is_read_without_its_new_fields() -> None:
    wire = Condition(type="Ready", status="True", reason="Applied", last_transition_time=NOW).to_wire()
    assert Condition.model_validate({**wire, "severity": "low"}).type == "Ready"


def test_values_cannot_be_changed_once_made() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        LabelSelector().match_labels = {"a": "b"}  # type: ignore[misc]


KEYS = {
    "a": True,
    "team": True,
    "example.com/team": True,
    "nvidia.com/gpu.product": True,
    "A_b-c.d": True,
    "a" * 63: True,
    "a" * 64: False,
    "": False,
    "/a": False,
    "a/": False,
    "a/b/c": False,
    "UPPER.com/a": False,
    "-a": False,
    "a-": False,
    "a b": False,
    "a\n": False,
    "é": False,
}


@pytest.mark.parametrize(("key", "valid"), KEYS.items(), ids=[repr(key)[:30] for key in KEYS])
def test_label_keys_are_those_of_kubernetes(key: str, valid: bool) -> None:
    assert bool(re.fullmatch(LABEL_KEY_PATTERN, key)) is valid


VALUES = {"": True, "a": True, "A.b_c-d": True, "-a": False, "a-": False, "a/b": False, "a b": False}


@pytest.mark.parametrize(("value", "valid"), VALUES.items(), ids=[repr(value) for value in VALUES])
def test_label_values_are_those_of_kubernetes(value: str, valid: bool) -> None:
    assert bool(re.fullmatch(LABEL_VALUE_PATTERN, value)) is valid
