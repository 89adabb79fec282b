"""The hardware as values: GPUs, MIG devices, the links between GPUs; and the ids that the kubelet sees (contract 4).

Everything is keyed by NVML UUID. An id is a UUID, or `<UUID>::<replica>` where the device is shared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

SEPARATOR = "::"
# GPUs that only drive a monitor: skipped everywhere (contract 3.1)
DISPLAY_MODELS = frozenset({"DGX Display", "NVIDIA DGX Display"})


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One MIG device: a compute instance `ci` in the GPU instance `gi` of its GPU."""

    uuid: str
    # NVML's slot below the GPU; slots may have gaps
    index: int
    # NVIDIA's name: 1g.10gb, 1g.10gb+me, 1c.3g.20gb
    profile: str
    gi: int
    ci: int
    # the placement unit that it starts at; None = not known
    start: int | None = None
    memory_mib: int = 0
    compute_slices: int = 1
    gpu_slices: int = 1


@dataclass(frozen=True, slots=True)
class Gpu:
    """One board."""

    index: int
    uuid: str
    model: str
    # names /dev/nvidia<minor>
    minor: int
    # 0 = not readable
    memory_mib: int = 0
    # domain:bus:device.function as NVML writes it
    pci_bus_id: str = ""
    numa_node: int | None = None
    compute_capability: tuple[int, int] = (0, 0)
    # GPUs of one group reach each other over NVLink; for display and for the placement planner
    link_group: int | None = None
    mig_mode: bool = False
    mig_devices: tuple[MigDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """What connects two GPUs (contract 5.4)."""

    # NVML's level of the common PCIe ancestor, 0 (same board) to 50 (across sockets)
    common_ancestor: int
    # active NVLinks that lead directly to the other GPU
    nvlinks: int = 0
    # both hang on one NVSwitch
    switched: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a node has, as discovery saw it last."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str = ""
    # (uuid, uuid) with the lower index first; a pair that could not be read is left out
    links: Mapping[tuple[str, str], Link] = field(default_factory=lambda: MappingProxyType({}))

    def link(self, one: Gpu, other: Gpu) -> Link | None:
        """Return what connects the two; None = could not be read."""
        first, second = sorted((one, other), key=lambda gpu: gpu.index)
        return self.links.get((first.uuid, second.uuid))


def share_id(base: str, replica: int) -> str:
    """Return the id of a share: `GPU-…::3`."""
    return f"{base}{SEPARATOR}{replica}"


def base_of(device_id: str) -> str:
    """Return the UUID that an id stands for."""
    return device_id.partition(SEPARATOR)[0]


def replica_of(device_id: str) -> int | None:
    """Return the replica's number; None = not a share. A suffix that is no number counts as 0 (contract 4)."""
    _, separator, suffix = device_id.partition(SEPARATOR)
    if not separator:
        return None
    return int(suffix) if suffix.isascii() and suffix.isdigit() else 0
