"""Stored plans → what each node's plugin is told: `GpuNode.spec.reservations` (guide, section 8.3).

A pure function of the stored plans, so that whoever starts next finishes what was begun. What a placement has that was
not planned yet (it was created anew a moment ago) is known from the nodes alone, and stays until it is.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from gpusharing.api.node import Reservation
from gpusharing.core.placement.observed import SeenGpuNode
from gpusharing.core.placement.stored import Placement

Reservations = tuple[Reservation, ...]


def project(placements: Iterable[Placement], present: Mapping[str, Sequence[Reservation]]) -> dict[str, Reservations]:
    """Return node → its reservations, by resource. `present` is what the nodes are told now.

    No GPU is told to two placements, whatever the plans say: the older has it, and the other's whole entry is left out.
    """
    ordered = sorted(placements, key=lambda each: each.rank)
    told: dict[str, list[Reservation]] = {}
    owners: dict[str, str] = {}
    for node, entry in [*_stored(ordered), *_kept(ordered, present)]:
        if any(owners.get(uuid, entry.placement) != entry.placement for uuid in entry.gpus):
            continue
        owners |= dict.fromkeys(entry.gpus, entry.placement)
        told.setdefault(node, []).append(entry)
    return {node: tuple(sorted(entries, key=lambda each: each.resource)) for node, entries in sorted(told.items())}


def _stored(placements: Iterable[Placement]) -> Iterator[tuple[str, Reservation]]:
    for placement in placements:
        for service, assignment in placement.assignments():
            if assignment.resource and assignment.uuids:
                yield (
                    assignment.node_name,
                    Reservation(
                        resource=assignment.resource,
                        placement=placement.key,
                        service=service,
                        gpus=list(assignment.uuids),
                        exclusive=assignment.exclusive,
                    ),
                )


def _kept(
    placements: Iterable[Placement], present: Mapping[str, Sequence[Reservation]]
) -> Iterator[tuple[str, Reservation]]:
    new = {placement.key for placement in placements if not placement.planned}
    for node, entries in sorted(present.items()):
        yield from ((node, entry) for entry in entries if entry.placement in new)


def has_to_be_told(gpu_node: SeenGpuNode, wanted: Reservations) -> bool:
    """Whether the node's spec has to be written: it differs, or it says nothing where something is to be said.

    A spec that says nothing while the plugin has reservations is one of a `GpuNode` that somebody deleted.
    """
    if gpu_node.wanted is None:
        return bool(wanted or gpu_node.entries)
    return gpu_node.wanted != wanted


def has_ownerless(gpu_node: SeenGpuNode, placements: Container[str]) -> bool:
    """Whether the node is told something for placements that are not there; `placements` are those that are."""
    return any(entry.placement not in placements for entry in gpu_node.wanted or ())
