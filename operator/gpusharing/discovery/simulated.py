"""Simulated GPUs from a YAML file (decision 41), so that everything can be tried on a machine without a GPU.

The file is looked at again every half second: GPUs may change in it, and faults be switched on and off.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gpusharing.api.inventoryfile import FaultEntry
from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.health import GpuEvent, Probe
from gpusharing.core.host import MigMinors
from gpusharing.discovery.base import DiscoveryError, Kind
from gpusharing.discovery.inventoryfile import LoadedInventory, load_inventory

_LOST = Probe("the GPU is lost (simulated)", gone=True)
_DECLARED_SICK = Probe("declared sick in the inventory (simulated)")


class SimulatedDiscovery:
    """The GPUs of one node's inventory: `path` is a file, or a folder of `<node>.yaml` with `default.yaml`."""

    def __init__(
        self,
        path: Path,
        node: str,
        *,
        reread: float = 0.5,
        deadline: float = 5.0,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Seconds: `reread` between looks at the file, `deadline` of a call that hangs. Told of a file gone bad."""
        self._path, self._node = path, node
        self._reread, self._deadline, self._on_problem = reread, deadline, on_problem
        self._loaded: LoadedInventory | None = None
        # why the file as it is now cannot be used
        self._problem: DiscoveryError | None = None
        # which version of which file was read last
        self._version: tuple[object, ...] = ()
        # fault of NVML → calls since it is there
        self._calls: dict[FaultEntry, int] = {}

    async def inventory(self) -> Inventory:
        """Return the file's GPUs, lost ones included. Raises DiscoveryError."""
        return (await self._answer()).inventory

    async def probe(self) -> Mapping[str, Probe]:
        """Return which GPUs are lost and which ids are declared sick. Raises DiscoveryError."""
        loaded = await self._answer()
        lost = {fault.gpu for fault in loaded.faults if fault.lost}
        probes = {gpu.uuid: _LOST if gpu.uuid in lost else Probe() for gpu in loaded.inventory.gpus}
        sick = {fault.id: _DECLARED_SICK for fault in loaded.faults if fault.id is not None}
        return MappingProxyType({**probes, **sick})

    async def computing(self) -> frozenset[str]:
        """Return nothing: no process computes on a GPU that is not there. Raises DiscoveryError."""
        await self._answer()
        return frozenset()

    async def events(self) -> AsyncIterator[GpuEvent]:
        """Yield the XIDs that stand in the file, each when it appears; to repeat one take it out and put it back."""
        seen: Counter[GpuEvent] = Counter()
        while True:
            self._look()
            present = Counter(_xids(self._loaded))
            for event in present - seen:
                yield event
            seen = present
            await asyncio.sleep(self._reread)

    async def close(self) -> None:
        """Nothing is held."""

    async def _answer(self) -> LoadedInventory:
        """Return the file's content, unless a fault says that NVML does not answer."""
        self._look()
        if self._loaded is None:
            raise self._problem or DiscoveryError("no inventory was read", kind="failed")
        faults = [fault for fault in self._loaded.faults if fault.nvml]
        self._calls = {fault: self._calls.get(fault, 0) + 1 for fault in faults}
        for fault, calls in self._calls.items():
            if calls > fault.after:
                await self._fail(fault)
        return self._loaded

    async def _fail(self, fault: FaultEntry) -> None:
        kinds: dict[str, Kind] = {"absent": "absent", "hang": "hung"}
        if fault.nvml == "hang":
            await asyncio.sleep(self._deadline)
        raise DiscoveryError(f"NVML: {fault.nvml} (simulated)", kind=kinds.get(fault.nvml or "", "failed"))

    def _look(self) -> None:
        """Read the file again if it changed; what cannot be used is said once, and what was read before stays."""
        try:
            self._load()
            self._problem = None
        except DiscoveryError as error:
            if self._loaded is not None and str(error) != str(self._problem):
                self._on_problem(str(error))
            self._problem = error

    def _load(self) -> None:
        """Read the file if it is not the one that was read last. Raises DiscoveryError."""
        file = self._file()
        try:
            stat = file.stat()
            version = (file, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if version == self._version:
                return
            text = file.read_text(encoding="utf-8")
            self._loaded = load_inventory(text, node=self._node, name=file.stem)
            self._version = version
        except FileNotFoundError as error:
            raise DiscoveryError(f"there is no inventory {file}", kind="absent", hint="see --inventory") from error
        except (OSError, UnicodeDecodeError) as error:
            raise DiscoveryError(f"the inventory {file} cannot be read: {error}", kind="failed") from error
        except InvalidInput as error:
            raise DiscoveryError(f"the inventory {file} is not usable: {error}", kind="failed") from error

    def _file(self) -> Path:
        if not self._path.is_dir():
            return self._path
        own = self._path / f"{self._node}.yaml"
        return own if own.exists() else self._path / "default.yaml"


def _xids(loaded: LoadedInventory | None) -> list[GpuEvent]:
    faults = loaded.faults if loaded else ()
    return [GpuEvent(str(fault.gpu), fault.xid, fault.gi, fault.ci) for fault in faults if fault.xid is not None]


def simulated_mig_minors(inventory: Inventory) -> MigMinors:
    """Return capability nodes for simulated MIG devices, numbered as they come: no driver lists any."""
    minors: dict[tuple[int, int, int | None], int] = {}
    for gpu in inventory.gpus:
        for device in gpu.mig_devices:
            for key in ((gpu.minor, device.gi, None), (gpu.minor, device.gi, device.ci)):
                minors.setdefault(key, len(minors) + 1)
    return MappingProxyType(minors)
