"""NVML: the only file that calls it, in a process of its own (`nvmlprocess.py`).

Imports are few on purpose: that process is meant to weigh little (decision 33).
"""

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import pynvml  # type: ignore[import-untyped]

LIBRARY = "libnvidia-ml.so.1"
# all ones: an event without instances, a GPU whose NUMA node is not known
_NONE = 0xFFFFFFFF
# milliseconds that the end of the queue may take, and how much is read before requests are looked at again
_WAIT_MS, _EVENTS_AT_ONCE = 10, 1000

_ERRORS: dict[int, str] = {
    value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)
}
_ABSENT = {pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
_UNSUPPORTED = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
# the GPU answered, if only to say that it will not tell
_ANSWERED = {*_UNSUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION}
_NO_LINK = {*_UNSUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT}
_NO_SLOT = {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT}
_GONE = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND}
# processes with a CUDA context of their own, and through an MPS server; by version, or an old driver ends this process
_PROCESSES = (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3)


def library_paths(driver_root: str) -> Iterator[str]:
    """Yield where the driver's library may be below its root (decision 43)."""
    machine = platform.machine()
    for folder in (f"usr/lib/{machine}-linux-gnu", "usr/lib64", f"lib/{machine}-linux-gnu", "lib64", "usr/lib"):
        yield os.path.join(driver_root, folder, LIBRARY)


def load_library(driver_root: str) -> None:
    """Load the library of the driver root, if there is one: pynvml, which asks for the bare name, then gets that."""
    for path in library_paths(driver_root):
        if os.path.exists(path):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue  # of another architecture
            return


def said(error: Any) -> str:
    """Return an error of NVML as people read it."""
    return f"{error} ({_ERRORS.get(error.value, error.value)})"


class NoGpuAnswers(Exception):
    """Not one GPU of the node can be asked, so it is NVML itself that has failed."""


class Gpu:
    """What is kept of one GPU between calls."""

    def __init__(self, index: int) -> None:
        self.index = index
        # empty = never told
        self.uuid = ""
        self.handle: Any = None
        # why it has no handle
        self.missing = ""
        # whether its XIDs were asked for
        self.watched = False


class Nvml:
    """NVML, initialised when it is first needed, and again when it failed as a whole or lost a GPU."""

    def __init__(self, driver_root: str, sysfs: str, reopen_after: float, alive: Callable[[], None]) -> None:
        self._driver_root, self._sysfs, self._reopen_after, self._alive = driver_root, sysfs, reopen_after, alive
        self._open = False
        self._opened_at = 0.0
        # a GPU is gone, or the events broke: only a new NVML may find them again
        self._stale = False
        self._gpus: list[Gpu] = []
        self._events: Any = None
        # links do not change: of which GPUs they were read, and what
        self._linked: tuple[str, ...] = ()
        self._links: dict[str, Any] = {"ends": {}, "ancestors": []}

    def inventory(self) -> dict[str, Any]:
        """Return all facts (contract 4.1); a GPU that cannot be read is told with its error."""
        self._ensure_open()
        facts = [self._facts(gpu) for gpu in self._gpus]
        self._read_links()
        return {"driver": _or("", pynvml.nvmlSystemGetDriverVersion), "gpus": facts, **self._links}

    def probe(self) -> dict[str, list[Any]]:
        """Return for each GPU why it is not well (empty = it is), and whether it is gone."""
        self._ensure_open()
        probes = {gpu.uuid: self._probe(gpu) for gpu in self._gpus}
        bad = [reason for reason, _ in probes.values() if reason]
        if bad and len(bad) == len(probes):
            self._close()
            raise NoGpuAnswers(f"no GPU answers: {bad[0]}")
        return probes

    def computing(self) -> list[str]:
        """Return the GPUs that processes compute on. One that does not tell counts as idle."""
        self._ensure_open()
        return [gpu.uuid for gpu in self._gpus if gpu.handle and self._computes(gpu)]

    def events(self) -> list[list[Any]]:
        """Return the XIDs that came since the last call: UUID, XID, GI, CI; equal ones once."""
        found: dict[tuple[Any, ...], None] = {}
        for _ in range(_EVENTS_AT_ONCE):
            if self._events is None:
                break
            try:
                data = pynvml.nvmlEventSetWait_v2(self._events, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._events, self._stale = None, True
                break
            if data.eventType & pynvml.nvmlEventTypeXidCriticalError:
                ids = (data.gpuInstanceId, data.computeInstanceId)
                found[self._uuid_of(data.device), data.eventData, *(None if n == _NONE else n for n in ids)] = None
        return [list(event) for event in found]

    def _ensure_open(self) -> None:
        """Open NVML; anew if it is stale, but not all the time."""
        if self._open and (not self._stale or time.monotonic() - self._opened_at < self._reopen_after):
            return
        self._close()
        load_library(self._driver_root)  # it may have come since
        pynvml.nvmlInit()
        self._open, self._opened_at, self._stale = True, time.monotonic(), False
        try:
            self._enumerate()
        except pynvml.NVMLError:
            self._close()  # no handle of before may be used with this NVML
            raise

    def _enumerate(self) -> None:
        """Find the GPUs and ask for their events. One that cannot be asked is taken for the one that was there."""
        before = {gpu.index: gpu.uuid for gpu in self._gpus}
        found = [self._found(index) for index in range(pynvml.nvmlDeviceGetCount())]
        seen = {gpu.uuid for gpu in found}
        for gpu in found:
            if not gpu.handle and (known := before.get(gpu.index, "")) not in seen:
                gpu.uuid = known
        self._gpus = found
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            self._stale = error.value not in _UNSUPPORTED
        for gpu in found:
            if gpu.handle:
                self._register(gpu)

    def _close(self) -> None:
        if self._events is not None:
            _or(None, pynvml.nvmlEventSetFree, self._events)
        self._events = None
        if self._open:
            self._open = False
            _or(None, pynvml.nvmlShutdown)

    def _found(self, index: int) -> Gpu:
        self._alive()
        gpu = Gpu(index)
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpu.uuid, gpu.handle = pynvml.nvmlDeviceGetUUID(handle), handle
        except pynvml.NVMLError as error:
            gpu.missing, self._stale = said(error), True
        return gpu

    def _register(self, gpu: Gpu) -> str:
        """Ask for the GPU's XIDs; returns why that is not possible. A GPU that has none to tell is fine."""
        if gpu.watched or self._events is None:
            return ""
        try:
            if pynvml.nvmlDeviceGetSupportedEventTypes(gpu.handle) & pynvml.nvmlEventTypeXidCriticalError:
                pynvml.nvmlDeviceRegisterEvents(gpu.handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError as error:
            if error.value not in _UNSUPPORTED:
                return f"XID events cannot be had: {said(error)}"
        gpu.watched = True
        return ""

    def _uuid_of(self, handle: Any) -> str:
        """Return whose event it is: by the handle, since a lost GPU does not tell its UUID. Empty = nobody knows."""
        address = _address(handle)
        known = (gpu.uuid for gpu in self._gpus if gpu.handle and _address(gpu.handle) == address)
        return next(known, "") or str(_or("", pynvml.nvmlDeviceGetUUID, handle))

    def _probe(self, gpu: Gpu) -> list[Any]:
        self._alive()
        if not gpu.handle:
            return [gpu.missing, True]
        try:
            pynvml.nvmlDeviceGetMemoryInfo(gpu.handle)
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                gpu.handle, gpu.missing, self._stale = None, said(error), True
            if error.value not in _ANSWERED:
                return [said(error), error.value in _GONE]
        return [self._register(gpu), False]

    def _computes(self, gpu: Gpu) -> bool:
        self._alive()
        return any(_or((), processes, gpu.handle) for processes in _PROCESSES)

    def _facts(self, gpu: Gpu) -> dict[str, Any]:
        self._alive()
        if not gpu.handle:
            return {"index": gpu.index, "error": gpu.missing}
        try:
            return {"index": gpu.index, "uuid": gpu.uuid, **self._read(gpu.handle)}
        except pynvml.NVMLError as error:
            return {"index": gpu.index, "error": said(error)}

    def _read(self, handle: Any) -> dict[str, Any]:
        memory = _or(None, pynvml.nvmlDeviceGetMemoryInfo, handle)
        pci = _or(None, pynvml.nvmlDeviceGetPciInfo, handle)
        bus = _text(pci.busId).upper() if pci else ""
        mig = _or((0, 0), pynvml.nvmlDeviceGetMigMode, handle, of=_UNSUPPORTED)[0] == 1
        return {
            "model": _text(pynvml.nvmlDeviceGetName(handle)),
            "minor": pynvml.nvmlDeviceGetMinorNumber(handle),
            "memory": memory.total if memory else 0,
            "pci": bus,
            "numa": self._numa_node(bus),
            "capability": list(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
            "mig": mig,
            "devices": list(_mig_devices(handle)) if mig else [],
        }

    def _numa_node(self, bus: str) -> int | None:
        """Return the NUMA node that sysfs has for the PCI device; None = negative or not readable."""
        name = bus.lower().removeprefix("0000")
        try:
            with open(os.path.join(self._sysfs, "bus/pci/devices", name, "numa_node"), encoding="ascii") as file:
                node = int(file.read())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None

    def _read_links(self) -> None:
        """Read what connects the GPUs, if they are not the ones of last time. What cannot be read is left out."""
        present = [gpu for gpu in self._gpus if gpu.handle]
        uuids = tuple(gpu.uuid for gpu in present)
        if uuids == self._linked:
            return
        ends = {gpu.uuid: found for gpu in present if (found := self._link_ends(gpu)) is not None}
        ancestors = []
        for place, one in enumerate(present):
            self._alive()
            for other in present[place + 1 :]:
                level = _or(None, pynvml.nvmlDeviceGetTopologyCommonAncestor, one.handle, other.handle)
                if level is not None:
                    ancestors.append([one.uuid, other.uuid, level])
        self._linked, self._links = uuids, {"ends": ends, "ancestors": ancestors}

    def _link_ends(self, gpu: Gpu) -> dict[str, int] | None:
        """Return how many active NVLinks lead where: a PCI address, or `switch`. None = not readable."""
        self._alive()
        ends: dict[str, int] = {}
        try:
            for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
                if _or(0, pynvml.nvmlDeviceGetNvLinkState, gpu.handle, link, of=_NO_LINK):
                    end = _link_end(gpu.handle, link)
                    ends[end] = ends.get(end, 0) + 1
        except pynvml.NVMLError:
            return None
        return ends


def _link_end(handle: Any, link: int) -> str:
    kind = _or(None, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link, of=_UNSUPPORTED)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return "switch"
    remote = _or(None, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link, of=_NO_LINK)
    return _text(remote.busId).upper() if remote else ""


def _mig_devices(parent: Any) -> Iterator[dict[str, Any]]:
    """Yield the MIG devices; slots may have gaps."""
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(parent)):
        handle = _or(None, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, index, of=_NO_SLOT)
        if handle is None:
            continue
        attributes = pynvml.nvmlDeviceGetAttributes_v2(handle)
        gi = pynvml.nvmlDeviceGetGpuInstanceId(handle)
        yield {
            "index": index,
            "uuid": pynvml.nvmlDeviceGetUUID(handle),
            "name": _text(_or("", pynvml.nvmlDeviceGetName, handle)),
            "gi": gi,
            "ci": pynvml.nvmlDeviceGetComputeInstanceId(handle),
            "start": _or(None, _start, parent, gi),
            "memory": attributes.memorySizeMB,
            "slices": attributes.gpuInstanceSliceCount,
            "computeSlices": attributes.computeInstanceSliceCount,
        }


def _start(parent: Any, gi: int) -> int:
    """Return where the instance starts; the driver tells it to privileged processes only."""
    instance = pynvml.nvmlDeviceGetGpuInstanceById(parent, gi)
    return int(pynvml.nvmlGpuInstanceGetInfo(instance).placement.start)


def _or(default: Any, call: Callable[..., Any], *args: Any, of: set[int] | None = None) -> Any:
    """Return what the call returns, or the default if it fails (with one of the errors `of`, where given)."""
    try:
        return call(*args)
    except pynvml.NVMLError as error:
        if of is not None and error.value not in of:
            raise
        return default


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def answer(nvml: Nvml, call: str) -> dict[str, Any]:
    """Return what the call gives, or its error and whether that means that there is no driver."""
    calls: dict[str, Callable[[], Any]] = {
        "inventory": nvml.inventory,
        "probe": nvml.probe,
        "computing": nvml.computing,
    }
    try:
        return {"result": calls[call]()}
    except pynvml.NVMLError as error:
        return {"error": said(error), "absent": error.value in _ABSENT}
    except NoGpuAnswers as error:
        return {"error": str(error), "absent": False}
