"""What `kubectl gpusharing status -o json|yaml` prints: policies, nodes and problems, stable across releases."""

from typing import Annotated, Literal

from pydantic import Field

from gpusharing.api.meta import ConditionStatus, Model
from gpusharing.api.policy import NodeCounts

Count = Annotated[int, Field(ge=0)]


class PolicyOverview(Model):
    """One policy: what it asks for, and how far it is."""

    policy: str = Field(description="The policy's name.")
    priority: int = Field(description="Its priority.")
    mode: Literal["enforce", "dry-run", "invalid"] = Field(description="Its mode; invalid = its spec breaks a rule.")
    allocation: str = Field(description="The allocation policy; empty where the spec is invalid.")
    sharing: str = Field(description="The sharing in words, for example 4x time-slicing; none = whole devices.")
    mig: str = Field(description="The MIG strategy.")
    config: str = Field(description="The name of its config, the value of the nodes' config label.")
    nodes: NodeCounts = Field(description="How many nodes are where, counted now.")
    ready: ConditionStatus = Field(description="The condition Ready; Unknown where the controller has not said it yet.")
    reason: str = Field(description="Ready's reason; empty where the controller has not said it yet.")
    message: str = Field(description="Ready's message.")


class NodeGroup(Model):
    """Nodes that are alike."""

    model: str = Field(description="The GPU model; empty = not labelled.")
    owner: str = Field(description="The policy that owns them, or keeps them as they are; empty = none.")
    state: str = Field(description="Where they are; the states are listed in docs/reference/cli.md.")
    nodes: Count = Field(description="How many nodes.")
    gpus: Count = Field(description="How many GPUs they have, as far as labels and reports tell.")


class NodeOverview(Model):
    """One node (with --nodes)."""

    node: str = Field(description="The node's name.")
    model: str = Field(description="The GPU model; empty = not labelled.")
    owner: str = Field(description="The policy that owns it, or keeps it as it is; empty = none.")
    config: str = Field(description="Its config label; empty = none.")
    state: str = Field(description="Where it is; the states are listed in docs/reference/cli.md.")
    detail: str = Field(description="Why, in a few words; may be empty.")


class OverviewProblem(Model):
    """Something that an admin should look at."""

    policy: str = Field(description="The policy that it concerns.")
    reason: str = Field(description="The reason word, see docs/reference/reasons.md; empty = the controller is silent.")
    nodes: int | None = Field(default=None, description="How many nodes; absent = it concerns the policy itself.")
    message: str = Field(description="What is wrong, with the first few names.")


class StatusReport(Model):
    """The whole picture."""

    layout: Literal["per-node", "shared"] = Field(description="Where configs go: per-node, or shared.")
    gpu_nodes: Count = Field(description="How many GPU nodes there are.")
    gpus: Count = Field(description="How many GPUs they have, as far as labels and reports tell.")
    states: dict[str, Count] = Field(description="State → how many nodes are in it.")
    policies: list[PolicyOverview] = Field(description="The policies in the order in which they win.")
    groups: list[NodeGroup] = Field(description="Nodes by model, owner and state.")
    problems: list[OverviewProblem] = Field(description="What an admin should look at, by policy.")
    nodes: list[NodeOverview] | None = Field(default=None, description="Every GPU node by name; only with --nodes.")
