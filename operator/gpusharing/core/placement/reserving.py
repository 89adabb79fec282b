"""How far the reservations of a plan are: what the plugins of its nodes answer, as far as it can be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpusharing.api.node import ReservationReport
from gpusharing.api.placementobject import PlacedService, StoredAssignment
from gpusharing.core.placement.cluster import Cluster

# unknown: the node has no report, or an older one than what it is told
State = Literal["active", "waiting", "unknown"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The resource names of a plan, counted by state."""

    active: int = 0
    unknown: int = 0
    # nodes on which pods cannot have a name yet
    waiting: tuple[str, ...] = ()
    names: int = 0

    @property
    def complete(self) -> bool:
        """Whether pods can have all of them."""
        return self.active == self.names

    @property
    def uncertain(self) -> bool:
        """Whether nothing is wrong with those that are known."""
        return self.active + self.unknown == self.names


def progress(cluster: Cluster, services: Sequence[PlacedService]) -> Progress:
    """Return how far a plan is."""
    reserved = [each for service in services for each in service.assignments if each.resource]
    states = [state_of(cluster, each) for each in reserved]
    waiting = dict.fromkeys(each.node_name for each, state in zip(reserved, states, strict=True) if state != "active")
    return Progress(states.count("active"), states.count("unknown"), tuple(waiting), len(states))


def state_of(cluster: Cluster, assignment: StoredAssignment) -> State:
    """Return how far one reservation is."""
    seen = cluster.nodes.get(assignment.node_name)
    gpu_node = seen.gpu_node if seen is not None else None
    if gpu_node is None:
        return "unknown"
    asked = [each.gpus for each in gpu_node.wanted or () if each.resource == assignment.resource]
    if asked != [assignment.uuids]:
        return "waiting"
    if not gpu_node.current:
        return "unknown"
    entry = _entry(gpu_node.current_entries, assignment)
    return "active" if entry is not None and entry.state == "Active" else "waiting"


def observed(
    cluster: Cluster, services: Sequence[PlacedService], before: Sequence[PlacedService]
) -> list[PlacedService]:
    """Return the services with how many of their GPUs pods hold, and since when none does.

    What cannot be known now is as it was `before`.
    """
    known = {(service.name, each.node_name, each.resource): each for service in before for each in service.assignments}
    return [
        service.model_copy(
            update={"assignments": [_in_use(cluster, each, service.name, known) for each in service.assignments]}
        )
        for service in services
    ]


def _in_use(
    cluster: Cluster,
    assignment: StoredAssignment,
    service: str,
    known: Mapping[tuple[str, str, str], StoredAssignment],
) -> StoredAssignment:
    before = known.get((service, assignment.node_name, assignment.resource), assignment)
    in_use, idle_since = before.in_use, before.idle_since
    if assignment.resource and state_of(cluster, assignment) == "active":
        entry = _entry(_entries(cluster, assignment.node_name), assignment)
        in_use = entry.in_use if entry is not None else 0
        idle_since = None if in_use else idle_since or cluster.now.replace(microsecond=0)
    return assignment.model_copy(update={"in_use": in_use, "idle_since": idle_since})


def _entries(cluster: Cluster, node: str) -> Sequence[ReservationReport]:
    seen = cluster.nodes.get(node)
    return seen.gpu_node.current_entries if seen is not None and seen.gpu_node is not None else ()


def _entry(entries: Sequence[ReservationReport], assignment: StoredAssignment) -> ReservationReport | None:
    return next(
        (each for each in entries if each.resource == assignment.resource and set(each.gpus) == set(assignment.uuids)),
        None,
    )
