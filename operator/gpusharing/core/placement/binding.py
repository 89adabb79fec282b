"""Which part of the stored plan still holds, and so stays where it is (guide, section 6.8)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from gpusharing.api.placementobject import PlacedService, StoredAssignment
from gpusharing.core.placement.cluster import Cluster
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.holders import Holders, found_again
from gpusharing.core.placement.incidents import gpu_unhealthy, node_lost, reservation_conflict
from gpusharing.core.placement.observed import SeenGpuNode
from gpusharing.core.placement.problems import Problem
from gpusharing.core.placement.request import Bound
from gpusharing.core.placement.stored import Placement, demand_hash


@dataclass(frozen=True, slots=True)
class Binding:
    """What stays, and what went wrong with the rest."""

    bound: tuple[Bound, ...] = ()
    # services of which a pod had a GPU first: what is stored of them holds no longer, whatever comes of the new plan
    given_back: frozenset[str] = frozenset()
    conflicts: tuple[Problem, ...] = ()
    lost: tuple[Problem, ...] = ()
    unhealthy: tuple[Problem, ...] = ()

    @property
    def services(self) -> frozenset[str]:
        """Return the services that stay."""
        return frozenset(each.service for each in self.bound)


def bind(cluster: Cluster, placement: Placement, demands: Sequence[Demand], held: Holders) -> Binding:
    """Return what of the stored plan holds, for the demands as they are now."""
    if not placement.planned:
        return Binding(bound=tuple(_recreated(cluster, placement, demands, held)))
    conflicts = tuple(_conflicts(cluster, placement))
    given_back = frozenset(name for each in conflicts for name in each.services)
    binding = Binding(
        (), given_back, conflicts, tuple(_lost(cluster, placement)), tuple(_unhealthy(cluster, placement))
    )
    if placement.rebalance != placement.status.observed_rebalance:
        return binding
    hashes = {each.name: demand_hash(each) for each in demands}
    bound: list[Bound] = []
    for service in placement.status.services:
        if service.name not in given_back and hashes.get(service.name) == service.demand_hash:
            bound += _still_there(cluster, service, held)
    return replace(binding, bound=tuple(bound))


def _still_there(cluster: Cluster, service: PlacedService, held: Holders) -> list[Bound]:
    """Return the service's assignments; none at all where one of them is gone."""
    bound = []
    for assignment in service.assignments:
        indexes = indexes_now(cluster, assignment)
        gone = indexes is None or cluster.lost_in(assignment.node_name) == timedelta()
        if gone or indexes is None or any(uuid in held.others for uuid in assignment.uuids):
            return []
        bound.append(Bound(service.name, assignment.node_name, indexes, assignment.slot))
    return bound


def indexes_now(cluster: Cluster, assignment: StoredAssignment) -> tuple[int, ...] | None:
    """Return where the GPUs are now: a reboot may number them anew. None = one of them is gone for good.

    Unknown is not gone: of a node whose plugin does not say that all is well, what was stored holds.
    """
    seen = cluster.nodes.get(assignment.node_name)
    gpu_node = seen.gpu_node if seen is not None else None
    now = {gpu.uuid: gpu.index for gpu in gpu_node.gpus} if gpu_node is not None else {}
    if all(uuid in now for uuid in assignment.uuids) and assignment.uuids:
        return tuple(now[uuid] for uuid in assignment.uuids)
    return None if gpu_node is not None and gpu_node.ready and assignment.uuids else tuple(assignment.indexes)


def _conflicts(cluster: Cluster, placement: Placement) -> Iterator[Problem]:
    for service, assignment in placement.assignments():
        for resource, uuid in _taken(cluster, assignment.node_name):
            if resource == assignment.resource:
                yield reservation_conflict(uuid, assignment.node_name, service)


def _taken(cluster: Cluster, node: str) -> Iterable[tuple[str, str]]:
    gpu_node = _gpu_node(cluster, node)
    return gpu_node.taken() if gpu_node is not None else ()


def _gpu_node(cluster: Cluster, node: str) -> SeenGpuNode | None:
    seen = cluster.nodes.get(node)
    return seen.gpu_node if seen is not None else None


def _lost(cluster: Cluster, placement: Placement) -> Iterator[Problem]:
    """Yield each node of the plan that is not there, whether it counts as lost already or not."""
    services: dict[tuple[str, str], list[str]] = {}
    for service, assignment in placement.assignments():
        if cluster.lost_in(assignment.node_name) is not None:
            services.setdefault((assignment.node_name, assignment.slot), []).append(service)
    for (node, slot), affected in sorted(services.items()):
        yield node_lost(node, slot, affected)


def _unhealthy(cluster: Cluster, placement: Placement) -> Iterator[Problem]:
    """Yield each GPU that is broken, or that a plugin which is not content does not list: it may come back."""
    for service, assignment in placement.assignments():
        gpu_node = _gpu_node(cluster, assignment.node_name)
        seen = {gpu.uuid: gpu for gpu in gpu_node.gpus} if gpu_node is not None else {}
        missed = bool(seen) and gpu_node is not None and not gpu_node.ready
        for index, uuid in zip(assignment.indexes, assignment.uuids, strict=False):
            gpu = seen.get(uuid)
            if missed if gpu is None else not gpu.healthy:
                yield gpu_unhealthy(gpu.index if gpu else index, uuid, service, assignment.node_name)


def _recreated(cluster: Cluster, placement: Placement, demands: Sequence[Demand], held: Holders) -> Iterator[Bound]:
    """Yield what the placement's namesake had, as far as the demands allow (guide, section 8.3).

    What takes the rest takes it anew: only what its pods still hold would be less than that.
    """
    needs = {each.name: each for each in demands if each.leftover is None}
    found = {resource: service for resource, service, _ in found_again(cluster, placement)}
    for name, seen in sorted(cluster.nodes.items()) if found else ():
        gpus: dict[str, set[int]] = {}
        index_of = {gpu.uuid: gpu.index for gpu in seen.gpu_node.gpus} if seen.gpu_node else {}
        for resource, uuid in seen.gpu_node.held() if seen.gpu_node else ():
            if found.get(resource) in needs and uuid in index_of and uuid not in held.others:
                gpus.setdefault(found[resource], set()).add(index_of[uuid])
        for service, indexes in sorted(gpus.items()):
            demand = needs[service]
            whole = demand.exclusive or demand.evenly or demand.split or demand.tail
            enough = sorted(indexes) if whole else sorted(indexes)[: demand.gpus_needed or None]
            yield Bound(service, name, tuple(enough))
