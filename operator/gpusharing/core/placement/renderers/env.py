"""`-o env`: one file of variables per slot and service, as `docker run --env-file` takes it (guide, section 10.1)."""

from collections.abc import Iterator

from gpusharing.core.placement.plan import Assignment, Slot
from gpusharing.core.placement.renderers import (
    ARGS,
    DEVICE_IDS,
    DEVICE_ORDER,
    VISIBLE_DEVICES,
    File,
    Job,
    facts,
    listed,
)


def render(job: Job) -> Iterator[File]:
    """Yield a file for each service that has GPUs on a slot; only where it is exported are they named in it."""
    for slot in job.plan.slots:
        for assignment in slot.assigned:
            devices = _devices(job, assignment) if assignment.service in slot.exported else ""
            lines = "".join(f"{name}={value}\n" for name, value in facts(job, slot, assignment))
            yield File(f"{_folder(slot)}/{assignment.service}.env", job.marker + devices + lines)


def _folder(slot: Slot) -> str:
    return slot.name.replace("/", "-")


def _devices(job: Job, assignment: Assignment) -> str:
    if assignment.from_env:
        return f"# {VISIBLE_DEVICES} is what {assignment.from_env} holds at run time\n"
    order, value = DEVICE_ORDER
    match job.visible:
        case "uuid":
            return f"{VISIBLE_DEVICES}={listed(assignment.uuids)}\n"
        case "args":
            return f"{ARGS}={DEVICE_IDS} {listed(assignment.indexes)}\n{order}={value}\n"
        case _:
            return f"{VISIBLE_DEVICES}={listed(assignment.indexes)}\n{order}={value}\n"
