"""`sharing` of a plugin config: what NVIDIA's plugin dies on, drops or changes in silence (contract 1.3, 1.7, 11)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from gpusharing.api import names
from gpusharing.api.problems import Problem, quoted
from gpusharing.api.sharing import MAX_MPS_REPLICAS, MAX_REPLICAS, MIN_REPLICAS, RESOURCE_NAME_PATTERN
from gpusharing.core.checks.pluginconfig.keys import written
from gpusharing.core.checks.pluginconfig.resourcenames import check_name, full_name
from gpusharing.core.checks.pluginconfig.values import boolean, is_whole, kind_of

MAX_MPS_REPLICAS_OF_OLD_GPUS = 16
MAX_INT = 2**63 - 1
_SKIPPED = "no such resource: skipped without a message, so it is not shared"
_ENTRY = "each entry needs a name and replicas, such as {name: nvidia.com/gpu, replicas: 4}"


def wrong_sharing(sharing: Any, path: str, mig_strategy: str) -> Iterator[Problem]:
    """Yield everything that is wrong below `sharing`. `mig_strategy` is the one that will be in force."""
    if sharing is None:
        return
    if not isinstance(sharing, Mapping):
        yield Problem(path, f"{kind_of(sharing)} where a mapping is expected", "known here: timeSlicing, mps")
        return
    slicing, mps = written(sharing, "timeSlicing"), written(sharing, "mps")
    if slicing in sharing and sharing.get(mps) is not None:
        yield Problem(path, "both timeSlicing and mps: mps wins without a word", "leave one of them out")
    if slicing in sharing:
        yield from _strategy(sharing[slicing], f"{path}.{slicing}", mig_strategy, mps=False)
    if sharing.get(mps) is not None:
        yield from _strategy(sharing[mps], f"{path}.{mps}", mig_strategy, mps=True)


def _strategy(data: Any, path: str, mig_strategy: str, *, mps: bool) -> Iterator[Problem]:
    if data is not None and not isinstance(data, Mapping):
        yield Problem(path, f"{kind_of(data)} where a mapping is expected", "it needs a list of resources")
        return
    fields: Mapping[str, Any] = data or {}
    for key in ("renameByDefault", "failRequestsGreaterThanOne"):
        yield from boolean(f"{path}.{key}", fields.get(key))
    if mps:
        yield from _requests(f"{path}.failRequestsGreaterThanOne", fields.get("failRequestsGreaterThanOne"))
    resources = fields.get("resources")
    if not resources or not isinstance(resources, list):
        yield from _no_resources(f"{path}.resources", resources)
        return
    renamed = fields.get("renameByDefault") is True
    seen: set[str] = set()
    for index, entry in enumerate(resources):
        here = f"{path}.resources[{index}]"
        if not isinstance(entry, Mapping):
            yield Problem(here, f"{kind_of(entry)} where a mapping is expected, the plugin exits", _ENTRY)
            continue
        yield from _entry(entry, here, mig_strategy, mps=mps, renamed=renamed)
        name = full_name(str(entry.get("name")))
        if name in seen:
            message = f"{quoted(name)} again: the ids of both collide, the larger number of replicas wins"
            yield Problem(here, message, "list each resource once", "warning")
        seen.add(name)


def _requests(path: str, fails: Any) -> Iterator[Problem]:
    if fails is None:
        message = "not set: with MPS that becomes true, and a pod that asks for two shares is refused"
        yield Problem(path, message, severity="hint")
    elif fails is False:
        message = "honoured, but asking for several shares does not raise a client's limits"
        yield Problem(path, message, severity="hint")


def _no_resources(path: str, value: Any) -> Iterator[Problem]:
    hint = f"{_ENTRY}; to share nothing leave the whole block out"
    if value is None or value == []:
        yield Problem(path, "missing, the plugin exits" if value is None else "empty, the plugin exits", hint)
    else:
        yield Problem(path, f"{kind_of(value)} where a list is expected, the plugin exits", hint)


def _entry(entry: Mapping[str, Any], path: str, mig_strategy: str, *, mps: bool, renamed: bool) -> Iterator[Problem]:
    if "name" not in entry:
        yield Problem(f"{path}.name", "missing, the plugin exits", "write name: nvidia.com/gpu")
    else:
        yield from _name(entry["name"], f"{path}.name", mig_strategy, mps=mps)
    if "replicas" not in entry:
        yield Problem(f"{path}.replicas", "missing, the plugin exits", "write how many shares each GPU is split into")
    else:
        yield from _replicas(entry["replicas"], f"{path}.replicas", mps=mps)
    if "devices" in entry:
        yield from _devices(entry["devices"], f"{path}.devices")
    if "rename" in entry:
        yield from _rename(entry, f"{path}.rename", renamed=renamed)


def _name(value: Any, path: str, mig_strategy: str, *, mps: bool) -> Iterator[Problem]:
    problems = list(check_name(path, value))
    yield from problems
    if any(problem.severity == "error" for problem in problems):
        return
    name = full_name(value)
    if name.startswith(names.MIG_RESOURCE_PREFIX) and mps:
        yield Problem(path, "MPS serves whole GPUs only, the plugin exits", "share MIG devices by timeSlicing")
    elif not re.fullmatch(RESOURCE_NAME_PATTERN, name):
        hint = "the resources are nvidia.com/gpu and, with migStrategy: mixed, nvidia.com/mig-<profile>"
        yield Problem(path, _SKIPPED, hint, "warning")
    elif name.startswith(names.MIG_RESOURCE_PREFIX) and mig_strategy != "mixed":
        message = f"nvidia.com/mig-* does not exist with migStrategy: {mig_strategy}: skipped, so it is not shared"
        yield Problem(path, message, "set flags.migStrategy: mixed, or MIG_STRATEGY in the environment", "warning")


def _replicas(value: Any, path: str, *, mps: bool) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield Problem(path, f"{quoted(value)} is {kind_of(value)}, must be an integer", "write it without quotes")
    elif not is_whole(value) or abs(value) > MAX_INT:
        yield Problem(path, f"{quoted(value)} is not an integer, the plugin exits")
    elif value < MIN_REPLICAS:
        yield Problem(path, f"{quoted(value)}, must be at least 2, the plugin exits", "to not share it leave it out")
    elif mps and value > MAX_MPS_REPLICAS:
        yield Problem(path, f"{quoted(value)}: MPS allows at most 48 per GPU, its daemon exits", _OLD_GPUS)
    elif mps and value > MAX_MPS_REPLICAS_OF_OLD_GPUS:
        yield Problem(path, f"{quoted(value)}: more than 16 only on newer GPUs", _OLD_GPUS, "hint")
    elif value > MAX_REPLICAS:
        message = f"{quoted(value)} is accepted: time-slicing has no upper limit, and every share is a device to list"
        yield Problem(path, message, severity="hint")
    elif isinstance(value, float):
        yield Problem(path, f"{quoted(value)} is read as {int(value)}", f"write {int(value)}", "hint")


_OLD_GPUS = "on GPUs of compute capability below 7.5, such as V100, MPS allows 16"


def _rename(entry: Mapping[str, Any], path: str, *, renamed: bool) -> Iterator[Problem]:
    problems = [problem for problem in check_name(path, entry["rename"]) if problem.severity == "error"]
    yield from problems
    default = f"{full_name(str(entry.get('name')))}{names.SHARED_SUFFIX}"
    if not problems and not (renamed and full_name(entry["rename"]) == default):
        hint = "renameByDefault: true renames all, to <name>.shared; no other names are possible"
        yield Problem(path, "read, then ignored", hint, "warning")


def _devices(value: Any, path: str) -> Iterator[Problem]:
    hint = "only all, a count, or a list of indices and UUIDs is accepted, and then reset to all: leave it out"
    if value == "all":
        return
    if isinstance(value, list):
        wrong = [item for item in value if not _is_device(item)]
        if not wrong:
            yield Problem(path, "read, then reset to all: every GPU is shared", "leave it out", "warning")
        for item in wrong[:1]:
            yield Problem(path, f"{quoted(item)} is not a GPU index or UUID, the plugin exits", hint)
    elif is_whole(value) and value > 0:
        yield Problem(path, "read, then reset to all: every GPU is shared", "leave it out", "warning")
    else:
        shown = quoted(value) if isinstance(value, str | int | float) else kind_of(value)
        yield Problem(path, f"{shown} is not accepted, the plugin exits", hint)


def _is_device(item: Any) -> bool:
    """Whether the item is a GPU index, a MIG index, or the UUID of either in NVIDIA's forms."""
    if item is None:
        return True  # read as index 0
    if isinstance(item, int | float):
        return is_whole(item) and 0 <= item < 2**64
    if not isinstance(item, str):
        return False
    if re.fullmatch(r"[0-9]+(:[0-9]+)?", item):
        return True
    gpu = item.removeprefix("MIG-").split("/")
    if item.startswith("MIG-") and len(gpu) == 3:
        return (
            gpu[0].startswith("GPU-") and _is_uuid(gpu[0][4:]) and all(re.fullmatch("[0-9]+", part) for part in gpu[1:])
        )
    return item[:4] in {"GPU-", "MIG-"} and _is_uuid(item[4:])


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
