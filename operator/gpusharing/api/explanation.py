"""What `kubectl gpusharing explain -o json|yaml` prints: why a node has its config, stable across releases."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpusharing.api.meta import Model

Count = Annotated[int, Field(ge=0)]


class ConsideredPolicy(Model):
    """What one policy had to do with the node."""

    policy: str = Field(description="The policy's name.")
    priority: int = Field(description="Its priority.")
    mode: Literal["enforce", "dry-run", "invalid"] = Field(description="Its mode; invalid = its spec breaks a rule.")
    matches: bool = Field(description="Whether it names the node.")
    why: str = Field(description="Why it has the node or not: the selector term that fails, or who wins.")


class NodeConfig(Model):
    """The node's config, from what the policy wants to what the plugin runs."""

    wanted: str = Field(description="What the owner wants, by name; empty = no policy owns the node.")
    label: str = Field(description="The config label; empty = none.")
    served: str | None = Field(default=None, description="What the plugin reports that it runs; absent = no report.")
    error: str = Field(description="Why the plugin does not serve the label's config; empty = it does.")
    rendered: dict[str, Any] | None = Field(default=None, description="The wanted plugin config itself.")


class ExplainedResource(Model):
    """One resource: what the wanted config implies, and what the kubelet confirms."""

    resource: str = Field(description="The resource's name, for example nvidia.com/gpu.")
    predicted: int | None = Field(default=None, description="Devices that the config implies; absent = not known.")
    advertised: int | None = Field(default=None, description="Devices that the kubelet confirms; absent = not known.")
    in_use: int | None = Field(default=None, description="Devices that pods hold; absent = not reported.")


class Explanation(Model):
    """The whole answer."""

    node: str = Field(description="The node's name.")
    model: str = Field(description="The GPU model; empty = not labelled.")
    gpus: int | None = Field(default=None, description="How many GPUs it has; absent = nobody says.")
    gpu_node: bool = Field(description="Whether policies may name the node at all.")
    owner: str = Field(description="The policy that owns the node, or keeps it as it is; empty = none.")
    rule: str = Field(description="By which rule it does, or why none does.")
    state: str = Field(description="Where the node is; the states are listed in docs/reference/cli.md.")
    detail: str = Field(description="Why, in a few words; may be empty.")
    config: NodeConfig = Field(description="The node's config, wanted and served.")
    resources: list[ExplainedResource] = Field(description="One entry per resource, by name.")
    considered: list[ConsideredPolicy] = Field(description="Every policy, in the order in which they win.")
