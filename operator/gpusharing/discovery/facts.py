"""What the NVML worker tells, as values: names of MIG profiles, links between GPUs, what was known of a lost GPU."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gpusharing.core.devices import Gpu, Inventory, Link, MigDevice
from gpusharing.core.mig import profile_name
from gpusharing.core.topology import with_link_groups

_MIB = 1024 * 1024
# NVIDIA A100-SXM4-40GB MIG 1g.5gb+me
_MIG_NAME = re.compile(r".* MIG (?P<profile>(?P<plain>[0-9cg.]+gb)(?P<suffix>[+-][a-z.]+)?)")
# ends of NVLinks of which the driver does not know where they are
_NOWHERE = frozenset({"", "00000000:00:00.0"})


def read_inventory(facts: Mapping[str, Any], last: Inventory, on_problem: Callable[[str], None]) -> Inventory:
    """Return the inventory. A GPU that cannot be read is as it was last seen; one never seen is left out, and told."""
    gpus = {entry["uuid"]: _gpu(entry, on_problem) for entry in facts["gpus"] if "error" not in entry}
    before = {gpu.index: gpu for gpu in last.gpus}
    for entry in facts["gpus"]:
        if "error" in entry:
            known = before.get(entry["index"])
            if known is None:
                on_problem(f"GPU {entry['index']} cannot be read and is left out: {entry['error']}")
            else:
                gpus.setdefault(known.uuid, known)
    links = {pair: link for pair, link in last.links.items() if set(pair) <= gpus.keys()}
    links |= dict(_links(facts, gpus))
    ordered = sorted(gpus.values(), key=lambda gpu: gpu.index)
    return Inventory(with_link_groups(ordered, links), facts["driver"], MappingProxyType(links))


def _gpu(entry: Mapping[str, Any], on_problem: Callable[[str], None]) -> Gpu:
    memory_mib = entry["memory"] // _MIB
    return Gpu(
        index=entry["index"],
        uuid=entry["uuid"],
        model=entry["model"],
        minor=entry["minor"],
        memory_mib=memory_mib,
        pci_bus_id=entry["pci"],
        numa_node=entry["numa"],
        compute_capability=(entry["capability"][0], entry["capability"][1]),
        mig_mode=entry["mig"],
        mig_devices=tuple(_mig_device(device, memory_mib, on_problem) for device in entry["devices"]),
    )


def _mig_device(entry: Mapping[str, Any], board_mib: int, on_problem: Callable[[str], None]) -> MigDevice:
    return MigDevice(
        uuid=entry["uuid"],
        index=entry["index"],
        profile=_profile(entry, board_mib, on_problem),
        gi=entry["gi"],
        ci=entry["ci"],
        start=entry["start"],
        memory_mib=entry["memory"],
        compute_slices=entry["computeSlices"],
        gpu_slices=entry["slices"],
    )


def _profile(entry: Mapping[str, Any], board_mib: int, on_problem: Callable[[str], None]) -> str:
    """Return the profile as NVIDIA's plugin works it out (contract 3.3); the driver's name has the engines."""
    named = _MIG_NAME.fullmatch(entry["name"])
    if not board_mib:
        return named["profile"] if named else ""
    plain = profile_name(entry["slices"], entry["computeSlices"], entry["memory"], board_mib)
    if named and named["plain"] != plain:
        on_problem(f"{entry['uuid']} is served as {plain}, but the driver calls it {named['profile']}")
    return plain + ((named["suffix"] or "") if named else "")


def _links(facts: Mapping[str, Any], gpus: Mapping[str, Gpu]) -> Iterator[tuple[tuple[str, str], Link]]:
    """Yield the links of the pairs that could be read (decision 54: where the two directions differ, the lower)."""
    addresses = {gpu.pci_bus_id for gpu in gpus.values()} | _NOWHERE
    for one, other, level in facts["ancestors"]:
        there, back = facts["ends"].get(one), facts["ends"].get(other)
        if there is None or back is None or one not in gpus or other not in gpus:
            continue
        count = min(there.get(gpus[other].pci_bus_id, 0), back.get(gpus[one].pci_bus_id, 0))
        # older drivers do not say that an end is a switch: two GPUs then have an end in common that is no GPU
        switched = bool((there.keys() & back.keys()) - addresses)
        yield (one, other), Link(level, count, switched)
