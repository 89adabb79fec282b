"""Core values as messages, and back."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.kubeletview import GPU

from gpusharing.core.edits import DeviceSpec, Edits, Mount
from gpusharing.core.listsize import list_bytes
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.resources import Device
from gpusharing.deviceplugin.podresources_v1 import podresources_v1_pb2 as pod_pb
from gpusharing.deviceplugin.translate import allocatable_ids, allocate_response, list_message, pod_devices, pod_names
from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb

ids = st.text(alphabet="GPU-0123:", min_size=1, max_size=63)
any_device = st.builds(Device, ids, ids, ids, st.none() | st.integers(0, 300))


@given(devices=st.lists(st.tuples(any_device, st.booleans())))
def test_a_list_arrives_as_it_was_sent(devices: list[tuple[Device, bool]]) -> None:
    message = pb.ListAndWatchResponse.FromString(list_message(devices).SerializeToString())
    got = [(entry.ID, entry.health, [node.ID for node in entry.topology.nodes]) for entry in message.devices]
    want = [
        (device.id, "Healthy" if healthy else "Unhealthy", [] if device.numa_node is None else [device.numa_node])
        for device, healthy in devices
    ]
    assert got == want


@given(devices=st.lists(any_device))
def test_the_length_that_the_core_counts_is_that_of_the_message(devices: list[Device]) -> None:
    assert list_message([(device, False) for device in devices]).ByteSize() == list_bytes(devices)


def test_a_numa_node_that_is_not_known_leaves_the_topology_unset() -> None:
    unknown = [(Device("a", "a", "a"), True), (Device("b", "b", "b", -1), True), (Device("c", "c", "c", 0), True)]
    assert [entry.HasField("topology") for entry in list_message(unknown).devices] == [False, False, True]


def test_every_part_of_the_edits_arrives() -> None:
    edits = Edits(
        envs={"A": "1"},
        mounts=(Mount("/in", "/on", True),),
        devices=(DeviceSpec("/dev/nvidia0", "/dev/nvidia0", "rw"),),
        annotations={"cdi.k8s.io/x": "y"},
        cdi_devices=("vendor/gpu=0",),
    )
    [got] = allocate_response([edits]).container_responses
    want = pb.ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[pb.Mount(container_path="/in", host_path="/on", read_only=True)],
        devices=[pb.DeviceSpec(container_path="/dev/nvidia0", host_path="/dev/nvidia0", permissions="rw")],
        annotations={"cdi.k8s.io/x": "y"},
        cdi_devices=[pb.CDIDevice(name="vendor/gpu=0")],
    )
    assert got == want


def test_entries_of_one_resource_are_merged_and_repetitions_dropped() -> None:
    container = pod_pb.ContainerResources(
        name="main",
        devices=[
            pod_pb.ContainerDevices(resource_name=GPU, device_ids=["b"]),
            pod_pb.ContainerDevices(resource_name="other/thing", device_ids=["x"]),
            pod_pb.ContainerDevices(resource_name=GPU, device_ids=["a"]),
            pod_pb.ContainerDevices(resource_name=GPU, device_ids=["b"]),
        ],
    )
    empty = pod_pb.PodResources(name="idle", namespace="default", containers=[pod_pb.ContainerResources(name="c")])
    pod = pod_pb.PodResources(name="p", namespace="team", containers=[container])
    answer = pod_pb.ListPodResourcesResponse(pod_resources=[empty, pod])
    assert pod_names(answer) == {f"{each.namespace}/{each.name}" for each in (empty, pod)}
    got = pod_devices(answer)
    assert got == (
        PodDevices("team", "p", "main", GPU, ("b", "a")),
        PodDevices("team", "p", "main", "other/thing", ("x",)),
    )


def test_allocatable_ids_are_gathered_by_resource() -> None:
    answer = pod_pb.AllocatableResourcesResponse(
        devices=[pod_pb.ContainerDevices(resource_name=GPU, device_ids=[one]) for one in "abb"]
    )
    assert allocatable_ids(answer) == {GPU: frozenset("ab")}
