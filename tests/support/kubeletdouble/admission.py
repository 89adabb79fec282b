"""What the kubelet does for a pod that asks for devices, in its order (section 5 of the contract).

The order of what it takes from a set is arbitrary in the kubelet; here it is that of a seeded shuffle.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import uuid4

from tests.support.kubeletdouble.devices import DeviceManager, Endpoint

Policy = Literal["none", "single-numa-node"]
Kind = Literal["init", "sidecar", "app"]


class AdmissionFailed(Exception):
    """The pod failed; the text as it stands in its status."""


class TopologyAffinity(AdmissionFailed):
    """The topology manager rejected the pod before anything was asked of a plugin."""


class KubeletCrashed(AssertionError):
    """An id that was being allocated vanished from the list: a real kubelet dies of a nil pointer (section 4)."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container and its limits."""

    name: str
    limits: Mapping[str, int]
    kind: Kind = "app"


class Pod:
    """A pod; with `limits` it has one container, `main`."""

    def __init__(
        self,
        name: str,
        *containers: Container,
        limits: Mapping[str, int] | None = None,
        namespace: str = "default",
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.uid = str(uuid4())
        self.containers = containers or (Container("main", dict(limits or {})),)

    @property
    def in_order(self) -> Sequence[Container]:
        """Plain init containers and sidecars first, as the kubelet goes through them."""
        return [
            *(one for one in self.containers if one.kind != "app"),
            *(one for one in self.containers if one.kind == "app"),
        ]


class Calls(Protocol):
    """The two calls to a plugin."""

    async def prefer(
        self, endpoint: Endpoint, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]: ...

    async def allocate(self, endpoint: Endpoint, ids: Sequence[str]) -> Any:
        """The whole answer; its `container_responses` are looked at."""


@dataclass(slots=True)
class Held:
    """What a pod was given: ids and the plugin's answer by container and resource."""

    ids: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    answers: dict[tuple[str, str], Any] = field(default_factory=dict)


class Admission:
    """Admits pods one after the other; knows who holds what."""

    def __init__(
        self,
        manager: DeviceManager,
        calls: Calls,
        *,
        policy: Policy = "none",
        numa_nodes: int = 1,
        seed: int = 0,
        pods: Iterable[Pod] = (),
    ) -> None:
        self._manager = manager
        self._calls = calls
        self._policy = policy
        self._numa_nodes = numa_nodes
        self._random = random.Random(seed)
        self.active: dict[str, Pod] = {pod.uid: pod for pod in pods}
        self.in_use: dict[str, set[str]] = {}
        self._recount()

    async def admit(self, pod: Pod) -> Held:
        """Give every container what it asks for. AdmissionFailed leaves nothing with the pod."""
        self.active[pod.uid] = pod
        held = Held()
        reuse: dict[str, set[str]] = {}
        try:
            for container in pod.in_order:
                hint = self._hint(container)
                await self._container(pod, container, reuse, hint, held)
        except TopologyAffinity:
            self.active.pop(pod.uid, None)
            raise
        except AdmissionFailed as error:
            self.active.pop(pod.uid, None)
            raise AdmissionFailed(f"Allocate failed due to {error}, which is unexpected") from error
        return held

    def delete(self, pod: Pod) -> None:
        """The pod has ended; its devices are free from the next admission on."""
        self.active.pop(pod.uid, None)

    async def _container(
        self, pod: Pod, container: Container, reuse: dict[str, set[str]], hint: frozenset[int] | None, held: Held
    ) -> None:
        limits = list(container.limits.items())
        self._random.shuffle(limits)
        for resource, count in limits:
            if resource not in self._manager.healthy:
                continue  # not known at all: the pod runs without
            self._collect_garbage()
            key = (pod.uid, container.name, resource)
            chosen = await self._choose(key, count, reuse.get(resource, set()), hint)
            if chosen:
                answer = await self._allocate(resource, chosen)
                if any(device not in self._manager.devices[resource] for device in chosen):
                    raise KubeletCrashed(
                        f"kubelet crashed: of {sorted(chosen)} one left the list while being allocated"
                    )
                self._manager.pods[key] = frozenset(chosen)
                held.answers[container.name, resource] = answer
            held.ids[container.name, resource] = self._manager.pods[key]
        for resource in container.limits:
            mine = self._manager.pods.get((pod.uid, container.name, resource), frozenset())
            pool = reuse.setdefault(resource, set())
            pool.update(mine) if container.kind == "init" else pool.difference_update(mine)

    async def _choose(
        self, key: tuple[str, str, str], count: int, reusable: set[str], hint: frozenset[int] | None
    ) -> set[str]:
        resource = key[2]
        before = self._manager.pods.get(key)
        if before is not None and len(before) != count:
            raise AdmissionFailed(f"pod {key[0]!r} container {key[1]!r} changed request for resource {resource!r}")
        healthy = self._manager.healthy[resource]
        if not healthy:
            raise AdmissionFailed(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not healthy >= (before or set()):
            raise AdmissionFailed(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        if before is not None:
            return set()
        return await self._pick(resource, count, reusable, hint)

    async def _pick(self, resource: str, count: int, reusable: set[str], hint: frozenset[int] | None) -> set[str]:
        chosen: set[str] = set()

        def take(ids: Iterable[str]) -> bool:
            for device in self._shuffled(set(ids) - chosen):
                if len(chosen) == count:
                    break
                chosen.add(device)
                self.in_use.setdefault(resource, set()).add(device)
            return len(chosen) == count

        if take(reusable):
            return chosen
        available = self._manager.healthy[resource] - self.in_use.get(resource, set())
        needed = count - len(chosen)
        if len(available) < needed:
            raise AdmissionFailed(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(available)}"
            )
        aligned, unaligned, unknown = self._by_affinity(resource, available, hint)
        if needed < len(aligned):
            preferred = await self._prefer(resource, aligned | chosen, chosen, count)
            if not take(preferred & aligned):
                take(aligned)
            return chosen
        if take(aligned):
            return chosen
        preferred = await self._prefer(resource, available | chosen, chosen, count)
        _ = take(preferred & available) or take(unaligned) or take(unknown)
        return chosen

    async def _prefer(self, resource: str, available: set[str], must_include: set[str], size: int) -> set[str]:
        endpoint = self._endpoint(resource)
        if not endpoint.preferred:
            return set()
        offered, included = self._shuffled(available), self._shuffled(must_include)
        try:
            return set(await self._calls.prefer(endpoint, offered, included, size))
        except AdmissionFailed as error:
            raise AdmissionFailed(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error

    async def _allocate(self, resource: str, chosen: set[str]) -> Any:
        try:
            answer = await self._calls.allocate(self._endpoint(resource), self._shuffled(chosen))
        except AdmissionFailed:
            self._recount()
            raise
        if not answer.container_responses:
            # here the kubelet forgets to give the devices back
            raise AdmissionFailed(f"no containers return in allocation response {answer}")
        return answer

    def _endpoint(self, resource: str) -> Endpoint:
        endpoints = self._manager.endpoints.get(resource)
        if self._manager.has_stopped(resource) or not endpoints:
            self._recount()
            raise AdmissionFailed(f"endpoint {resource} has been stopped")
        return endpoints[-1]

    def _by_affinity(
        self, resource: str, available: set[str], hint: frozenset[int] | None
    ) -> tuple[set[str], set[str], set[str]]:
        if hint is None:
            return set(), set(), available
        nodes = {device: set(self._manager.devices[resource].get(device, ())) for device in available}
        unknown = {device for device, numa in nodes.items() if not numa}
        aligned = {device for device, numa in nodes.items() if numa & hint}
        return aligned, available - aligned - unknown, unknown

    def _hint(self, container: Container) -> frozenset[int] | None:
        """The NUMA node that the topology manager picks; None = no hint (policy none, or only one node)."""
        asked = {
            name: count for name, count in container.limits.items() if any(self._manager.devices.get(name, {}).values())
        }
        if self._policy == "none" or self._numa_nodes < 2 or not asked:
            return None
        for node in range(self._numa_nodes):
            if all(self._free_on(name, node) >= count for name, count in asked.items()):
                return frozenset({node})
        raise TopologyAffinity("Resources cannot be allocated with Topology locality")

    def _free_on(self, resource: str, node: int) -> int:
        free = self._manager.healthy[resource] - self.in_use.get(resource, set())
        return sum(node in self._manager.devices[resource].get(device, ()) for device in free)

    def _collect_garbage(self) -> None:
        gone = [key for key in self._manager.pods if key[0] not in self.active]
        for key in gone:
            del self._manager.pods[key]
        if gone:
            self._recount()

    def _recount(self) -> None:
        self.in_use = {}
        for (_, _, resource), ids in self._manager.pods.items():
            self.in_use.setdefault(resource, set()).update(ids)

    def _shuffled(self, ids: Iterable[str]) -> list[str]:
        order = sorted(ids)
        self._random.shuffle(order)
        return order
