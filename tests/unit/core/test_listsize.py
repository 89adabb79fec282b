import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.core.errors import InvalidInput
from gpusharing.core.listsize import LIST_MAX, check_size, list_bytes, shortest_list
from gpusharing.core.resources import Device
from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as v1beta1

# ids of up to 200 characters: some need two bytes for their length, and so does the device
device_ids = st.text(min_size=1, max_size=200)
numa_nodes = st.none() | st.integers(0, 2**62)
devices = st.lists(st.builds(lambda name, numa: Device(name, name, name, numa), device_ids, numa_nodes), max_size=8)


def encoded(listed: list[Device]) -> int:
    message = v1beta1.ListAndWatchResponse()
    for device in listed:
        entry = message.devices.add(ID=device.id, health="Unhealthy")
        if device.numa_node is not None:
            entry.topology.nodes.add(ID=device.numa_node)
    return len(message.SerializeToString())


@given(devices)
@settings(deadline=None, max_examples=150)
@pytest.mark.obligation("P7")
def test_the_length_is_that_of_the_encoded_message_to_the_byte(listed: list[Device]) -> None:
    assert list_bytes(listed) == encoded(listed)


def test_a_share_of_a_gpu_takes_about_64_bytes() -> None:
    share = Device("GPU-00000000-0000-0000-0000-000000000000::17", "GPU-0", "GPU-0", 1)
    assert list_bytes([share]) == encoded([share]) == 65


def at_most(count: int, extra: int = 0) -> list[Device]:
    """So many devices, the first of which has an id longer by some characters."""
    base = "x" * 40
    return [Device(base + "x" * extra, base, base), *(Device(base, base, base) for _ in range(count - 1))]


def test_a_list_of_exactly_the_limit_passes_and_a_byte_more_does_not() -> None:
    each = list_bytes(at_most(1))
    count, missing = divmod(LIST_MAX, each)
    assert 0 < missing < 60
    fits = at_most(count, missing)
    assert list_bytes(fits) == LIST_MAX
    check_size("nvidia.com/gpu", fits)
    with pytest.raises(InvalidInput, match=r"^nvidia.com/gpu: \d+ devices make a list of 3.90 MiB"):
        check_size("nvidia.com/gpu", at_most(count, missing + 1))


@given(st.integers(1, 100), st.integers(1, 63))
@settings(deadline=None, max_examples=50)
def test_the_estimate_before_the_ids_are_made_never_refuses_what_fits(count: int, length: int) -> None:
    listed = [Device("x" * length, "", "")] * count
    scale = LIST_MAX // list_bytes(listed)
    shortest_list("nvidia.com/gpu", count * scale, length)
