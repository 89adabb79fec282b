"""Events of a node: each problem once, each recovery once, and nothing for what passes by itself."""

from dataclasses import replace

import pytest
from tests.support.hardware import gpu_uuid, make_config, make_hardware

from gpusharing.api.reasons import Reason
from gpusharing.core.events import MESSAGE_MAX, Event
from gpusharing.core.nodeevents import node_events
from gpusharing.core.nodeproblems import Observed

FOUR = make_config("four").shared(4).build()
WELL = Observed(inventory=make_hardware(2).build(), served=FOUR, desired="four")
SICK = Observed(inventory=make_hardware(2).build(), served=FOUR, sick={gpu_uuid(1): "XID 79"})
REFUSED = Observed(inventory=make_hardware(2).build(), served=FOUR, config_error="sharing: not a map")


def reasons(before: Observed | None, after: Observed) -> list[str]:
    return [str(event.reason) for event in node_events(before, after, "gpu-a", "uid-1")]


def test_a_problem_is_a_warning_on_the_node_in_its_own_words() -> None:
    assert node_events(WELL, REFUSED, "gpu-a", "uid-1") == (
        Event(
            "Node",
            "gpu-a",
            "uid-1",
            "Warning",
            Reason.INVALID_CONFIG,
            "sharing: not a map; config 'four' stays served.",
        ),
    )


def test_what_is_well_says_nothing_not_even_a_new_config() -> None:
    other = make_config("two").shared(2).build()
    assert reasons(None, WELL) == []
    assert reasons(WELL, Observed(inventory=WELL.inventory, served=other, desired="two")) == []


@pytest.mark.fault("F50")
def test_a_problem_that_goes_on_is_said_once_and_again_after_it_was_gone() -> None:
    assert reasons(WELL, SICK) == ["GpuUnhealthy"]
    assert reasons(SICK, SICK) == []
    assert reasons(None, SICK) == ["GpuUnhealthy"]


def test_a_device_that_is_well_again_is_said_also_while_another_is_not() -> None:
    both = Observed(inventory=WELL.inventory, served=FOUR, sick={gpu_uuid(0): "XID 79", gpu_uuid(1): "XID 79"})
    [worse, better] = node_events(both, SICK, "gpu-a", "uid-1")
    assert (worse.type, worse.reason) == ("Warning", "GpuUnhealthy")
    assert (better.type, better.reason, better.message) == (
        "Normal",
        "GpuRecovered",
        f"healthy again: GPU 0 ({gpu_uuid(0)})",
    )


def test_a_preference_that_was_not_taken_is_said_once() -> None:
    first, second = replace(WELL, overruled="nvidia.com/gpu: B0"), replace(WELL, overruled="nvidia.com/gpu: B1")
    assert node_events(WELL, first, "gpu-a", "uid-1") == (
        Event("Node", "gpu-a", "uid-1", "Warning", Reason.PREFERENCE_IGNORED, "nvidia.com/gpu: B0"),
    )
    assert [reasons(None, first), reasons(first, first), reasons(first, second), reasons(first, WELL)] == [
        ["PreferenceIgnored"],
        [],
        ["PreferenceIgnored"],
        [],
    ]


@pytest.mark.fault("F50")
def test_what_passes_by_itself_posts_nothing() -> None:
    listing_lags = Observed(inventory=WELL.inventory, served=FOUR, confirmed={})
    assert reasons(WELL, listing_lags) == []


@pytest.mark.fault("X12")
def test_words_of_others_are_on_one_line_and_cut() -> None:
    nasty = Observed(served=FOUR, unknown_keys=("\x1b[2Jgone\nfake: log line", "x" * 5000))
    [event] = node_events(None, nasty, "gpu-a", "uid-1")
    assert r"\x1b[2Jgone fake: log line" in event.message
    assert event.message.isprintable()
    assert len(event.message) <= MESSAGE_MAX
