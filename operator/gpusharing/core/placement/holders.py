"""Who has which GPU: by stored plans, by what nodes are told, and by what their plugins have not given back yet."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpusharing.api import names
from gpusharing.core.placement.cluster import Cluster
from gpusharing.core.placement.resourcenames import resource_name
from gpusharing.core.placement.stored import Placement


@dataclass(frozen=True, slots=True)
class Holders:
    """Everything that is reserved, as one placement sees it."""

    # GPU → the other placement that has it
    others: Mapping[str, str]
    # GPUs that the placement itself has, by its stored plan or under its names
    own: Collection[str]
    # node → resource names that others have there
    names: Mapping[str, Collection[str]]


def holders(cluster: Cluster, placement: Placement) -> Holders:
    """Return who has what. A GPU that is on its way from the placement to another is the other's."""
    own: dict[str, str] = {}
    others: dict[str, str] = {}
    resources: dict[str, set[str]] = {}
    mine = {assignment.resource for _, assignment in placement.assignments()} - {""}
    mine |= {name for name, _, _ in found_again(cluster, placement)} if not placement.planned else set()
    for name, seen in cluster.nodes.items():
        for resource, uuid in seen.gpu_node.held() if seen.gpu_node else ():
            if resource in mine:
                own[uuid] = resource
            else:
                others[uuid] = resource.removeprefix(names.PLACE_DOMAIN)
                resources.setdefault(name, set()).add(resource)
    for _, assignment in placement.assignments():
        own |= dict.fromkeys(assignment.uuids, assignment.resource)
        for uuid in assignment.uuids:
            others.pop(uuid, None)
    for other in cluster.others(placement):
        for _, assignment in other.assignments():
            others |= dict.fromkeys(assignment.uuids, other.key)
            if assignment.resource:
                resources.setdefault(assignment.node_name, set()).add(assignment.resource)
    return Holders(others, frozenset(own.keys() - others.keys()), resources)


def found_again(cluster: Cluster, placement: Placement) -> list[tuple[str, str, int | None]]:
    """Return resource, service and rank of every name of the placement's that a node still has (guide, section 8.3).

    A placement that is created anew has no plan yet; what its namesake had is its own, by the names alone.
    """
    if placement.spec is None:
        return []
    suffix = f".{placement.namespace}"
    there = {
        resource
        for seen in cluster.nodes.values()
        if seen.gpu_node is not None
        for resource, _ in seen.gpu_node.held()
        if resource.endswith(suffix)
    }
    found = []
    for service in placement.spec.services if there else ():
        for rank in (None, *range(len(there))):
            name = resource_name(placement.namespace, placement.name, service.name, rank)
            if name in there:
                found.append((name, service.name, rank))
    return found
