"""A node's plugin and kubelet: which ids a pod gets, by the code that serves the kubelet in production.

The kubelet counts free healthy ids, asks for a preference among them, takes from it what is free and fills up with
any others, and asks whether it may (`Allocate`); a refusal fails the pod. It has no topology manager here, and no ids
to use again from init containers, so no id must be included (kubelet contract 5).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusharing.core.allocation.buckets import other_load
from gpusharing.core.allocation.prefer import prefer, preferences
from gpusharing.core.allocation.request import AllocationRequest
from gpusharing.core.errors import InvalidInput
from gpusharing.core.grant import refuse_more_than_one, refuse_split
from gpusharing.core.listing import Entry, Listing, advance
from gpusharing.core.resources import Resource
from gpusharing.core.simulation.arrivals import Pod
from gpusharing.core.simulation.draws import Draws
from gpusharing.core.simulation.ideal import Repacking
from gpusharing.core.simulation.occupied import Occupied
from gpusharing.core.simulation.reference import NvidiaBuckets
from gpusharing.core.simulation.scenario import Node, Policy


@dataclass(frozen=True, slots=True)
class Admission:
    """What came of a request for ids."""

    # empty = refused
    ids: tuple[str, ...] = ()
    # whether one GPU could have held it, and whether it is on several
    one_gpu_could_hold: bool = False
    split: bool = False


class Kubelet:
    """A node that runs pods. `occupied` says how full it is."""

    def __init__(self, node: Node, policy: Policy, draws: Draws, repacking: Repacking) -> None:
        node = node.under(policy.allocation)
        listing = advance(Listing(), node.resources, node.config, sick={}, held={}, calls_open=frozenset(), now=0.0)
        self.occupied = Occupied(node, repacking)
        self._held: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._plugins = {resource.name: _Plugin(node, resource, listing, policy, draws) for resource in node.resources}

    @property
    def pods(self) -> int:
        """Return how many pods run."""
        return len(self._held)

    @property
    def held(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """Return pod → resource and ids."""
        return self._held

    def free(self, resource: str) -> int:
        """Return how many ids nobody holds: what the scheduler counts."""
        return self._plugins[resource].free if resource in self._plugins else 0

    def admit(self, pod: Pod) -> Admission:
        """Give the pod its ids, or none where the plugin refuses."""
        plugin = self._plugins[pod.resource]
        together = self.occupied.largest(pod.resource) >= pod.count
        ids = plugin.choose(pod.count, self._others(pod.resource))
        if not plugin.allows(ids):
            return Admission()
        plugin.take(ids)
        self._held[pod.name] = (pod.resource, ids)
        gpus = self.occupied.take(pod.resource, ids)
        return Admission(ids, together, gpus > 1)

    def release(self, pod: Pod) -> None:
        """Take the pod's ids back."""
        resource, ids = self._held.pop(pod.name)
        self._plugins[resource].give_back(ids)
        self.occupied.give_back(resource, ids)

    def _others(self, resource: str) -> Sequence[str]:
        """Return the ids of all other resources that pods hold."""
        if len(self._plugins) == 1:
            return ()
        return [device_id for name, ids in self._held.values() if name != resource for device_id in ids]


class _Plugin:
    """One resource of a node, as the kubelet sees it."""

    def __init__(self, node: Node, resource: Resource, listing: Listing, policy: Policy, draws: Draws) -> None:
        self._node, self._resource, self._draws = node, resource, draws
        self._entries: Mapping[str, Entry] = listing.lists[resource.name]
        self._preferences = preferences(resource, node.inventory, node.config.allocation)
        packed = policy.allocation.policy == "packed"
        reference = policy.reference and not resource.whole_gpus
        self._reference = NvidiaBuckets(self._entries, packed=packed, draws=draws) if reference else None
        self._free = {device_id for device_id, entry in self._entries.items() if entry.healthy}

    @property
    def free(self) -> int:
        return len(self._free)

    def choose(self, size: int, others: Sequence[str]) -> tuple[str, ...]:
        """Return the ids that the kubelet takes."""
        preferred = self._preferred(size, others)
        if len(preferred) == size:
            return preferred
        rest = [device_id for device_id in self._in_order() if device_id not in preferred]
        return (*preferred, *self._draws.some_of(rest, size - len(preferred)))

    def _preferred(self, size: int, others: Sequence[str]) -> tuple[str, ...]:
        if self._reference:
            return self._reference.choose(self._in_order(), size)
        loads = other_load(self._preferences.table, others, self._node.inventory) if others else {}
        return prefer(AllocationRequest(self._free, size, other_load=loads), self._preferences).ids

    def _in_order(self) -> Iterator[str]:
        """Yield the free ids in the order of the list: a set has another one in each process."""
        return filter(self._free.__contains__, self._entries)

    def allows(self, ids: Sequence[str]) -> bool:
        """Whether `Allocate` answers these."""
        try:
            refuse_more_than_one(self._node.config, self._resource, ids)
            entries = [self._entries[device_id] for device_id in ids]
            refuse_split(self._node.config, self._resource, entries, self._node.inventory, {})
        except InvalidInput:
            return False
        return True

    def take(self, ids: Sequence[str]) -> None:
        self._free.difference_update(ids)

    def give_back(self, ids: Sequence[str]) -> None:
        self._free.update(ids)
