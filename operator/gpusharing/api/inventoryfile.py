"""A simulated inventory (decision 41): the GPUs of a node as a YAML file, and faults that may be switched on in it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gpusharing.api.meta import Model

GPU_UUID = r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
MIG_UUID = r"^MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
# Words of `nvidia-smi topo -m`, and NVML's level of the common ancestor (contract 5.4).
PCI_LEVELS = {"X": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}

PciWord = Literal["X", "PIX", "PXB", "PHB", "NODE", "SYS"]
# a GPU by index or UUID
GpuName = int | str


def _capability(value: object) -> object:
    return str(value) if isinstance(value, float) else value  # YAML reads 8.0 as a number


class MigEntry(Model):
    """One MIG device."""

    profile: str
    # the placement unit that it starts at
    start: Annotated[int, Field(ge=0)]
    uuid: Annotated[str, Field(pattern=MIG_UUID)] | None = None


class GpuEntry(Model):
    """One GPU."""

    index: Annotated[int, Field(ge=0, le=255)]
    model: Annotated[str, Field(min_length=1, max_length=95)]
    memory_mib: Annotated[int, Field(alias="memoryMiB", ge=0)] = 0
    # -1 = not reported
    numa_node: Annotated[int, Field(ge=-1)] | None = None
    pci_bus_id: Annotated[str, Field(pattern=r"^([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])?$")] = ""
    # absent = worked out from the links
    link_group: Annotated[int, Field(ge=0, le=255)] | None = None
    uuid: Annotated[str, Field(pattern=GPU_UUID)] | None = None
    # names /dev/nvidia<minor>; absent = the index
    minor: Annotated[int, Field(ge=0)] | None = None
    # absent = that of the model
    compute_capability: Annotated[str | None, BeforeValidator(_capability), Field(pattern=r"^\d+\.\d+$")] = None
    # absent = whether there are MIG devices
    mig_mode: bool | None = None
    mig_devices: list[MigEntry] = Field(default=[])


class FaultEntry(Model):
    """One fault: an XID, a lost GPU, a sick share, or NVML as a whole."""

    gpu: GpuName | None = None
    xid: Annotated[int, Field(ge=1)] | None = None
    gi: Annotated[int, Field(ge=0)] | None = None
    ci: Annotated[int, Field(ge=0)] | None = None
    lost: Literal[True] | None = None
    id: str | None = None
    sick: Literal[True] | None = None
    # absent | hang | an error of NVML without its prefix: GPU_IS_LOST, UNKNOWN
    nvml: Annotated[str, Field(pattern=r"^(absent|hang|(NVML_ERROR_)?[A-Z][A-Z_]*)$")] | None = None
    # the NVML function that fails; absent = the first that is called
    call: Annotated[str, Field(pattern=r"^nvml[A-Za-z0-9_]+$")] | None = None
    # calls that succeed before
    after: Annotated[int, Field(ge=0)] = 0


class InventoryFile(Model):
    """The whole file."""

    name: str = ""
    about: str = ""
    source: Any = None
    unverified: list[str] = Field(default=[])
    mig_capable: bool | None = None
    driver_version: str = "580.95.05"
    # what NVLinks lead to: the other GPU, or a switch
    nvlink_via: Literal["direct", "switch", "none"] = "none"
    gpus: Annotated[list[GpuEntry], Field(max_length=256)]
    # NVLinks per pair, and how pairs hang together over PCIe; absent = not known
    links: list[list[Annotated[int, Field(ge=0)]]] = Field(default=[])
    pci: list[list[PciWord]] = Field(default=[])
    faults: list[FaultEntry] = Field(default=[])
