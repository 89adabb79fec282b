"""What a controller needs of a `GpuNode`'s status, and no more: it keeps 10,000 of them."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from gpusharing.api.node import Gpu, GpuNodeStatus

_CONFIG = ("desired", "served", "error")
_RESOURCE = ("name", "devices", "healthy", "retiring", "advertised")
_RESERVATION = ("gpus", "releasing", "state")
_GPU = ("index", "healthy", "migMode", "migDevices")
_MIG_DEVICE = ("profile",)
# required by the models, and of no use here
_ANONYMOUS_GPU = {"uuid": "", "model": ""}
_ANONYMOUS_MIG_DEVICE = {"uuid": ""}
_ANONYMOUS_RESERVATION = {"resource": ""}


def read_report(gpu_node: Mapping[str, Any]) -> GpuNodeStatus | None:
    """Read a GpuNode's inventory, config and devices; None = its status cannot be read, which counts as no report.

    Ids, occupancy and history are left out: they differ from node to node and change all the time, while nothing is
    decided by them. What is left is alike on most nodes, and equal reports are one object. GPUs keep their UUIDs only
    where placements have some of them.
    """
    status = gpu_node.get("status") or {}
    needed = {
        "config": _only(_CONFIG, status.get("config") or {}),
        "resources": _each(_RESOURCE, status.get("resources") or []),
        "gpus": _each(_GPU, status.get("gpus") or [], _ANONYMOUS_GPU),
        "reservations": _each(_RESERVATION, status.get("reservations") or [], _ANONYMOUS_RESERVATION),
    }
    for gpu, whole in zip(needed["gpus"], status.get("gpus") or [], strict=False):
        if isinstance(gpu, dict) and needed["reservations"]:
            gpu["uuid"] = whole.get("uuid", "")
        if isinstance(gpu, dict) and "migDevices" in gpu:
            gpu["migDevices"] = _each(_MIG_DEVICE, gpu["migDevices"], _ANONYMOUS_MIG_DEVICE)
    return _parsed(json.dumps(needed))


def shared_gpus(report: GpuNodeStatus) -> list[Gpu]:
    """Return the GPUs that no placement has: what the served config implies, it implies of these (decision 28)."""
    reserved = {uuid for entry in report.reservations for uuid in entry.releasing}
    reserved |= {uuid for entry in report.reservations if entry.state != "Conflict" for uuid in entry.gpus}
    return [gpu for gpu in report.gpus if gpu.uuid not in reserved] if reserved else report.gpus


def _only(fields: tuple[str, ...], value: Any, extra: Mapping[str, str] | None = None) -> Any:
    """Return these fields of an object; anything else is left as it is, for the model to refuse."""
    if not isinstance(value, dict):
        return value
    return {**(extra or {}), **{field: value[field] for field in fields if field in value}}


def _each(fields: tuple[str, ...], values: Any, extra: Mapping[str, str] | None = None) -> Any:
    return [_only(fields, value, extra) for value in values] if isinstance(values, list) else values


@lru_cache(maxsize=4096)
def _parsed(text: str) -> GpuNodeStatus | None:
    try:
        return GpuNodeStatus.model_validate_json(text)
    except ValidationError:
        return None
