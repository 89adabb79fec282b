"""`GpuNode`: what the in-node plugin reports of its node, so that an edit can be seen to have taken effect."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpusharing.api.meta import Condition, Model, Report, Timestamp
from gpusharing.api.sharing import MigStrategy

Count = Annotated[int, Field(ge=0)]
GpuUuid = Annotated[str, Field(max_length=96, description="The GPU's NVML UUID, GPU-<uuid>.")]
ConfigName = Annotated[str, Field(max_length=63)]
# namespace/name: people paste it into a shell
PodName = Annotated[
    str, Field(max_length=317, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]

# place.gpusharing.io/ and a name of 63
ResourceName = Annotated[str, Field(max_length=84)]
MAX_RESERVATIONS = 32

READY_CONDITION = "GpuSharingReady"


class MigDevice(Report):
    """One MIG device of a GPU."""

    uuid: str = Field(description="The MIG device's NVML UUID, MIG-<uuid>.", max_length=96)
    profile: str = Field(description="NVIDIA's profile name, for example 1g.10gb.", max_length=32)
    start: int | None = Field(default=None, description="The memory slice that it starts at.", ge=0, le=64)


class Gpu(Report):
    """One GPU of the node."""

    index: int = Field(description="NVML's index.", ge=0, le=255)
    uuid: GpuUuid
    model: str = Field(description="NVML's product name.", max_length=128)
    memory_mib: int = Field(
        default=0, alias="memoryMiB", description="Memory in MiB; 0 = not readable.", ge=0, le=2**31 - 1
    )
    numa_node: int | None = Field(default=None, description="NUMA node; absent = not known.", ge=0, le=4095)
    link_group: int | None = Field(
        default=None, description="GPUs of one group reach each other over NVLink.", ge=0, le=255
    )
    healthy: bool = Field(default=True, description="Whether the plugin serves it as healthy.")
    mig_mode: bool = Field(default=False, description="Whether MIG is enabled.")
    mig_devices: list[MigDevice] = Field(
        default=[],
        description="The MIG devices, in MIG mode.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class ConfigReport(Report):
    """Which config the node should serve, which it does, and why not."""

    desired: ConfigName = Field(default="", description="The node's config label, as the plugin reads it.")
    served: ConfigName = Field(default="", description="The config that the plugin runs.")
    last_good: ConfigName = Field(default="", description="The last config that was accepted.")
    error: str = Field(
        default="", description="Why the desired config is not served, in one sentence; empty = it is.", max_length=4096
    )


class ResourceReport(Report):
    """One resource as it is listed to the kubelet, and what the kubelet confirms."""

    name: ResourceName = Field(description="The resource's name, for example nvidia.com/gpu.")
    devices: Count = Field(default=0, description="Ids in the list.")
    healthy: Count = Field(default=0, description="Ids in the list that are healthy.")
    withheld: Count = Field(default=0, description="Ids not handed out while older ids of their GPU are in use.")
    retiring: Count = Field(default=0, description="Ids that the served config no longer has.")
    in_use: Count = Field(default=0, description="Ids that pods hold.")
    advertised: int | None = Field(
        default=None, description="Devices that the kubelet confirms; absent = not readable.", ge=0
    )
    predicted: Count = Field(default=0, description="Healthy ids that the served config implies.")


class OccupancyReport(Report):
    """How full one GPU is."""

    gpu: GpuUuid
    shares: Count = Field(default=0, description="Shares it is split into.")
    in_use: Count = Field(default=0, description="Shares that pods hold.")


class ResourceRoom(Report):
    """What is left of one resource."""

    name: ResourceName = Field(description="The resource's name, for example nvidia.com/gpu.")
    free_shares: Count = Field(default=0, description="Healthy devices that no pod holds.")
    largest_request: Count = Field(default=0, description="The largest request that a single GPU can hold.")


class RestartSet(Report):
    """Pods that fit on other GPUs in use: deleted together, they leave a whole GPU free."""

    gpu: GpuUuid
    pods: list[PodName] = Field(
        default=[],
        description="The pods, as namespace/name; the first ten.",
        max_length=10,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    more: Count = Field(default=0, description="How many pods there are beyond those.")


class FragmentationReport(Report):
    """How scattered the pods are over the GPUs."""

    free_whole_gpus: Count = Field(default=0, description="Healthy GPUs of which no pod holds anything.")
    possible_whole_gpus: Count = Field(
        default=0,
        description="GPUs that could be free if what pods hold were packed, unsplit, onto the fewest GPUs.",
    )
    resources: list[ResourceRoom] = Field(
        default=[],
        description="What is left of each resource.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    restart: RestartSet | None = Field(
        default=None,
        description="The fewest pods to delete together for one more whole GPU; absent = there are none.",
    )


class ConfigChange(Report):
    """One change of the served config."""

    time: Timestamp = Field(description="When.")
    from_: ConfigName = Field(default="", alias="from", description="The config before; empty = none.")
    to: ConfigName = Field(default="", description="The config after; empty = none.")
    policy: str = Field(default="", description="The policy that it came from.", max_length=253)
    result: Literal["Applied", "Refused"] = Field(description="Whether the plugin took it.")


class Reservation(Model):
    """GPUs of the node that pods get under the name of one placement's service, and under no other."""

    resource: ResourceName = Field(description="place.gpusharing.io/<service>.<placement>.<namespace>.")
    placement: str = Field(description="The GpuPlacement, namespace/name.", max_length=317)
    service: str = Field(description="The service of the placement.", max_length=63)
    gpus: list[GpuUuid] = Field(
        description="The GPUs behind the name.",
        min_length=1,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    exclusive: bool = Field(
        description="false: other services of the placement have names over the same GPUs (fraction, shareWith)."
    )


class GpuNodeSpec(Model):
    """What placements want of the node; written by the controller alone."""

    reservations: list[Reservation] | None = Field(
        default=None,
        description="Every reservation of the node. Absent = not known, nothing changes; [] = release everything.",
        max_length=MAX_RESERVATIONS,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


ReservationState = Literal["Withdrawing", "Active", "Conflict", "Releasing"]


class ReservationReport(Report):
    """How far one reservation is."""

    resource: ResourceName = Field(description="The resource that stands for the service's GPUs.")
    gpus: list[GpuUuid] = Field(
        default=[],
        description="The GPUs behind the name.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    state: ReservationState = Field(
        description=(
            "Withdrawing: the GPUs leave the shared resource, and wait until no pod has them; or one could not be "
            "reserved any more, which GpuSharingReady says. Active: pods can have them under this name. Conflict: "
            "one was held already, or cannot be reserved, so all were given back. Releasing: no longer wanted, but "
            "pods have them."
        )
    )
    releasing: list[GpuUuid] = Field(
        default=[],
        description="GPUs that the name had before and that are not shared again yet, because pods have them.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    in_use: Count = Field(default=0, description="GPUs that pods hold under this name.")
    taken: GpuUuid | None = Field(default=None, description="In state Conflict: the GPU that could not be had.")


class GpuNodeStatus(Report):
    """What the node's plugin reports; written by the plugin alone."""

    driver_version: str = Field(default="", description="The NVIDIA driver's version.", max_length=64)
    mig_strategy: MigStrategy = Field(default="none", description="The MIG strategy that is served.")
    gpus: list[Gpu] = Field(
        default=[],
        description="The node's GPUs, by index.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["index"]},
    )
    gpu_count: int | None = Field(default=None, description="How many GPUs, for `kubectl get`.", ge=0, le=256)
    in_use: int | None = Field(default=None, description="How many devices pods hold, for `kubectl get`.", ge=0)
    config: ConfigReport = Field(default=ConfigReport(), description="Desired and served config.")
    resources: list[ResourceReport] = Field(
        default=[],
        description="What is listed to the kubelet.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    stale_resources: list[ResourceName] = Field(
        default=[],
        description="Resources that the kubelet still shows, with 0 devices, although nothing serves them any more.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    occupancy: list[OccupancyReport] = Field(
        default=[],
        description="How full each GPU is.",
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["gpu"]},
    )
    reservations_observed_generation: int | None = Field(
        default=None, description="The generation of the spec that `reservations` follows.", ge=0
    )
    reservations: list[ReservationReport] = Field(
        default=[],
        description="How far each reservation is, and what is still in use of those that are no longer wanted.",
        max_length=2 * MAX_RESERVATIONS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["resource"]},
    )
    fragmentation: FragmentationReport | None = Field(
        default=None, description="How scattered the pods are over the GPUs; absent = what pods hold is not known."
    )
    history: list[ConfigChange] = Field(
        default=[],
        description="The last changes of the served config, newest last.",
        max_length=10,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    conditions: list[Condition] = Field(
        default=[],
        description="GpuSharingReady: whether the plugin serves what it should.",
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class GpuNodeObject(Report):
    """What the device plugin of the node of the same name reports: GPUs, config, shares in use; not for people to edit.

    The spec is the controller's word to the plugin, which GPUs placements have.
    """

    api_version: Literal["gpusharing.io/v1alpha1"] = Field(description="The API group and version.")
    kind: Literal["GpuNode"] = Field(description="The kind.")
    metadata: dict[str, Any] = Field(default={}, description="Standard object metadata.")
    spec: GpuNodeSpec | None = Field(default=None, description="What placements want of the node.")
    status: GpuNodeStatus = Field(default=GpuNodeStatus(), description="What the node's plugin reports.")
