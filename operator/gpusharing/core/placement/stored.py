"""A `GpuPlacement` as the API server has it: what its owner wants, and the plan that is stored in its status."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from gpusharing.api import names
from gpusharing.api.placement import PlacementSpec
from gpusharing.api.placementobject import PlacementStatus, StoredAssignment
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.problems import Problem
from gpusharing.core.placement.schema import read

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# what changes without the service's GPUs having to: its place in the file, its port, what a warning is made of
_NOT_OF_THE_DEMAND = ("name", "order", "port", "host_network", "tensor", "owner")


@dataclass(frozen=True, slots=True)
class Placement:
    """One placement. `spec` is None where it cannot be read: see `problems`."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: datetime
    # the value of the annotation that asks for a plan from scratch
    rebalance: str
    spec: PlacementSpec | None
    problems: tuple[Problem, ...]
    status: PlacementStatus
    resource_version: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Return namespace/name, by which reservations name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def rank(self) -> tuple[datetime, str, str]:
        """Return the order in which placements are planned: the older first, then by namespace and name."""
        return (self.created, self.namespace, self.name)

    @property
    def planned(self) -> bool:
        """Whether its status is ours: before the first one (the CRD's default says 0) nobody knows what it has."""
        return bool(self.status.observed_generation)

    def assignments(self) -> Iterator[tuple[str, StoredAssignment]]:
        """Yield the stored plan: service and assignment."""
        for service in self.status.services:
            for assignment in service.assignments:
                yield service.name, assignment


def read_placement(obj: Mapping[str, Any]) -> Placement:
    """Read a placement as the API server shows it. Never raises: what is wrong stands in `problems`."""
    metadata = obj["metadata"]
    spec = read(PlacementSpec, obj.get("spec"), "spec")
    return Placement(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 1),
        created=_moment(metadata.get("creationTimestamp")),
        rebalance=str((metadata.get("annotations") or {}).get(names.REBALANCE_ANNOTATION, ""))[
            : names.DNS_SUBDOMAIN_MAX
        ],
        spec=spec if isinstance(spec, PlacementSpec) else None,
        problems=() if isinstance(spec, PlacementSpec) else spec,
        status=_status(obj),
        resource_version=metadata.get("resourceVersion", ""),
    )


def _status(obj: Mapping[str, Any]) -> PlacementStatus:
    try:
        return PlacementStatus.model_validate(obj.get("status") or {})
    except ValidationError:
        return PlacementStatus()  # counts as not planned yet: what it has is known from its nodes


def _moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text)) if text else _EPOCH


def demand_hash(demand: Demand) -> str:
    """Return the SHA-256 of what the service asks for: as long as it is the same, its GPUs may stay."""
    said = {key: value for key, value in asdict(demand).items() if key not in _NOT_OF_THE_DEMAND}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
