"""One file = one output of a plan: a function `render` from a `Job` to files. What they share is here.

Renderers read slots; they decide nothing (guide, section 10). Same job, same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpusharing.api.placement import PlacementSpec, Service
from gpusharing.core.placement.plan import Assignment, Plan, Slot

Visible = Literal["index", "uuid", "args"]
Workload = Literal["deployment", "statefulset", "pod"]

COUNT, SLOT, RANK = "GPU_PLACEMENT_COUNT", "GPU_PLACEMENT_SLOT", "GPU_PLACEMENT_RANK"
INSTANCES, FIRST_INSTANCE = "GPU_PLACEMENT_INSTANCES", "GPU_PLACEMENT_FIRST_INSTANCE"
ARGS, DEVICE_IDS = "GPU_PLACEMENT_ARGS", "--device-ids"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# indexes are in PCI order; without it CUDA's are "fastest first"
DEVICE_ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


@dataclass(frozen=True, slots=True)
class Job:
    """A plan, whose it is, and how it is wanted."""

    name: str
    namespace: str
    spec: PlacementSpec
    plan: Plan
    # how GPUs are named: by index, by UUID, or as arguments of the program
    visible: Visible = "index"
    # whether lists written by hand, too, are positions of the list that Slurm gives
    map_pins: bool = False
    # the container that gets the GPUs; empty = it has the service's name
    container: str = ""
    workload: Workload = "deployment"

    @property
    def marker(self) -> str:
        """Return the first line of every file: only files that begin with it are ever overwritten or removed."""
        return f"# Written by kubectl gpusharing place for {self.namespace}/{self.name}\n"

    @property
    def deployed(self) -> Iterator[Service]:
        """Yield the services that run, in declaration order."""
        return (service for service in self.spec.services if service.deploy)

    def places(self, service: str) -> list[tuple[Slot, Assignment]]:
        """Return where the service has GPUs, in slot order."""
        found = ((slot, slot.of(service)) for slot in self.plan.slots)
        return [(slot, assignment) for slot, assignment in found if assignment is not None]

    def count(self, assignment: Assignment) -> int:
        """Return how many GPUs the service has there; of a list known only at run time what the plan counts with."""
        if assignment.from_env:
            return next(each.gpus_needed for each in self.plan.services if each.name == assignment.service)
        return len(assignment.indexes)


@dataclass(frozen=True, slots=True)
class File:
    """A file to be written, by its path below `--out`."""

    path: str
    text: str


def facts(job: Job, slot: Slot, assignment: Assignment) -> Iterator[tuple[str, str]]:
    """Yield what a service may want to know of its place, as environment variables."""
    yield COUNT, str(job.count(assignment))
    yield SLOT, slot.name
    for name, value in (
        (RANK, assignment.rank),
        (INSTANCES, assignment.instances),
        (FIRST_INSTANCE, assignment.first_instance),
    ):
        if value is not None:
            yield name, str(value)


def listed(numbers: tuple[int, ...] | tuple[str, ...]) -> str:
    """Return `1,2`."""
    return ",".join(map(str, numbers))
