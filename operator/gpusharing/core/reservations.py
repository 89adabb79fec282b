"""What placements want of a node's GPUs, as its `GpuNode` says it, and the ids for them (placement guide, 5.5, 8.1)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusharing.api import names, node
from gpusharing.core.devices import SEPARATOR

_DIGEST = 8


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs that pods get under this name, and under no other of another owner."""

    resource: str
    # Who has the GPUs: names of one owner may be over the same GPU. An exclusive name is an owner of its own, all
    # others belong to their placement.
    owner: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the spec of the node's `GpuNode` says."""

    # of the object; None = there is none
    generation: int | None = None
    # None = it says nothing of reservations: what is reserved stays so, and nothing else is
    reservations: tuple[Reservation, ...] | None = None


def wanted_of(gpu_node: Mapping[str, Any] | None) -> Wanted:
    """Return what a `GpuNode` says; None = there is none, which says nothing. Raises pydantic's ValidationError."""
    if gpu_node is None:
        return Wanted()
    spec = node.GpuNodeSpec.model_validate(gpu_node.get("spec") or {})
    said = None if spec.reservations is None else tuple(map(_reservation, spec.reservations))
    return Wanted(gpu_node["metadata"].get("generation"), said)


def _reservation(said: node.Reservation) -> Reservation:
    owner = said.resource if said.exclusive else said.placement
    return Reservation(said.resource, owner, tuple(dict.fromkeys(said.gpus)))


def is_place(resource: str) -> bool:
    """Whether the resource stands for a service of a placement."""
    return resource.startswith(names.PLACE_DOMAIN)


def reserved_id(gpu: str, resource: str, owner: str) -> str:
    """Return the one id of a GPU under a name: the GPU's own UUID, or one that others of its owner can be beside."""
    if owner == resource:
        return gpu
    return f"{gpu}{SEPARATOR}{hashlib.sha256(resource.encode()).hexdigest()[:_DIGEST]}"
