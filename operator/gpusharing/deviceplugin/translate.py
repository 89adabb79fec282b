"""Core values ↔ protobuf messages of the kubelet's two APIs."""

from collections.abc import Mapping, Sequence

from gpusharing.core.edits import Edits
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.resources import Device
from gpusharing.deviceplugin.podresources_v1 import podresources_v1_pb2 as pod_pb
from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb

API_VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


def list_message(listed: Sequence[tuple[Device, bool]]) -> pb.ListAndWatchResponse:
    """Return the snapshot that tells the kubelet of these devices, each with whether it is healthy."""
    message = pb.ListAndWatchResponse()
    for device, healthy in listed:
        entry = message.devices.add(ID=device.id, health=HEALTHY if healthy else UNHEALTHY)
        # present without a node hides the device from GetAllocatableResources; -1 would be passed on (contract 10)
        if device.numa_node is not None and device.numa_node >= 0:
            entry.topology.nodes.add(ID=device.numa_node)
    return message


def register_request(resource: str, endpoint: str) -> pb.RegisterRequest:
    """Return what announces a resource; the kubelet takes the options from `GetDevicePluginOptions`."""
    return pb.RegisterRequest(version=API_VERSION, endpoint=endpoint, resource_name=resource)


def preferred_response(choices: Sequence[Sequence[str]]) -> pb.PreferredAllocationResponse:
    """Return the chosen ids of each container; none = no preference."""
    responses = [pb.ContainerPreferredAllocationResponse(deviceIDs=chosen) for chosen in choices]
    return pb.PreferredAllocationResponse(container_responses=responses)


def allocate_response(edits: Sequence[Edits]) -> pb.AllocateResponse:
    """Return the edits of each container."""
    return pb.AllocateResponse(container_responses=[_container_response(each) for each in edits])


def pod_devices(response: pod_pb.ListPodResourcesResponse) -> tuple[PodDevices, ...]:
    """Return who holds which ids, one value for each container and resource.

    The kubelet sends an entry for each device and NUMA node of it: they are merged, without repetitions (contract 10).
    """
    merged: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for pod in response.pod_resources:
        for container in pod.containers:
            for entry in container.devices:
                key = (pod.namespace, pod.name, container.name, entry.resource_name)
                merged.setdefault(key, {}).update(dict.fromkeys(entry.device_ids))
    return tuple(PodDevices(*key, tuple(ids)) for key, ids in merged.items())


def pod_names(response: pod_pb.ListPodResourcesResponse) -> frozenset[str]:
    """Return namespace/name of every pod that the kubelet has."""
    return frozenset(f"{pod.namespace}/{pod.name}" for pod in response.pod_resources)


def allocatable_ids(response: pod_pb.AllocatableResourcesResponse) -> Mapping[str, frozenset[str]]:
    """Return the healthy ids that the kubelet knows of each resource, free or not."""
    merged: dict[str, set[str]] = {}
    for entry in response.devices:
        merged.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {name: frozenset(ids) for name, ids in merged.items()}


def _container_response(edits: Edits) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(
        envs=dict(edits.envs),
        mounts=[
            pb.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in edits.mounts
        ],
        devices=[
            pb.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
            for node in edits.devices
        ],
        annotations=dict(edits.annotations),
        cdi_devices=[pb.CDIDevice(name=name) for name in edits.cdi_devices],
    )
