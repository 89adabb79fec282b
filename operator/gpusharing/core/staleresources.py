"""Which resource names can be taken from a Node, because nothing serves them any more (F51).

A kubelet never deletes the name of a resource that a device plugin once had: it stays in the Node's capacity and
allocatable, with 0 devices (kubelet contract, section 6). The name alone does not tell whose it was, ours or that of
another plugin for GPUs. Taking it away is safe all the same: the kubelet of a plugin that lives writes it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpusharing.api import names
from gpusharing.api.node import GpuNodeStatus
from gpusharing.core.reservations import is_place

NONE = "0"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a Node found: resource that nothing seems to serve → why it stays; empty = it can go."""

    uid: str
    stays: Mapping[str, str]

    @property
    def removable(self) -> tuple[str, ...]:
        """Return what can go."""
        return tuple(resource for resource, why in self.stays.items() if not why)


def of_a_gpu_plugin(resource: str) -> bool:
    """Whether only a plugin for GPUs can have made the resource; names of placements only ours makes."""
    unshared = resource.removesuffix(names.SHARED_SUFFIX)
    return unshared == names.GPU_RESOURCE or unshared.startswith((names.MIG_RESOURCE_PREFIX, names.PLACE_DOMAIN))


def names_without_devices(capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> frozenset[str]:
    """Return the names of placements that a Node shows with 0 devices, and 0 of them for pods."""
    return frozenset(name for name in filter(is_place, capacity) if capacity[name] == allocatable.get(name) == NONE)


def look(uid: str, report: GpuNodeStatus, capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> Look:
    """Look at the resources that a Node shows, and at what its plugin reports.

    Judged are names that the report calls stale, and those of which it says that they are served while the Node has
    none: then that plugin has left. What is served, or gone already, is not in the answer.
    """
    listed = {row.name: row.devices for row in report.resources}
    stays: dict[str, str] = {}
    for name in sorted(filter(of_a_gpu_plugin, {*report.stale_resources, *listed})):
        shown = (capacity.get(name), allocatable.get(name))
        if shown == (NONE, NONE):
            stays[name] = "the plugin still lists it, without devices" if listed.get(name) == 0 else ""
        elif name not in listed and shown != (None, None):
            stays[name] = f"the Node has {shown[0] or NONE} of it, {shown[1] or NONE} of them for pods"
    return Look(uid, stays)


def after_two_looks(before: Look, now: Look | None) -> Mapping[str, str]:
    """Return what could go at the first look → why it stays after the second; empty = it goes."""
    if now is None or now.uid != before.uid:
        return dict.fromkeys(before.removable, "the Node is another one by now, or none")
    return {name: now.stays.get(name, "it is served again, or gone") for name in before.removable}
