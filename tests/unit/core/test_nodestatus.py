"""What is observed becomes a report: counts, history, one condition; whatever is observed, the CRD takes it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.api.node import GpuNodeStatus, ReservationReport
from gpusharing.api.reasons import Reason
from gpusharing.core.devices import Inventory
from gpusharing.core.fragmentation import Fragmentation, ResourceRoom, Restart
from gpusharing.core.listing import Listing, advance
from gpusharing.core.nodeproblems import Observed, problems, stale_resources
from gpusharing.core.nodestatus import HISTORY_MAX, node_status, ready_condition
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.reservationreport import Reserved
from gpusharing.core.resources import resources_of
from gpusharing.core.serving import ServedConfig

NOW = datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
GPU = "nvidia.com/gpu"
FOUR = make_config("four").shared(4).build()
TWO = make_config("two").shared(2).build()
HARDWARE = make_hardware(2).build()


def listed(served: ServedConfig = FOUR, inventory: Inventory = HARDWARE, **options: Any) -> Listing:
    """The lists of a config, without anything before."""
    return after(Listing(), served, inventory, **options)


def after(listing: Listing, served: ServedConfig, inventory: Inventory = HARDWARE, **options: Any) -> Listing:
    known: dict[str, Any] = {"sick": {}, "held": {}, "calls_open": frozenset(), "now": 0.0, **options}
    return advance(listing, resources_of(served, inventory), served, **known)


def healthy(listing: Listing) -> dict[str, frozenset[str]]:
    return {name: frozenset(id_ for id_, e in entries.items() if e.healthy) for name, entries in listing.lists.items()}


def observed(served: ServedConfig = FOUR, **changes: Any) -> Observed:
    """A node where all is well, and what is otherwise."""
    listing = changes.pop("listing", listed(served))
    well = Observed(
        inventory=HARDWARE,
        listing=listing,
        served=served,
        desired=served.name,
        last_good=served.name,
        policy="pack",
        confirmed=healthy(listing),
    )
    return replace(well, **changes)


def pod(name: str, *ids: str, resource: str = GPU) -> PodDevices:
    return PodDevices("team-a", name, "main", resource, ids)


def said(seen: Observed, previous: GpuNodeStatus | None = None) -> tuple[str, str]:
    condition = ready_condition(node_status(seen, previous, NOW))
    return condition.status, condition.reason


SICK = {gpu_uuid(1): "XID 79: the GPU has fallen off the bus"}
RETIRING = after(listed(), TWO, held={GPU: frozenset({f"{gpu_uuid(0)}::3"})}, now=5.0)
TWICE = (pod("web", f"{gpu_uuid(0)}::1"), pod("batch", f"{gpu_uuid(0)}::1"))
# reason → what is observed, whether the condition stays True, and words of the message
CASES: dict[str, tuple[Observed, str, str]] = {
    "Serving": (observed(), "True", "nvidia.com/gpu: 8 devices."),
    "NvmlUnavailable": (observed(nvml_error="no libnvidia-ml.so.1."), "False", "for the GPUs: no libnvidia-ml.so.1."),
    "InvalidConfig": (
        observed(config_error="sharing: not a map", desired="new"),
        "False",
        "sharing: not a map; config 'four' stays served.",
    ),
    "ConfigMissing": (
        observed(config_missing="no key 'new' in ConfigMap a/b", desired="new"),
        "False",
        "no key 'new' in ConfigMap a/b; config 'four' stays served.",
    ),
    "NotRegistered": (
        observed(unregistered={GPU: "no kubelet.sock"}),
        "False",
        "take nvidia.com/gpu (no kubelet.sock).",
    ),
    "DeviceHeldTwice": (observed(pods=TWICE), "False", f"{gpu_uuid(0)}::1 (team-a/batch/main, team-a/web/main)"),
    "GpuUnhealthy": (
        observed(sick=SICK, listing=listed(sick=SICK)),
        "False",
        f"GPU 1 ({gpu_uuid(1)}) (XID 79: the GPU has fallen off the bus).",
    ),
    "CapacityMismatch": (
        observed(confirmed={GPU: frozenset("a")}),
        "False",
        "nvidia.com/gpu: 1 advertised, 8 predicted.",
    ),
    "DevicesRetiring": (
        observed(TWO, listing=RETIRING),
        "False",
        "nvidia.com/gpu: 4 retiring, 0 withheld.",
    ),
    "UnknownResource": (
        observed(unknown_resources=("nvidia.com/mig-1g.5gb",)),
        "False",
        "not have: nvidia.com/mig-1g.5gb",
    ),
    "UnknownKey": (
        observed(unknown_keys=("flagz", "sharing.foo")),
        "True",
        "nothing knows are ignored: flagz, sharing.foo.",
    ),
}
WORST_FIRST = [
    "NvmlUnavailable",
    "InvalidConfig",
    "ConfigMissing",
    "NotRegistered",
    "DeviceHeldTwice",
    "GpuUnhealthy",
    "CapacityMismatch",
    "DevicesRetiring",
    "UnknownResource",
    "UnknownKey",
]


# --- the condition


@pytest.mark.parametrize(("reason", "case"), CASES.items(), ids=list(CASES))
def test_each_reason_says_in_a_sentence_what_is_wrong(reason: str, case: tuple[Observed, str, str]) -> None:
    seen, status, words = case
    condition = ready_condition(node_status(seen, None, NOW))
    assert (condition.type, condition.status, condition.reason) == ("GpuSharingReady", status, reason)
    assert words in condition.message
    assert condition.message.endswith(".")


def test_the_reasons_are_those_of_the_design() -> None:
    assert {*WORST_FIRST, "Serving"} == set(CASES) <= set(map(str, Reason))


def test_the_worst_problem_gives_the_reason_and_all_are_in_the_message() -> None:
    everything = observed(
        TWO,
        listing=after(listed(), TWO, sick=SICK, held={GPU: frozenset({f"{gpu_uuid(0)}::3"})}, now=5.0),
        sick=SICK,
        nvml_error="gone",
        config_error="bad",
        config_missing="missing",
        unregistered={GPU: "refused"},
        pods=TWICE,
        confirmed={GPU: frozenset("a")},
        unknown_resources=("nvidia.com/mig-1g.5gb",),
        unknown_keys=("flagz",),
    )
    found = problems(everything)
    assert [problem.reason for problem in found] == WORST_FIRST
    condition = ready_condition(node_status(everything, None, NOW))
    assert (condition.status, condition.reason) == ("False", "NvmlUnavailable")
    assert condition.message == " ".join(problem.sentence for problem in found)


@pytest.mark.fault("F09")
@pytest.mark.parametrize(
    ("fails", "listing", "want"),
    [(True, Listing(), "False"), (False, Listing(), "True"), (False, listed(sick=SICK), "False")],
    ids=["fail-on-init-error", "a-node-that-never-had-gpus", "gpus-that-were-served"],
)
def test_without_nvml_a_node_is_ready_only_if_that_is_tolerated_and_nothing_was_ever_served(
    fails: bool, listing: Listing, want: str
) -> None:
    served = make_config().set(fail_on_init_error=fails).build()
    assert said(observed(served, listing=listing, nvml_error="no library")) == (want, "NvmlUnavailable")


def test_a_config_error_without_any_good_config_says_that_nothing_is_registered() -> None:
    seen = Observed(inventory=HARDWARE, desired="new", config_error="sharing: not a map")
    status = node_status(seen, None, NOW)
    assert status.config.error == "sharing: not a map"
    assert (status.config.desired, status.config.served, status.config.last_good) == ("new", "", "")
    assert ready_condition(status).message == (
        "sharing: not a map; no config was ever good here, so nothing is registered."
    )


def test_of_a_sick_gpu_the_mig_devices_are_not_named_and_one_that_is_gone_is_named_by_its_id() -> None:
    inventory = make_hardware(2).mig(0, "1g.10gb", "1g.10gb").mig(1, "3g.40gb").build()
    sick = {gpu_uuid(0): "lost", mig_uuid(0, 0): "lost", mig_uuid(1, 0): "XID 94", "GPU-old": "no longer there"}
    [problem] = problems(Observed(inventory=inventory, served=FOUR, sick=sick))
    assert problem.sentence == (
        f"Not given to pods: GPU 0 ({gpu_uuid(0)}) (lost), 3g.40gb of GPU 1 ({mig_uuid(1, 0)}) (XID 94), "
        "GPU-old (no longer there)."
    )


def test_a_sick_mig_device_leaves_its_gpu_healthy() -> None:
    inventory = make_hardware(1).mig(0, "1g.10gb").build()
    status = node_status(Observed(inventory=inventory, sick={mig_uuid(0, 0): "XID 94"}), None, NOW)
    assert [gpu.healthy for gpu in status.gpus] == [True]
    assert [gpu.healthy for gpu in node_status(observed(sick=SICK), None, NOW).gpus] == [True, False]


@pytest.mark.fault("X10")
def test_as_many_devices_of_somebody_else_are_a_mismatch_too() -> None:
    foreign = {GPU: frozenset(f"GPU-theirs-{n}" for n in range(8))}
    assert said(observed(confirmed=foreign)) == ("False", "CapacityMismatch")
    [problem] = problems(observed(confirmed=foreign))
    assert "8 are not ours, so another plugin has registered the name" in problem.sentence


@pytest.mark.fault("F23")
def test_unreadable_pod_resources_are_said_and_judge_nothing() -> None:
    status = node_status(observed(confirmed=None, pod_resources_error="no socket."), None, NOW)
    assert [row.advertised for row in status.resources] == [None]
    condition = ready_condition(status)
    assert (condition.status, condition.reason) == ("True", "Serving")
    assert condition.message == "nvidia.com/gpu: 8 devices. What pods hold is not known: no socket."


# --- what is in use


@pytest.mark.fault("F07")
def test_another_plugin_on_the_host_is_said_and_takes_nothing_away() -> None:
    alone, beside = (
        ready_condition(node_status(observed(not_alone=why), None, NOW)) for why in ("", "it holds the lock")
    )
    assert (beside.status, beside.reason) == (alone.status, alone.reason)
    assert beside.message == f"{alone.message} Not alone on this host: it holds the lock."


def test_each_resource_and_each_gpu_says_how_much_of_it_pods_hold() -> None:
    seen = observed(pods=(pod("web", f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1"), pod("batch", f"{gpu_uuid(1)}::3")))
    status = node_status(seen, None, NOW)
    [row] = status.resources
    assert (row.name, row.devices, row.healthy, row.in_use, row.advertised, row.predicted) == (GPU, 8, 8, 3, 8, 8)
    assert [(gpu.gpu, gpu.shares, gpu.in_use) for gpu in status.occupancy] == [(gpu_uuid(0), 4, 2), (gpu_uuid(1), 4, 1)]
    assert (status.gpu_count, status.in_use) == (2, 3)


def test_no_name_of_a_pod_is_in_the_report_unless_it_is_in_the_way() -> None:
    text = json.dumps(node_status(observed(pods=(pod("secret-project", f"{gpu_uuid(0)}::0"),)), None, NOW).to_wire())
    assert "secret-project" not in text
    assert "team-a" not in text


def test_fragmentation_is_reported_as_it_was_found_and_not_at_all_where_it_is_not_known() -> None:
    assert node_status(observed(), None, NOW).fragmentation is None
    restart = Restart("GPU-a", ("team-a/web-0", "team-b/job"), 3)
    found = Fragmentation((ResourceRoom(GPU, 21, 4),), free_gpus=3, possible_gpus=5, restart=restart)
    status = node_status(observed(fragmentation=found), None, NOW)
    assert status.to_wire()["fragmentation"] == {
        "freeWholeGpus": 3,
        "possibleWholeGpus": 5,
        "resources": [{"name": GPU, "freeShares": 21, "largestRequest": 4}],
        "restart": {"gpu": "GPU-a", "pods": ["team-a/web-0", "team-b/job"], "more": 3},
    }


@pytest.mark.fault("F22")
def test_ids_that_retire_are_counted_apart_and_none_of_them_is_predicted() -> None:
    status = node_status(observed(TWO, listing=RETIRING, confirmed=healthy(RETIRING)), None, NOW)
    [row] = status.resources
    assert (row.devices, row.healthy, row.retiring, row.withheld, row.predicted) == (8, 4, 4, 0, 4)
    assert [gpu.shares for gpu in status.occupancy] == [2, 2]


def test_ids_that_leave_for_a_placement_are_as_it_should_be_and_counted_as_retiring() -> None:
    leaving = frozenset({gpu_uuid(0), gpu_uuid(1)})
    seen = observed(TWO, listing=RETIRING, reservations=Reserved(7, (), leaving))
    assert said(seen) == ("True", "Serving")
    assert said(observed(TWO, listing=RETIRING, reservations=Reserved(7, (), frozenset({gpu_uuid(1)}))))[0] == "False"
    [row] = node_status(seen, None, NOW).resources
    assert (row.devices, row.retiring, row.predicted) == (8, 4, 4)


def test_reservations_are_reported_with_the_generation_that_they_follow_and_why_they_wait() -> None:
    row = ReservationReport(resource="place.gpusharing.io/a.p.team", gpus=["GPU-1"], state="Active", in_use=1)
    status = node_status(
        observed(reservations=Reserved(7, (row,), frozenset({"GPU-1"}), "the disk is full.")), None, NOW
    )
    assert (status.reservations_observed_generation, status.reservations) == (7, [row])
    condition = ready_condition(status)
    assert (condition.status, condition.reason) == ("True", "Serving")
    assert condition.message.endswith(" Reservations wait: the disk is full.")


# --- what was before


def test_the_time_of_the_condition_moves_only_with_its_status() -> None:
    first = node_status(observed(), None, NOW)
    worse = node_status(observed(unknown_keys=("flagz",)), first, LATER)
    assert ready_condition(worse).last_transition_time == NOW
    bad = node_status(observed(config_error="bad"), worse, LATER)
    assert ready_condition(bad).last_transition_time == LATER
    assert (
        ready_condition(node_status(observed(sick=SICK), bad, LATER + timedelta(hours=1))).last_transition_time == LATER
    )


def test_a_report_of_the_same_is_the_same_report() -> None:
    first = node_status(observed(), None, NOW)
    assert node_status(observed(), first, LATER) == first
    read_back = GpuNodeStatus.model_validate(json.loads(json.dumps(first.to_wire())))
    assert node_status(observed(), read_back, LATER) == read_back


def test_the_history_has_each_change_of_the_served_config_with_its_policy() -> None:
    first = node_status(observed(), None, NOW)
    second = node_status(observed(TWO), first, LATER)
    assert [(change.from_, change.to, change.policy, change.result, change.time) for change in second.history] == [
        ("", "four", "pack", "Applied", NOW),
        ("four", "two", "pack", "Applied", LATER),
    ]


@pytest.mark.fault("F18")
def test_a_refusal_is_in_the_history_once_however_often_it_is_reported() -> None:
    status = node_status(observed(), None, NOW)
    refused = observed(config_error="bad", desired="new")
    for _ in range(3):
        status = node_status(refused, status, LATER)
    assert [(change.from_, change.to, change.result) for change in status.history] == [
        ("", "four", "Applied"),
        ("four", "new", "Refused"),
    ]


def test_a_config_that_is_only_missing_is_not_refused() -> None:
    assert node_status(observed(config_missing="no key", desired="new"), None, NOW).history[-1].to == "four"


def test_the_history_keeps_the_last_ten() -> None:
    status = None
    for number in range(15):
        status = node_status(observed(make_config(f"c{number}").shared(4).build()), status, NOW)
    assert status is not None
    assert [change.to for change in status.history] == [f"c{number}" for number in range(5, 15)]
    assert len(status.history) == HISTORY_MAX


# --- resources that nothing serves


@pytest.mark.fault("F51")
def test_names_of_ours_that_the_kubelet_keeps_at_0_are_stale() -> None:
    capacity = {
        "cpu": "0",
        "nvidia.com/gpu": "0",
        "nvidia.com/gpu.shared": "0",
        "nvidia.com/mig-1g.5gb": "0",
        "nvidia.com/mig-2g.10gb": "3",
        "nvidia.com/rdma": "0",
        "amd.com/gpu": "0",
    }
    stale = stale_resources(capacity, listed())
    assert stale == ("nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb")
    assert node_status(observed(), None, NOW, stale).stale_resources == list(stale)


# --- limits


texts = st.text(max_size=6000)
ids = st.sampled_from([gpu_uuid(0), gpu_uuid(1), "GPU-unknown", f"{gpu_uuid(0)}::2"])
anything = st.builds(
    Observed,
    inventory=st.sampled_from([HARDWARE, Inventory(), make_hardware(80).build()]),
    nvml_error=texts,
    sick=st.dictionaries(ids, texts, max_size=4),
    listing=st.sampled_from([Listing(), listed(), RETIRING]),
    served=st.sampled_from([None, FOUR, replace(FOUR, name="x" * 300)]),
    desired=texts,
    last_good=texts,
    policy=texts,
    config_error=texts,
    config_missing=texts,
    unknown_keys=st.lists(texts, max_size=8).map(tuple),
    unknown_resources=st.lists(texts, max_size=8).map(tuple),
    confirmed=st.one_of(st.none(), st.dictionaries(st.just(GPU), st.frozensets(ids))),
    pod_resources_error=texts,
    unregistered=st.dictionaries(texts, texts, max_size=3),
)


@pytest.mark.fault("X12")
@settings(deadline=None, max_examples=60)
@given(anything, anything)
def test_whatever_is_observed_the_report_is_one_that_the_crd_takes(before: Observed, seen: Observed) -> None:
    status = node_status(seen, node_status(before, None, NOW), LATER)
    GpuNodeStatus.model_validate(json.loads(json.dumps(status.to_wire())))
    condition = ready_condition(status)
    assert condition.message.isprintable()
    assert status.config.error.isprintable()
    assert (condition.status == "True") == all(problem.harmless for problem in problems(seen))
    assert node_status(seen, status, LATER) == status
