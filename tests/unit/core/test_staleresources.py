"""Names of resources that can be taken from a Node: only those of GPU plugins, that nothing serves, at both looks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.api.node import GpuNodeStatus, ResourceReport
from gpusharing.core.staleresources import Look, after_two_looks, look, of_a_gpu_plugin

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
PLACE = "place.gpusharing.io/policy.rl-eval.team-a"
OURS = [GPU, SHARED, MIG, "nvidia.com/mig-3g.20gb.shared", PLACE]
OTHERS = ["cpu", "nvidia.com/rdma", "nvidia.com/gpu-of-mine", "nvidia.com/migrate", "amd.com/gpu", "example.com/gpu"]
COUNTS = ["0", "1", "8", "60k"]

resources = st.dictionaries(st.sampled_from(OURS + OTHERS), st.sampled_from(COUNTS))
reports = st.builds(
    lambda stale, listed: report(*stale, **listed),
    st.sets(st.sampled_from(OURS + OTHERS)),
    st.dictionaries(st.sampled_from(OURS), st.integers(0, 2)),
)


def report(*stale: str, **listed: int) -> GpuNodeStatus:
    """What a plugin says: stale names, and devices of what it lists."""
    rows = [ResourceReport(name=name, devices=devices) for name, devices in listed.items()]
    return GpuNodeStatus(stale_resources=sorted(stale), resources=rows)


def stays(said: GpuNodeStatus, **shown: str) -> dict[str, str]:
    """Look at a Node that shows the same in capacity and allocatable."""
    return dict(look("a", said, shown, shown).stays)


@pytest.mark.fault("F51")
@pytest.mark.parametrize("name", OURS)
def test_what_the_report_calls_stale_and_the_node_shows_with_0_can_go(name: str) -> None:
    assert stays(report(name, **{"nvidia.com/mig-7g.40gb": 4}), **{name: "0"}) == {name: ""}


@pytest.mark.fault("F51")
def test_what_a_plugin_that_has_left_served_can_go() -> None:
    """A kubelet shows capacity 0 only five minutes after that plugin's end, or once it has started anew itself."""
    assert stays(report(**{GPU: 8}), **{GPU: "0"}) == {GPU: ""}


def test_what_is_served_is_not_spoken_of() -> None:
    assert stays(report(**{GPU: 8}), **{GPU: "8"}) == {}
    assert look("a", report(**{GPU: 8}), {GPU: "8"}, {GPU: "0"}).stays == {}  # sick, or its plugin left just now


def test_what_another_plugin_serves_by_now_stays_and_is_named() -> None:
    assert stays(report(SHARED), **{SHARED: "8"}) == {SHARED: "the Node has 8 of it, 8 of them for pods"}
    found = look("a", report(SHARED), {SHARED: "8"}, {}).stays
    assert found == {SHARED: "the Node has 8 of it, 0 of them for pods"}


def test_a_list_that_ends_goes_by_itself() -> None:
    assert stays(report(**{GPU: 0}), **{GPU: "0"}) == {GPU: "the plugin still lists it, without devices"}


def test_what_is_gone_is_gone() -> None:
    assert stays(report(SHARED, **{GPU: 8})) == {}


@given(reports, resources, resources)
def test_only_what_is_named_of_a_gpu_plugin_and_at_0_twice_can_go(
    said: GpuNodeStatus, capacity: dict[str, str], allocatable: dict[str, str]
) -> None:
    seen = look("a", said, capacity, allocatable)
    for name in seen.removable:
        assert name in OURS
        assert capacity[name] == allocatable[name] == "0"
        assert name in said.stale_resources or any(row.name == name and row.devices for row in said.resources)
    assert {name for name in seen.stays if not of_a_gpu_plugin(name)} == set()


@given(reports, resources, resources)
def test_what_went_is_not_seen_again(said: GpuNodeStatus, shown: dict[str, str], allocatable: dict[str, str]) -> None:
    gone = look("a", said, shown, allocatable).removable
    left = [{name: count for name, count in part.items() if name not in gone} for part in (shown, allocatable)]
    assert look("a", said, left[0], left[1]).removable == ()


@given(reports, reports, resources, resources)
def test_nothing_goes_that_could_not_go_at_both_looks(
    first: GpuNodeStatus, second: GpuNodeStatus, before: dict[str, str], now: dict[str, str]
) -> None:
    looks = look("a", first, before, before), look("a", second, now, now)
    outcome = after_two_looks(*looks)
    assert set(outcome) == set(looks[0].removable)
    assert {name for name, why in outcome.items() if not why} == {*looks[0].removable} & {*looks[1].removable}


@pytest.mark.parametrize("now", [None, Look("another", {GPU: ""})], ids=["gone", "created anew"])
def test_nothing_goes_from_a_node_that_is_no_longer_that_one(now: Look | None) -> None:
    assert all(after_two_looks(Look("a", {GPU: ""}), now).values())
