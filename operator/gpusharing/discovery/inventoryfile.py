"""Reads simulated inventories: text → GPUs and faults, or one error that says everything that is wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from uuid import NAMESPACE_DNS, uuid5

from gpusharing.api import names
from gpusharing.api.inventoryfile import PCI_LEVELS, FaultEntry, GpuEntry, InventoryFile
from gpusharing.api.located import Document
from gpusharing.api.problems import Problem, parse
from gpusharing.api.yamltext import read
from gpusharing.core.devices import Gpu, Inventory, Link, MigDevice, base_of
from gpusharing.core.errors import InvalidInput
from gpusharing.core.geometry import Placed, instance_profile, misplaced
from gpusharing.core.mig import board_of
from gpusharing.core.topology import with_link_groups

_SHOWN = 5  # problems in one error
_NAMESPACE = uuid5(NAMESPACE_DNS, f"inventory.{names.GROUP}")
# of the models in our samples, by a word in their names; the first that fits
_CAPABILITIES = {
    "GB200": (10, 0),
    "B200": (10, 0),
    "RTX PRO 6000": (12, 0),
    **dict.fromkeys(("H100", "H200", "H800", "H20"), (9, 0)),
    **dict.fromkeys(("L40", "L4", "RTX 4090"), (8, 9)),
    **dict.fromkeys(("A100", "A800", "A30"), (8, 0)),
    **dict.fromkeys(("A40", "A6000", "A10"), (8, 6)),
    "T4": (7, 5),
    "V100": (7, 0),
}


@dataclass(frozen=True, slots=True)
class LoadedInventory:
    """A file's GPUs, and its faults with every GPU by its UUID."""

    inventory: Inventory
    faults: tuple[FaultEntry, ...] = ()


def load_inventory(text: str, *, node: str, name: str) -> LoadedInventory:
    """Read a file. `name` is used where it says none itself. Raises InvalidInput with all that is wrong."""
    document, problems = _document(text)
    loaded, found = inventory_of(document.data, node=node, name=name)
    problems += found
    if problems or loaded is None:
        lines = [f"line {document.line_of(problem.path)}: {problem}" for problem in problems[:_SHOWN]]
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise InvalidInput("; ".join(lines) + more)
    return loaded


def inventory_of(data: object, *, node: str, name: str) -> tuple[LoadedInventory | None, list[Problem]]:
    """Return what the content of a file says, or everything that is wrong with it."""
    file, problems = parse(InventoryFile, data)
    if file is not None:
        problems += _contradictions(file)
    if problems or file is None:
        return None, problems
    return _loaded(file, f"{node}/{file.name or name}"), []


def _document(text: str) -> tuple[Document, list[Problem]]:
    documents = read(text) or [Document(None, 1)]
    problems = [found.problem for found in documents[0].findings if found.problem.severity != "hint"]
    if len(documents) > 1:
        problems.append(Problem("", "more than one document", "an inventory is one YAML document"))
    return documents[0], problems


def _loaded(file: InventoryFile, seed: str) -> LoadedInventory:
    gpus = tuple(_gpu(entry, seed) for entry in sorted(file.gpus, key=lambda entry: entry.index))
    links = MappingProxyType(dict(_links(file, gpus)))
    grouped = zip(gpus, with_link_groups(gpus, links), strict=True)
    gpus = tuple(found if said.link_group is None else said for said, found in grouped)
    inventory = Inventory(gpus, file.driver_version, links)
    by_index: dict[int | str | None, str] = {gpu.index: gpu.uuid for gpu in gpus}
    faults = (fault.model_copy(update={"gpu": by_index.get(fault.gpu, fault.gpu)}) for fault in file.faults)
    return LoadedInventory(inventory, tuple(faults))


def _gpu(entry: GpuEntry, seed: str) -> Gpu:
    return Gpu(
        index=entry.index,
        uuid=entry.uuid or f"GPU-{uuid5(_NAMESPACE, f'{seed}/{entry.index}')}",
        model=entry.model,
        minor=entry.index if entry.minor is None else entry.minor,
        memory_mib=entry.memory_mib,
        pci_bus_id=entry.pci_bus_id.upper(),
        numa_node=None if entry.numa_node in {None, -1} else entry.numa_node,
        compute_capability=_capability(entry),
        link_group=entry.link_group,
        mig_mode=bool(entry.mig_devices) if entry.mig_mode is None else entry.mig_mode,
        mig_devices=tuple(_mig_devices(entry, f"{seed}/{entry.index}")),
    )


def _capability(entry: GpuEntry) -> tuple[int, int]:
    if entry.compute_capability is not None:
        major, _, minor = entry.compute_capability.partition(".")
        return int(major), int(minor)
    return next((known for word, known in _CAPABILITIES.items() if word in entry.model), (0, 0))


def _mig_devices(entry: GpuEntry, seed: str) -> Iterator[MigDevice]:
    """Yield the devices; GPU instances count from 1 in the order of the file, compute instances from 0 in each."""
    board = board_of(entry.model)
    instances: dict[tuple[str, int], list[int]] = {}
    for index, device in enumerate(entry.mig_devices):
        placed = Placed(device.profile, device.start)
        profile = board.profile(instance_profile(device.profile)) if board else None
        if board is None or profile is None:
            continue  # cannot be: the file was checked
        siblings = instances.setdefault(placed.instance, [len(instances) + 1])
        ci = len(siblings) - 1
        siblings.append(ci)
        yield MigDevice(
            uuid=device.uuid or f"MIG-{uuid5(_NAMESPACE, f'{seed}/{device.profile}/{device.start}/{ci}')}",
            index=index,
            profile=device.profile,
            gi=siblings[0],
            ci=ci,
            start=device.start,
            memory_mib=board.memory_mib(profile, entry.memory_mib),
            compute_slices=placed.compute_slices(profile),
            gpu_slices=profile.slices,
        )


def _links(file: InventoryFile, gpus: Sequence[Gpu]) -> Iterator[tuple[tuple[str, str], Link]]:
    """Yield what connects each pair; NVLinks to a switch lead to no GPU, so they only say that both hang on it."""
    if not file.pci:
        return
    for one in gpus:
        for other in gpus[one.index + 1 :]:
            count = file.links[one.index][other.index] if file.links else 0
            level = PCI_LEVELS[file.pci[one.index][other.index]]
            switched = file.nvlink_via == "switch"
            yield (one.uuid, other.uuid), Link(level, 0 if switched else count, switched and count > 0)


def _contradictions(file: InventoryFile) -> Iterator[Problem]:
    """Yield what the fields say against one another."""
    indices = sorted(entry.index for entry in file.gpus)
    if indices != list(range(len(indices))):
        yield Problem("gpus", f"indices {indices}", "NVML counts GPUs from 0 without gaps")
        return
    yield from _repeated(file)
    for name, matrix in (("links", file.links), ("pci", file.pci)):
        yield from _matrix(name, matrix, len(indices))
    if file.links and not file.pci:
        yield Problem("pci", "missing", "links need the PCIe words too")
    for place, entry in enumerate(file.gpus):
        yield from _geometry(entry, f"gpus[{place}]")
    for place, fault in enumerate(file.faults):
        yield from _fault(fault, f"faults[{place}]", file)


def _repeated(file: InventoryFile) -> Iterator[Problem]:
    seen: set[object] = set()
    for place, entry in enumerate(file.gpus):
        minor = entry.index if entry.minor is None else entry.minor
        for field, value in (("uuid", entry.uuid), ("minor", minor), ("pciBusId", entry.pci_bus_id or None)):
            if value is not None and (field, value) in seen:
                yield Problem(f"gpus[{place}].{field}", f"{value} stands twice", "each GPU has its own")
            seen.add((field, value))
        for index, device in enumerate(entry.mig_devices):
            if device.uuid is not None and device.uuid in seen:
                yield Problem(f"gpus[{place}].migDevices[{index}].uuid", f"{device.uuid} stands twice")
            seen.add(device.uuid)


def _matrix(name: str, matrix: Sequence[Sequence[int | str]], size: int) -> Iterator[Problem]:
    if not matrix:
        return
    if [len(row) for row in matrix] != [size] * size:
        yield Problem(name, f"not {size} rows of {size}", "one row and one column for each GPU")
        return
    for i in range(size):
        if matrix[i][i] not in {0, "X"}:
            yield Problem(f"{name}[{i}]", f"{matrix[i][i]} between a GPU and itself", "0 in links, X in pci")
        for j in range(i):
            if matrix[i][j] != matrix[j][i]:
                yield Problem(f"{name}[{i}]", f"{matrix[i][j]} to {j}, but {matrix[j][i]} back", "both ways are alike")


def _geometry(entry: GpuEntry, at: str) -> Iterator[Problem]:
    if not entry.mig_devices:
        return
    if entry.mig_mode is False:
        yield Problem(f"{at}.migMode", "false, but there are migDevices", "leave migMode out, or the devices")
    board = board_of(entry.model)
    if board is None:
        message = f"the MIG profiles of {entry.model} are not known"
        yield Problem(f"{at}.migDevices", message, "MIG can be simulated for the models of NVIDIA's MIG guide")
        return
    devices = [Placed(device.profile, device.start) for device in entry.mig_devices]
    for place, message, hint in misplaced(board, devices):
        yield Problem(f"{at}.migDevices[{place}]", message, hint)


def _fault(fault: FaultEntry, at: str, file: InventoryFile) -> Iterator[Problem]:
    said = set(fault.model_fields_set)
    kinds = [known for known in _FAULTS if known[0] in said]
    if len(kinds) != 1:
        hint = "one of {gpu, xid, gi, ci}, {gpu, lost: true}, {id, sick: true}, {nvml, call, after}"
        yield Problem(at, "not a fault that can be simulated", hint)
        return
    _, needed, allowed = kinds[0]
    for missing in sorted(needed - said):
        yield Problem(at, f"{missing} is missing")
    for extra in sorted(said - needed - allowed):
        yield Problem(f"{at}.{extra}", f"has no meaning beside {kinds[0][0]}")
    known = {entry.index for entry in file.gpus} | {entry.uuid for entry in file.gpus}
    if fault.gpu is not None and fault.gpu not in known and not str(fault.gpu).startswith("GPU-"):
        yield Problem(f"{at}.gpu", f"there is no GPU {fault.gpu}", "a GPU's index or UUID")
    if fault.id is not None and not base_of(fault.id).startswith(("GPU-", "MIG-")):
        yield Problem(f"{at}.id", f"{fault.id} is not a device id", "GPU-<uuid>::<share> or a UUID")


# what tells a kind of fault, what it needs, and what it may say
_FAULTS = (
    ("xid", {"gpu", "xid"}, {"gi", "ci"}),
    ("lost", {"gpu", "lost"}, set[str]()),
    ("sick", {"id", "sick"}, set[str]()),
    ("nvml", {"nvml"}, {"call", "after"}),
)
