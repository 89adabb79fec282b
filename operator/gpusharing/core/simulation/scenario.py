"""A scenario as values: nodes with what their plugins serve, the policies to compare, and what comes when."""

from dataclasses import dataclass, replace

from gpusharing.api.scenario import Arrivals, Event
from gpusharing.api.sharing import Allocation
from gpusharing.core.devices import Inventory
from gpusharing.core.resources import Resource
from gpusharing.core.serving import ServedConfig

# Of a run with arrivals the first part is not measured: it begins with empty nodes.
WARM_UP = 0.2


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its GPUs, and what its config makes of them."""

    name: str
    inventory: Inventory
    config: ServedConfig
    resources: tuple[Resource, ...]

    def under(self, allocation: Allocation) -> "Node":
        """Return the node with another allocation in its config."""
        return replace(self, config=replace(self.config, allocation=allocation))

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs that have something to give, by index."""
        listed = {device.gpu for resource in self.resources for device in resource.devices}
        return tuple(gpu.uuid for gpu in self.inventory.gpus if gpu.uuid in listed)


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to choose, under the name that people read."""

    name: str
    allocation: Allocation
    # NVIDIA's way instead of ours (contract 5.3): for comparison, our plugin has no such policy
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a run depends on."""

    name: str
    seeds: tuple[int, ...]
    duration: float
    nodes: tuple[Node, ...]
    policies: tuple[Policy, ...]
    workload: Arrivals | tuple[Event, ...]

    @property
    def measured_from(self) -> float:
        """Return when measuring begins."""
        return self.duration * WARM_UP if isinstance(self.workload, Arrivals) else 0.0

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the names of all resources of the nodes, sorted."""
        return tuple(sorted({resource.name for node in self.nodes for resource in node.resources}))

    @property
    def resource(self) -> str:
        """Return what a pod asks for that names no resource; empty = each must name one."""
        return self.resources[0] if len(self.resources) == 1 else ""

    def capacity(self, resource: str) -> int:
        """Return how many ids of a resource all nodes have."""
        return sum(len(each.devices) for node in self.nodes for each in node.resources if each.name == resource)
