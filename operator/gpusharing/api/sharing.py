"""The parts of a policy that travel to the plugin unchanged; policy and plugin config both embed them."""

from typing import Annotated, Literal

from pydantic import Field

from gpusharing.api.meta import Model

MigStrategy = Literal["none", "single", "mixed"]
AllocationPolicyName = Literal["packed", "distributed", "spread"]
KeepTogether = Literal["none", "preferred", "required"]
Topology = Literal["none", "preferred"]
SharingStrategy = Literal["time-slicing", "mps"]
DeviceListStrategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
DeviceIdStrategy = Literal["uuid", "index"]

MIN_REPLICAS, MAX_REPLICAS, MAX_MPS_REPLICAS = 2, 2048, 48
# Design, decision 5: the resources that the plugin advertises before any renaming (contract 3.1, 3.3).
RESOURCE_NAME_PATTERN = r"^nvidia\.com/(gpu|mig-[1-7]g\.[1-9][0-9]{0,2}gb(\.me(\.all)?|\.gfx|-me)?)$"

REPLICAS_MESSAGE = "replicas must be from 2 to 2048: leave the resource out to not share it"
RESOURCE_NAME_MESSAGE = "not a resource name the device plugin advertises"
MPS_REPLICAS_MESSAGE = "MPS allows at most 48 replicas per GPU"

ResourceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        description=(
            "The resource as the plugin advertises it unshared: nvidia.com/gpu, or nvidia.com/mig-<profile> such as "
            "nvidia.com/mig-1g.10gb."
        ),
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": f"self.matches('{RESOURCE_NAME_PATTERN}')".replace("\\", "\\\\"),
                    "message": RESOURCE_NAME_MESSAGE,
                    "messageExpression": (
                        "'\"' + self + '\" is not a resource name the device plugin advertises: write nvidia.com/gpu, "
                        "or nvidia.com/mig-<profile> such as nvidia.com/mig-1g.10gb'"
                    ),
                }
            ]
        },
    ),
]
Replicas = Annotated[
    int,
    Field(
        description="How many shares each device of the resource is advertised as, from 2 to 2048 (MPS: to 48).",
        json_schema_extra={
            "format": "int32",
            "x-kubernetes-validations": [
                {"rule": f"self >= {MIN_REPLICAS} && self <= {MAX_REPLICAS}", "message": REPLICAS_MESSAGE}
            ],
        },
    ),
]


class SharedResource(Model):
    """One resource and the number of shares each of its devices is split into."""

    name: ResourceName
    replicas: Replicas


class Allocation(Model):
    """How the devices of a request are chosen among the free ones."""

    policy: AllocationPolicyName = Field(
        default="distributed",
        description=(
            "packed fills the fullest GPU first and keeps whole GPUs free; distributed takes the emptiest GPU first, "
            "as NVIDIA's plugin does; spread takes distinct GPUs within one request."
        ),
    )
    keep_together: KeepTogether = Field(
        default="none",
        description=(
            "Whether the shares of one request stay on one GPU: none, preferred (never split what one GPU can hold), "
            "or required (refuse the request instead of splitting it)."
        ),
    )
    topology: Topology = Field(
        default="none",
        description="preferred splits what must be split evenly over GPUs that are linked with one another.",
    )
