"""GpuNodes, with their Nodes if they are there, → the inventory that a placement is planned on (guide, section 5.5)."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpusharing.api import names
from gpusharing.api.node import READY_CONDITION, GpuNodeStatus
from gpusharing.api.placement import Inventory, InventoryNode
from gpusharing.core.placement.problems import Problem
from gpusharing.core.placement.schema import read as read_model

Object = Mapping[str, Any]


def read(objects: Iterable[Object], placement: str) -> tuple[Inventory, tuple[Problem, ...]]:
    """Return the inventory of the objects of a saved `kubectl get`, and what cannot be read of them.

    A node without a GpuNode has no GPUs that we know of. `placement`, as namespace/name, is the one to be planned:
    what is reserved for it is free for it.
    """
    objects = list(objects)
    nodes = {_name(each): each for each in objects if each.get("kind") == "Node"}
    found: list[InventoryNode] = []
    problems: list[Problem] = []
    for each in objects:
        if each.get("kind") == names.NODE_KIND:
            node = _read_node(each, nodes.get(_name(each)), placement)
            if isinstance(node, InventoryNode):
                found.append(node)
            else:
                problems += node
    return Inventory(nodes=found), tuple(problems)


def _read_node(report: Object, node: Object | None, placement: str) -> InventoryNode | tuple[Problem, ...]:
    name = _name(report)
    status = read_model(GpuNodeStatus, report.get("status") or {}, f"{name}.status")
    if not isinstance(status, GpuNodeStatus):
        return status
    labels = _part(_part(node or {}, "metadata"), "labels")
    reports_ready = any(each.type == READY_CONDITION and each.status == "True" for each in status.conditions)
    inventory = {
        "name": name,
        "labels": {key: value for key, value in labels.items() if isinstance(value, str)},
        "ready": reports_ready and (node is None or _node_ready(node)),
        "schedulable": _part(node or {}, "spec").get("unschedulable") is not True,
        "gpus": _gpus(status, _reservations(report, placement)),
    }
    return read_model(InventoryNode, inventory, name)


def _gpus(status: GpuNodeStatus, reserved: Mapping[str, str]) -> list[Object]:
    occupancy = {each.gpu: each for each in status.occupancy}
    return [
        {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "healthy": gpu.healthy,
            "migMode": gpu.mig_mode,
            "linkGroup": gpu.link_group,
            "shares": occupancy[gpu.uuid].shares if gpu.uuid in occupancy else 1,
            "inUse": occupancy[gpu.uuid].in_use if gpu.uuid in occupancy else 0,
            "reservedBy": reserved.get(gpu.uuid),
        }
        for gpu in status.gpus
    ]


def _node_ready(node: Object) -> bool:
    conditions = _entries(_part(node, "status"), "conditions")
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _reservations(gpu_node: Object, placement: str) -> dict[str, str]:
    """Return what is reserved for other placements: GPU → placement."""
    return {
        str(gpu): str(entry.get("placement"))
        for entry in _entries(_part(gpu_node, "spec"), "reservations")
        if entry.get("placement") != placement
        for gpu in _list(entry, "gpus")
    }


def _name(each: Object) -> str:
    return str(_part(each, "metadata").get("name", ""))


def _part(each: Object, key: str) -> Object:
    """Return the mapping at the key; an empty one where there is none, since people edit files."""
    part = each.get(key)
    return part if isinstance(part, Mapping) else {}


def _entries(each: Object, key: str) -> list[Object]:
    return [entry for entry in _list(each, key) if isinstance(entry, Mapping)]


def _list(each: Object, key: str) -> list[Any]:
    entries = each.get(key)
    return entries if isinstance(entries, list) else []
