import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.api.reasons import Reason
from gpusharing.core import events
from gpusharing.core.events import Event

LONG = "x" * 5000
EVENTS = {
    "drift": events.drift_repaired("a", "u", "theirs", "ours", "kubectl-label"),
    "drift of the record": events.drift_repaired("a", "u", "ours", "ours", ""),
    "manual": events.manually_configured("a", "u", "theirs", "p"),
    "contested": events.label_contested("a", "u", "argocd"),
    "released": events.released("a", "u", "ours", ""),
    "released to an adopted value": events.released("a", "u", "ours", "theirs"),
    "restore dropped": events.restore_dropped("a", "u", "theirs"),
    "release held": events.release_held("a", "u"),
    "condition": events.condition_changed("p", "u", "True", Reason.APPLIED, "All."),
    "reservations held": events.reservations_held("a", "u"),
    "condition of a placement": events.placement_news("team-a", "p", "u", Reason.ACTIVE, "All."),
    "problem of a node": events.node_problem("a", "u", Reason.INVALID_CONFIG, "not a\nmap"),
    "recovered": events.gpu_recovered("a", "u", ["GPU 0"]),
    "assigned": events.assigned("p", "u", "packed-1", 3),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS.keys())
class TestEvent:
    def test_it_is_normal_or_a_warning_as_kubernetes_knows_them(self, event: Event) -> None:
        assert event.type in {"Normal", "Warning"}

    def test_it_is_about_a_node_or_a_kind_of_ours(self, event: Event) -> None:
        ours = {("GpuSharingPolicy", "gpusharing.io/v1alpha1"), ("GpuPlacement", "gpusharing.io/v1alpha1")}
        assert (event.kind, event.api_version) in {("Node", "v1"), *ours}
        assert bool(event.namespace) is (event.kind == "GpuPlacement")

    def test_it_reads_on_one_line(self, event: Event) -> None:
        assert event.message
        assert "\n" not in event.message


def test_a_drift_says_what_was_found_what_was_put_back_and_who_did_it() -> None:
    assert EVENTS["drift"].message == (
        "nvidia.com/device-plugin.config: found 'theirs', put back 'ours' (changed by kubectl-label)"
    )
    assert EVENTS["drift of the record"].message == ("nvidia.com/device-plugin.config: put back the record of 'ours'")


def test_a_release_says_what_became_of_the_label() -> None:
    assert EVENTS["released"].message.endswith("is released: removed")
    assert EVENTS["released to an adopted value"].message.endswith("put back 'theirs', which was there before")


def test_a_contest_without_a_known_manager_says_so() -> None:
    assert "by an unnamed manager" in events.label_contested("a", "u", "").message


def test_a_summary_counts_nodes_in_words() -> None:
    assert events.assigned("p", "u", "c", 1).message == "config c is written to 1 node"
    assert events.assigned("p", "u", "c", 2).message == "config c is written to 2 nodes"


@pytest.mark.parametrize(
    "make",
    [
        make
        for _, make in inspect.getmembers(events, inspect.isfunction)
        if make.__module__ == events.__name__ and not make.__name__.startswith("_")
    ],
    ids=lambda make: make.__name__,
)
def test_no_message_is_longer_than_an_event_may_be(make: object) -> None:
    values = {"count": 10**9, "reason": Reason.CONFIG_REFUSED, "status": "True"}
    arguments = [values.get(name, LONG) for name in inspect.signature(make).parameters]  # type: ignore[arg-type]
    event = make(*arguments)  # type: ignore[operator]
    assert len(event.message) <= 1024


GOOD = {Reason.APPLIED, Reason.NO_MATCHING_NODES, Reason.SUPERSEDED, Reason.DRY_RUN}
BAD = {
    Reason.CONFIG_REFUSED,
    Reason.CAPACITY_MISMATCH,
    Reason.INVALID_SPEC,
    Reason.CONFLICTING_POLICIES,
    Reason.LABEL_CONTESTED,
    Reason.FOREIGN_CONFIGMAP,
    Reason.UNSUPPORTED_BY_NODES,
    Reason.PLUGIN_GONE,
    Reason.WRITE_FAILED,
}


@pytest.mark.parametrize("reason", sorted(GOOD))
def test_a_condition_that_is_as_it_should_be_is_normal(reason: Reason) -> None:
    assert events.condition_changed("p", "u", "True", reason, "m").type == "Normal"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.ACTIVE, "Normal"),
        *((reason, "Warning") for reason in (Reason.INVALID, Reason.UNPLACEABLE, Reason.NODE_LOST)),
    ],
)
def test_a_placement_that_is_active_is_normal_and_everything_else_is_told_as_a_warning(
    reason: Reason, kind: str
) -> None:
    assert events.placement_news("team-a", "p", "u", reason, "m").type == kind


@pytest.mark.parametrize("reason", sorted(BAD))
@pytest.mark.parametrize("status", ["True", "False"])
def test_a_condition_that_means_trouble_is_a_warning_also_if_it_is_true(reason: Reason, status: str) -> None:
    """Degraded and Conflicted are True when something is wrong."""
    assert events.condition_changed("p", "u", status, reason, "m").type == "Warning"


@pytest.mark.parametrize("reason", [Reason.AWAITING_REPORT, Reason.NO_INVENTORY])
def test_what_is_not_known_yet_is_no_warning(reason: Reason) -> None:
    assert events.condition_changed("p", "u", "Unknown", reason, "m").type == "Normal"


@given(st.text(), st.sampled_from(list(Reason)))
def test_an_event_keeps_the_beginning_of_its_message(message: str, reason: Reason) -> None:
    assert message.startswith(events.condition_changed("p", "u", "True", reason, message).message)
