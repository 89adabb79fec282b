import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import ConfigBuilder, HardwareBuilder, gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.core.listing import Listing, advance
from gpusharing.core.occupancy import (
    GpuOccupancy,
    HeldTwice,
    PodDevices,
    held_ids,
    held_twice,
    occupancy,
    unlisted,
)
from gpusharing.core.resources import resources_of

GPU, SHARED, SMALL, BIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
G0, G1 = gpu_uuid(0), gpu_uuid(1)
TWO_GPUS = make_hardware(2)
MIG = make_hardware(2).mig(1, "1g.10gb", "1g.10gb", "3g.40gb")


def holds(pod: str, *ids: str, resource: str = GPU, container: str = "main") -> PodDevices:
    return PodDevices("team-a", pod, container, resource, ids)


def listed(*configs: ConfigBuilder, hardware: HardwareBuilder = TWO_GPUS, pods: list[PodDevices]) -> Listing:
    listing = Listing()
    for minute, config in enumerate(configs):
        served = config.build()
        listing = advance(
            listing,
            resources_of(served, hardware.build()),
            served,
            sick={},
            held=held_ids(pods),
            calls_open=frozenset(),
            now=60.0 * minute,
        )
    return listing


# --- held, by resource


def test_held_ids_are_gathered_by_resource() -> None:
    pods = [holds("a", "x", "y"), holds("b", "y"), holds("b", "z", resource=SMALL), holds("c")]
    assert held_ids(pods) == {GPU: frozenset({"x", "y"}), SMALL: frozenset({"z"})}
    assert held_ids([]) == {}


# --- held twice


@pytest.mark.fault("F24")
def test_one_id_in_two_containers_is_held_twice() -> None:
    pods = [holds("b", f"{G0}::1"), holds("a", f"{G0}::1", f"{G0}::2"), holds("a", f"{G0}::3", container="side")]
    assert held_twice(pods, TWO_GPUS.build()) == (HeldTwice(f"{G0}::1", ("team-a/a/main", "team-a/b/main")),)


@pytest.mark.fault("F24")
def test_two_containers_of_one_pod_are_two() -> None:
    pods = [holds("a", G0), holds("a", G0, container="side")]
    assert held_twice(pods, TWO_GPUS.build()) == (HeldTwice(G0, ("team-a/a/main", "team-a/a/side")),)


@pytest.mark.fault("F24")
def test_a_gpu_held_as_a_whole_and_in_shares_is_held_twice_under_whatever_names() -> None:
    pods = [holds("whole", G0), holds("share", f"{G0}::3", resource=SHARED), holds("other", f"{G1}::0")]
    assert held_twice(pods, TWO_GPUS.build()) == (HeldTwice(G0, ("team-a/share/main", "team-a/whole/main")),)


@pytest.mark.fault("F24")
def test_a_mig_device_held_under_two_resources_is_held_twice() -> None:
    pods = [holds("old", mig_uuid(1, 0)), holds("new", mig_uuid(1, 0), resource=SMALL)]
    assert [found.device for found in held_twice(pods, MIG.build())] == [mig_uuid(1, 0)]


@pytest.mark.fault("F24")
def test_who_has_a_gpu_as_a_whole_has_its_mig_devices_too() -> None:
    pods = [holds("whole", G1), holds("mig", mig_uuid(1, 0), resource=SMALL)]
    assert held_twice(pods, MIG.build()) == (HeldTwice(G1, ("team-a/mig/main", "team-a/whole/main")),)


def test_shares_of_a_gpu_and_mig_devices_of_a_gpu_are_each_held_once() -> None:
    pods = [holds("a", f"{G0}::0", f"{G0}::1"), holds("b", f"{G0}::2")]
    pods += [holds("c", mig_uuid(1, 0), resource=SMALL), holds("d", mig_uuid(1, 1), resource=SMALL)]
    assert held_twice(pods, MIG.build()) == ()


def test_ids_of_other_devices_are_none_of_ours() -> None:
    pods = [holds("a", "nic-0", resource="example.com/nic"), holds("b", "nic-0", resource="example.com/nic")]
    assert held_twice(pods, TWO_GPUS.build()) == ()


# --- another plugin's


@pytest.mark.fault("X10")
def test_a_held_id_of_our_resource_that_is_on_no_list_is_told() -> None:
    pods = [holds("a", f"{G0}::0", f"{G0}::7"), holds("b", f"{G0}::7"), holds("c", "foreign-3")]
    pods.append(holds("d", "x", resource="example.com/nic"))
    listing = listed(make_config().shared(4), pods=pods)
    assert unlisted(pods, listing) == ((GPU, f"{G0}::7"), (GPU, "foreign-3"))


def test_a_retiring_id_is_on_a_list() -> None:
    pods = [holds("a", f"{G0}::7")]
    assert unlisted(pods, listed(make_config().shared(8), make_config().shared(4), pods=pods)) == ()


# --- occupancy


def test_shares_in_use_and_who_has_them_by_gpu() -> None:
    pods = [holds("b", f"{G0}::1"), holds("a", f"{G0}::2", f"{G0}::0"), holds("a", f"{G0}::3", container="side")]
    listing = listed(make_config().shared(4), pods=pods)
    assert occupancy(pods, listing, TWO_GPUS.build()) == (
        GpuOccupancy(G0, 4, 4, ("team-a/a", "team-a/b")),
        GpuOccupancy(G1, 4, 0),
    )


def test_all_resources_of_a_gpu_count() -> None:
    pods = [holds("a", mig_uuid(1, 0), resource=SMALL), holds("b", mig_uuid(1, 2), resource=BIG), holds("c", G0)]
    listing = listed(make_config().mig("mixed"), hardware=MIG, pods=pods)
    assert occupancy(pods, listing, MIG.build()) == (
        GpuOccupancy(G0, 1, 1, ("team-a/c",)),
        GpuOccupancy(G1, 3, 2, ("team-a/a", "team-a/b")),
    )


def test_a_gpu_that_a_pod_has_as_a_whole_by_an_older_config_is_full() -> None:
    pods = [holds("old", G0)]
    listing = listed(make_config(), make_config().shared(4), pods=pods)
    assert occupancy(pods, listing, TWO_GPUS.build())[0] == GpuOccupancy(G0, 4, 4, ("team-a/old",))


def test_retiring_ids_are_in_use_but_no_shares() -> None:
    pods = [holds("a", f"{G0}::7"), holds("b", f"{G0}::0")]
    listing = listed(make_config().shared(8), make_config().shared(4), pods=pods)
    assert occupancy(pods, listing, TWO_GPUS.build())[0] == GpuOccupancy(G0, 4, 2, ("team-a/a", "team-a/b"))


def test_gpus_come_by_index_and_those_without_a_list_not_at_all() -> None:
    listing = listed(make_config(), hardware=make_hardware(3).without(1), pods=[])
    inventory = make_hardware(3).build()
    assert [row.gpu for row in occupancy([], listing, inventory)] == [gpu_uuid(0), gpu_uuid(2)]


pods_drawn = st.lists(
    st.builds(
        lambda pod, gpu, replica: holds(pod, f"{gpu_uuid(gpu)}::{replica}"),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 1),
        st.integers(0, 3),
    ),
    max_size=10,
)


@given(pods_drawn)
@settings(deadline=None, max_examples=60)
def test_the_order_of_pods_does_not_matter_and_use_adds_up(pods: list[PodDevices]) -> None:
    listing, inventory = listed(make_config().shared(4), pods=pods), TWO_GPUS.build()
    turned = pods[::-1]
    assert occupancy(pods, listing, inventory) == occupancy(turned, listing, inventory)
    assert held_twice(pods, inventory) == held_twice(turned, inventory)
    in_use = sum(row.in_use for row in occupancy(pods, listing, inventory))
    assert in_use == len({one for row in pods for one in row.ids})
    several = {one: {row.holder for row in pods if one in row.ids} for row in pods for one in row.ids}
    assert [found.device for found in held_twice(pods, inventory)] == sorted(
        one for one, holders in several.items() if len(holders) > 1
    )
