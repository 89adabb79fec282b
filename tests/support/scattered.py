"""Reports of nodes whose pods are scattered over their GPUs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.builders import make_report

Object = dict[str, Any]


def scattered(
    name: str, in_use: Sequence[int], *pods: str, shares: int = 4, possible: int = 2, more: int = 0
) -> Object:
    """A GpuNode; the pods are the restart set of GPU 1."""
    gpu_node = make_report(name).gpus(len(in_use)).object()
    uuids = [gpu["uuid"] for gpu in gpu_node["status"]["gpus"]]
    free = [shares - used for used in in_use]
    found: Object = {
        "freeWholeGpus": in_use.count(0),
        "possibleWholeGpus": possible,
        "resources": [{"name": "nvidia.com/gpu", "freeShares": sum(free), "largestRequest": max(free)}],
    }
    if pods:
        found["restart"] = {"gpu": uuids[1], "pods": list(pods), "more": more}
    occupancy = [{"gpu": uuid, "shares": shares, "inUse": used} for uuid, used in zip(uuids, in_use, strict=True)]
    gpu_node["status"] |= {"occupancy": occupancy, "fragmentation": found}
    return gpu_node


def save_reports(folder: Path, *gpu_nodes: Object) -> str:
    """A file as `kubectl get gpunodes -o json` saves it. Returns its path."""
    file = folder / "gpunodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": gpu_nodes}))
    return str(file)
