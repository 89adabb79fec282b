import re

import pytest
from tests.support.builders import NOW

from gpusharing.api.meta import Condition
from gpusharing.api.reasons import ConditionType, Reason
from gpusharing.core.progress import Progress


@pytest.mark.parametrize("reason", list(Reason), ids=str)
class TestReason:
    def test_it_is_one_camel_case_word(self, reason: Reason) -> None:
        assert re.fullmatch(r"([A-Z][a-z]+)+", reason.replace("CRD", "Crd"))

    def test_a_condition_takes_it(self, reason: Reason) -> None:
        condition = Condition(type="Ready", status="True", reason=reason, last_transition_time=NOW)
        assert condition.to_wire()["reason"] == reason.value

    def test_its_sentence_stands_alone(self, reason: Reason) -> None:
        assert re.fullmatch(r"[A-Z].*\.", reason.sentence)

    def test_it_is_found_by_its_word(self, reason: Reason) -> None:
        assert Reason(str(reason)) is reason


def test_no_two_reasons_have_the_same_sentence() -> None:
    sentences = [reason.sentence for reason in Reason]
    assert len(sentences) == len(set(sentences))


@pytest.mark.parametrize("progress", list(Progress), ids=str)
def test_every_progress_of_a_node_is_a_reason(progress: Progress) -> None:
    assert Reason(progress.value) == progress.value


def test_the_condition_types_are_those_of_the_design() -> None:
    assert [kind.value for kind in ConditionType] == [
        "Ready",
        "Reconciling",
        "Stalled",
        "Applied",
        "Conflicted",
        "Degraded",
        "Valid",
        "Placed",
        "Reserved",
    ]
