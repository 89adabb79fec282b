"""`GpuPlacement` as the API server has it: the spec of `placement.py`, and what became of it (placement guide, 5.4)."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from gpusharing.api.meta import Condition, Report, Timestamp
from gpusharing.api.node import GpuUuid, ResourceName
from gpusharing.api.placement import MAX_NODES, MAX_POOLS, MAX_SERVICES, PlacementSpec
from gpusharing.api.placementrules import OBJECT_RULES

MAX_PROBLEMS = 20

Count = Annotated[int, Field(ge=0)]
SlotName = Annotated[str, Field(max_length=72, description="A node's place in the plan: <pool>/<number>.")]
NodeName = Annotated[str, Field(max_length=253)]
Indexes = Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(max_length=64)]
_ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}


def _keyed(key: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class PlacementProblem(Report):
    """One error, warning or notice."""

    code: str = Field(description="One CamelCase word; docs/troubleshooting has a page for each.", max_length=64)
    message: str = Field(description="A sentence with names and numbers.", max_length=4096)
    hint: str = Field(default="", description="What to do; empty = nothing in particular.", max_length=1024)


class PlacementSummary(Report):
    """The plan in numbers."""

    gpus_needed: Count = Field(default=0, description="GPUs that the services need.")
    gpus_free: Count = Field(default=0, description="GPUs of the plan's nodes that stay free.")
    nodes: Count = Field(default=0, description="Nodes that the plan uses.")
    services: Count = Field(default=0, description="Services that are deployed.")


class PlacedSlot(Report):
    """One node of the plan."""

    slot: SlotName
    node_name: NodeName = Field(description="The Node.")
    gpus: Count = Field(default=0, description="GPUs that the node has.")
    free: Indexes = Field(default=[], description="Indexes of GPUs that stay free.", json_schema_extra=_ATOMIC)


class PlacedPool(Report):
    """What became of one pool."""

    name: str = Field(description="The pool's name.", max_length=63)
    nodes_resolved: Count = Field(default=0, description="How many nodes it takes; one cumulative number.")
    lower_bound_nodes: int | None = Field(default=None, description="With nodes: auto, the fewest thinkable.", ge=0)
    proven_minimal: bool | None = Field(default=None, description="With nodes: auto, whether no fewer nodes will do.")
    slots: list[PlacedSlot] = Field(
        default=[], description="The pool's nodes.", max_length=MAX_NODES, json_schema_extra=_keyed("slot")
    )


class StoredAssignment(Report):
    """The GPUs of one service on one node: the stored plan, which `GpuNode.spec.reservations` follows."""

    slot: SlotName
    node_name: NodeName = Field(description="The Node.")
    rank: int | None = Field(default=None, description="Its number among the service's slots; absent = it has one.")
    indexes: Indexes = Field(default=[], description="The GPUs' indexes on the node.", json_schema_extra=_ATOMIC)
    uuids: list[GpuUuid] = Field(default=[], description="The GPUs' UUIDs.", max_length=64, json_schema_extra=_ATOMIC)
    resource: ResourceName = Field(
        default="", description="What pods ask for; empty with enforcement: env, or where nothing is reserved."
    )
    exclusive: bool = Field(
        default=True, description="false: other services may have names over the same GPUs (fraction, shareWith)."
    )
    exported: bool | None = Field(
        default=None,
        description="With enforcement: env, whether its GPUs are named to it; false where it has the node to itself.",
    )
    count: Count = Field(default=0, description="How many of it a pod asks for.")
    in_use: Count = Field(default=0, description="How many of them pods hold.")
    idle_since: Timestamp | None = Field(default=None, description="Since when no pod holds any; absent = one does.")


class PlacedService(Report):
    """What one service has."""

    name: str = Field(description="The service's name.", max_length=63)
    gpus_needed: Count = Field(default=0, description="GPUs that it needs.")
    demand_hash: str = Field(default="", description="SHA-256 of its own demand, in hex.", max_length=64)
    assignments: list[StoredAssignment] = Field(
        default=[], description="Its GPUs, by slot.", max_length=MAX_NODES, json_schema_extra=_keyed("slot")
    )


class PlacementStatus(Report):
    """What became of it; written by the controller alone."""

    observed_generation: int | None = Field(
        default=None, description="The generation that all this was computed from.", ge=0
    )
    observed_rebalance: str = Field(
        default="", description="The value of the annotation gpusharing.io/rebalance that was acted on.", max_length=253
    )
    plan_hash: str = Field(default="", description="SHA-256 of the plan, in hex.", max_length=64)
    lead_node: str = Field(default="", description="The Node of the lead.", max_length=253)
    conditions: list[Condition] = Field(
        default=[],
        description="Ready, Valid, Placed and Reserved; Reconciling, Stalled and Degraded only while true.",
        max_length=16,
        json_schema_extra=_keyed("type"),
    )
    summary: PlacementSummary = Field(default=PlacementSummary(), description="The plan in numbers.")
    pools: list[PlacedPool] = Field(
        default=[], description="What became of each pool.", max_length=MAX_POOLS, json_schema_extra=_keyed("name")
    )
    services: list[PlacedService] = Field(
        default=[], description="The stored plan.", max_length=MAX_SERVICES, json_schema_extra=_keyed("name")
    )
    problems: list[PlacementProblem] = Field(
        default=[],
        description="Errors, warnings and notices, with what to do.",
        max_length=MAX_PROBLEMS,
        json_schema_extra=_ATOMIC,
    )


class PlacementObject(Report):
    """Several services on shared GPU nodes, each with its own GPUs, and what became of it; edit it with kubectl."""

    model_config = ConfigDict(json_schema_extra=OBJECT_RULES)

    api_version: Literal["gpusharing.io/v1alpha1"] = Field(description="The API group and version.")
    kind: Literal["GpuPlacement"] = Field(description="The kind.")
    metadata: dict[str, Any] = Field(default={}, description="Standard object metadata.")
    spec: PlacementSpec = Field(description="What the owner of an application wants.")
    status: PlacementStatus = Field(default=PlacementStatus(), description="What became of it.")
