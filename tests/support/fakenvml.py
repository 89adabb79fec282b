"""A driver for tests: the fake `libnvidia-ml.so.1` below a driver root, and a sysfs that goes with it.

What it says is rendered from a simulated inventory (decision 43): the same YAML, by way of `load_inventory`.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.cluster.binaries import cache_folder

from gpusharing.api.inventoryfile import FaultEntry
from gpusharing.core.devices import Gpu, Inventory, MigDevice
from gpusharing.discovery.inventoryfile import load_inventory

SOURCE = Path(__file__).with_suffix(".c")
ERRORS = {
    "UNINITIALIZED": 1,
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "IRQ_ISSUE": 11,
    "CORRUPTED_INFOROM": 14,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "LIB_RM_VERSION_MISMATCH": 18,
    "IN_USE": 19,
    "MEMORY": 20,
    "UNKNOWN": 999,
}
# the address of a switch: no GPU of any sample has it
SWITCH = "00000000:FE:00.0"


def build(*, old: bool = False) -> Path:
    """The library, compiled by this machine's compiler once for each version of its source."""
    flags = ["-DOLD"] if old else []
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(flags).encode()).hexdigest()[:16]
    library = cache_folder() / "fakenvml" / digest / "libnvidia-ml.so.1"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder) / library.name
            command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
            command += [f"-Wl,-soname,{library.name}", *flags, "-o", str(made), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True)
            made.replace(library)
    return library


class FakeDriver:
    """A driver root (`root`) and a sysfs (`sysfs`) in a folder; what they say changes under the one who reads."""

    def __init__(self, folder: Path, text: str, *, node: str = "a", name: str = "test", old: bool = False) -> None:
        self.root, self.sysfs = folder / "driver", folder / "sys"
        self._folder = self.root / "usr" / "lib64"
        self._node, self._name, self._old = node, name, old
        self._happened: list[str] = []
        self.show(text)
        self.install()

    def install(self) -> None:
        """Put the library where the driver has it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "libnvidia-ml.so.1").symlink_to(build(old=self._old))

    def remove(self) -> None:
        """Take the library away."""
        (self._folder / "libnvidia-ml.so.1").unlink()

    def show(self, text: str, **extra: str) -> Inventory:
        """Say what this inventory says, its faults included; `extra` are keys of the flat file, dots as `__`."""
        loaded = load_inventory(text, node=self._node, name=self._name)
        self.inventory = loaded.inventory
        _write_sysfs(self.sysfs, self.inventory)
        self._lines = {
            **_rendered(self.inventory),
            **_faults(loaded.faults, self.inventory),
            **{key.replace("__", "."): value for key, value in extra.items()},
        }
        self._write()
        return self.inventory

    def tell(self, **extra: str) -> None:
        """Change single keys of the flat file; an empty value takes a key out."""
        self._lines |= {key.replace("__", "."): value for key, value in extra.items()}
        self._lines = {key: value for key, value in self._lines.items() if value}
        self._write()

    def xid(self, gpu: int, xid: int, gi: int = -1, ci: int = -1) -> None:
        """Let an XID happen; GPU -1 = one that NVML does not name."""
        self._happened.append(f"{gpu} {xid} {gi} {ci}")
        self._write()

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        events = {f"event.{n}": event for n, event in enumerate(self._happened)}
        lines = self._lines | events | {"events": str(len(self._happened))}
        # the library is found by a link, and looks for its file beside the link
        new = self._folder / "fakenvml.conf.new"
        new.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        os.replace(new, self._folder / "fakenvml.conf")


def _rendered(inventory: Inventory) -> Mapping[str, str]:
    lines = {"driver": inventory.driver_version, "count": str(len(inventory.gpus))}
    for gpu in inventory.gpus:
        lines |= {f"gpu.{gpu.index}.{key}": value for key, value in _gpu(gpu, inventory)}
        for other in inventory.gpus[gpu.index + 1 :]:
            if link := inventory.link(gpu, other):
                lines[f"topology.{gpu.index}.{other.index}"] = str(link.common_ancestor)
    return lines


def _gpu(gpu: Gpu, inventory: Inventory) -> Iterator[tuple[str, str]]:
    yield "uuid", gpu.uuid
    yield "name", gpu.model
    yield "minor", str(gpu.minor)
    yield "memory", str(gpu.memory_mib)
    yield "capability", ".".join(map(str, gpu.compute_capability))
    if gpu.pci_bus_id:
        yield "pci", gpu.pci_bus_id
    if gpu.mig_mode:
        yield "mig", "1"
    for device in gpu.mig_devices:
        yield from ((f"mig.{device.index}.{key}", value) for key, value in _mig(gpu, device))
    for number, (end, switch) in enumerate(_link_ends(gpu, inventory)):
        yield f"link.{number}", end
        yield f"link.{number}.type", "2" if switch else "0"


def _mig(gpu: Gpu, device: MigDevice) -> Iterator[tuple[str, str]]:
    yield "uuid", device.uuid
    yield "name", f"{gpu.model} MIG {device.profile}"
    yield "gi", str(device.gi)
    yield "ci", str(device.ci)
    yield "start", str(device.start)
    yield "memory", str(device.memory_mib)
    yield "slices", str(device.gpu_slices)
    yield "compute", str(device.compute_slices)


def _link_ends(gpu: Gpu, inventory: Inventory) -> Iterator[tuple[str, bool]]:
    links = {other: inventory.link(gpu, other) for other in inventory.gpus if other is not gpu}
    if any(link and link.switched for link in links.values()):
        yield from [(SWITCH, True)] * 2
    for other, link in links.items():
        yield from [(other.pci_bus_id, False)] * (link.nvlinks if link else 0)


def _faults(faults: tuple[FaultEntry, ...], inventory: Inventory) -> Mapping[str, str]:
    index = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    lines = {f"gpu.{index[str(fault.gpu)]}.lost": "1" for fault in faults if fault.lost}
    for fault in faults:
        if fault.nvml == "absent":
            lines["driver.absent"] = "1"
        elif fault.nvml:
            call = f"fault.{fault.call or 'any'}"
            lines[call] = str(ERRORS.get(fault.nvml.removeprefix("NVML_ERROR_"), fault.nvml))
            lines[f"{call}.after"] = str(fault.after)
    return lines


def _write_sysfs(sysfs: Path, inventory: Inventory) -> None:
    for gpu in inventory.gpus:
        if gpu.pci_bus_id:
            folder = sysfs / "bus" / "pci" / "devices" / gpu.pci_bus_id.lower().removeprefix("0000")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "numa_node").write_text(f"{-1 if gpu.numa_node is None else gpu.numa_node}\n")
