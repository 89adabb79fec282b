"""What `kubectl gpusharing plan -o json|yaml` prints: before and after of every node, stable across releases."""

from typing import Annotated, Literal

from pydantic import Field

from gpusharing.api.meta import Model

Count = Annotated[int, Field(ge=0)]
ChangeWord = Literal[
    "add", "change", "release", "repair", "unchanged", "manual", "manual?", "skipped", "frozen", "refused"
]


class BeforeAfter(Model):
    """A name before and after; empty = none."""

    before: str = Field(description="As it stands in the cluster; empty = none.")
    after: str = Field(description="As it would be; empty = none.")


class DeviceChange(Model):
    """How many devices of one resource the kubelet sees."""

    resource: str = Field(description="The resource's name, for example nvidia.com/gpu.")
    before: int | None = Field(default=None, description="Devices now; absent = not known.")
    after: int | None = Field(default=None, description="Devices afterwards; absent = not known.")


class PlannedNode(Model):
    """What the plan does to one node."""

    node: str = Field(description="The node's name.")
    model: str = Field(description="The GPU model by the label nvidia.com/gpu.product; empty = not labelled.")
    owner: BeforeAfter = Field(description="The policy that holds the node.")
    config: BeforeAfter = Field(description="The label nvidia.com/device-plugin.config.")
    change: ChangeWord = Field(
        description=(
            "add: the first config. change: another one, or another owner. release: label and record go. repair: "
            "something else changed what was written. unchanged. Left as they are: manual (the label was set by hand), "
            "manual? (the saved file has no ConfigMaps that could tell), skipped (gpusharing.io/skip), frozen (its "
            "policy is in mode dry-run or invalid), refused (a ConfigMap of the record's name is not ours)."
        )
    )
    devices: list[DeviceChange] = Field(description="One entry per resource, by name.")
    notes: list[str] = Field(description="What keeps the node from changing, or is worth knowing, in sentences.")


class PlanTotals(Model):
    """How many GPU nodes are where; every one is counted once."""

    add: Count = Field(description="Nodes that get a config for the first time.")
    change: Count = Field(description="Nodes whose config or owner changes.")
    release: Count = Field(description="Nodes that are let go.")
    repair: Count = Field(description="Nodes where something else changed what was written; it is put back.")
    unchanged: Count = Field(description="Nodes that stay as they are, and should.")
    skipped: Count = Field(description="Nodes that these policies name and that are left as they are.")


class PlannedPolicy(Model):
    """What becomes of one policy of the plan."""

    policy: str = Field(description="The policy's name.")
    action: Literal["create", "update", "delete"] = Field(description="What is done to the policy itself.")
    as_if_enforced: bool = Field(
        description="true: it is in mode dry-run and planned as if enforced; applying it as it is writes nothing."
    )
    matched: Count = Field(description="GPU nodes that its selector names.")
    owned: Count = Field(description="Matched nodes that it wins.")
    notes: list[str] = Field(description="Why it wins fewer nodes than it names, in sentences.")


class PlanReport(Model):
    """What applying (or deleting) policies would do."""

    layout: Literal["per-node", "shared"] = Field(description="Where configs go: per-node, or shared.")
    policies: list[PlannedPolicy] = Field(description="The policies that are planned, by name.")
    summary: PlanTotals = Field(description="How many nodes are where.")
    nodes: list[PlannedNode] = Field(description="Nodes that change or have notes, by name; with --all every GPU node.")
