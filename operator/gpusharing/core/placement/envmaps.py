"""`enforcement: env` in a cluster: a ConfigMap per service, with a key per node (guide, section 8.4).

A container that sees every GPU of its node takes the key of its node, and with it the GPUs that are its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusharing.api import names
from gpusharing.api.placementobject import PlacedService, StoredAssignment
from gpusharing.core.placement.renderers import COUNT, DEVICE_ORDER, RANK, SLOT, VISIBLE_DEVICES
from gpusharing.core.placement.stored import Placement


@dataclass(frozen=True, slots=True)
class EnvWrites:
    """How far the ConfigMaps of a placement are; without any there is nothing to say."""

    pending: bool = False
    # why one cannot be written; empty = it can
    refused: str = ""


def env_maps(placement: Placement) -> Iterator[dict[str, Any]]:
    """Yield the ConfigMaps of the stored plan; that of a service without GPUs has no keys."""
    for service in placement.status.services:
        yield _map(placement, service.name, _keys(service))


def emptied_maps(placement: Placement, services: Sequence[PlacedService]) -> Iterator[dict[str, Any]]:
    """Yield the ConfigMaps of the stored plan that the next one, `services`, has not: without keys, so nobody's GPUs.

    They go with the placement. To delete them the controller would need the right to delete any ConfigMap anywhere.
    """
    if not _by_env(placement.status.services):
        return
    stay = {each.name for each in services} if _by_env(services) else set()
    for service in placement.status.services:
        if service.name not in stay:
            yield _map(placement, service.name, {})


def _by_env(services: Sequence[PlacedService]) -> bool:
    """Whether a plan says in ConfigMaps who has which GPUs: it has some, and no resource names for them."""
    return any(each.indexes and not each.resource for service in services for each in service.assignments)


def _map(placement: Placement, service: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{placement.name}.{service}",
            "namespace": placement.namespace,
            "labels": {names.PLACEMENT_LABEL: placement.name, names.SERVICE_LABEL: service},
            "ownerReferences": [_owner(placement)],
        },
        "data": dict(data),
    }


def _owner(placement: Placement) -> dict[str, Any]:
    """Return the reference by which the ConfigMap goes with its placement."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "name": placement.name,
        "uid": placement.uid,
    }


def _keys(service: PlacedService) -> dict[str, str]:
    return {each.node_name: "".join(f"{key}={value}\n" for key, value in _facts(each)) for each in service.assignments}


def _facts(assignment: StoredAssignment) -> Iterator[tuple[str, str]]:
    if assignment.indexes and assignment.exported:
        yield VISIBLE_DEVICES, ",".join(map(str, assignment.indexes))
        yield DEVICE_ORDER
    yield COUNT, str(len(assignment.indexes))
    yield SLOT, assignment.slot
    if assignment.rank is not None:
        yield RANK, str(assignment.rank)
