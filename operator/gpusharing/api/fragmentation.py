"""What `kubectl gpusharing fragmentation -o json|yaml` prints, stable across releases."""

from typing import Annotated

from pydantic import Field

from gpusharing.api.meta import Model
from gpusharing.api.node import FragmentationReport

Count = Annotated[int, Field(ge=0)]


class GpuShares(Model):
    """How full one GPU is."""

    index: int = Field(description="NVML's index.")
    uuid: str = Field(description="NVML's UUID.")
    healthy: bool = Field(description="Whether the plugin serves it as healthy.")
    shares: Count = Field(description="Shares it is split into; 0 = it is not served.")
    in_use: Count = Field(description="Shares that pods hold.")


class NodeFragmentation(Model):
    """One node, as its plugin reports it."""

    node: str = Field(description="The node's name.")
    model: str = Field(description="The model of its GPUs; empty = none is reported.")
    gpus: list[GpuShares] = Field(description="Its GPUs, by index.")
    fragmentation: FragmentationReport | None = Field(
        default=None, description="As in the GpuNode's status; absent = the plugin does not know, or does not say."
    )
    command: str = Field(
        default="",
        description="Deletes the pods of the restart set together; empty = there is none, or not all are named.",
    )


class FragmentationOverview(Model):
    """All nodes that are asked for, and their sums."""

    gpus: Count = Field(description="How many GPUs the nodes have.")
    free_whole_gpus: Count = Field(description="Whole GPUs that are free.")
    possible_whole_gpus: Count = Field(description="Whole GPUs that could be.")
    nodes: list[NodeFragmentation] = Field(description="The nodes by name.")
