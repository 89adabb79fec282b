"""The host beside its GPUs: which device nodes are there, CDI specs, the markers of MPS daemons.

Looked at when a config or the hardware changed, never inside of the kubelet's calls (P10).
"""

import asyncio
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusharing.core.cdi import simulated_specs
from gpusharing.core.devices import Inventory
from gpusharing.core.edits import CDI_VENDOR, host_path
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts, MigMinors, check_host, optional_nodes, read_mig_minors, uses_cdi
from gpusharing.core.serving import ServedConfig
from gpusharing.observability.logs import logger

log = logger(__name__)

MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
CDI_FOLDER = Path("/var/run/cdi")
CTK_SECONDS = 20.0
_MARKER_MAX = 4096

Specs = Mapping[str, Mapping[str, Any]]


class LocalHost:
    """This machine, seen from the plugin's container or from a plain process."""

    def __init__(
        self,
        simulated_minors: Callable[[Inventory], MigMinors] | None = None,
        *,
        mig_minors: Path = MIG_MINORS,
        cdi_folder: Path = CDI_FOLDER,
        cdi_feature_flags: Sequence[str] = (),
        cdi_disable_hooks: Sequence[str] = (),
        ctk_seconds: float = CTK_SECONDS,
    ) -> None:
        """`simulated_minors` gives the capability nodes of simulated MIG devices; None = the GPUs are real.

        Feature flags and hooks to leave out are what `nvidia-ctk` is told; it has so many seconds.
        """
        self._simulated_minors = simulated_minors
        self._mig_minors = mig_minors
        self._cdi_folder = cdi_folder
        self._cdi_feature_flags = cdi_feature_flags
        self._cdi_disable_hooks = cdi_disable_hooks
        self._ctk_seconds = ctk_seconds

    def nodes(self, config: ServedConfig) -> frozenset[str]:
        """Return which of the device nodes are there that are handed over only if they exist."""
        return frozenset(node for node in optional_nodes(config) if _is_there(config, node))

    async def facts(self, config: ServedConfig, inventory: Inventory, runtime: str) -> HostFacts:
        """Look, and write the CDI specs that the config needs. Raises InvalidInput if the config cannot be served."""
        found = HostFacts(
            nodes=self.nodes(config),
            mig_minors=self._minors(inventory),
            runtime=runtime,
        )
        if uses_cdi(config):
            specs = await self._specs(config, inventory, found)
            found = replace(found, cdi_classes=frozenset(specs))
            check_host(config, found)
            self._write(specs)
        else:
            check_host(config, found)
        return found

    def mps_ready(self, config: ServedConfig, resource: str) -> bool:
        """Return whether the MPS daemon of the resource runs with this config (contract 12.5)."""
        marker = Path(config.mps_root) / resource / "ready"
        try:
            with os.fdopen(os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                return file.read(_MARKER_MAX).decode(errors="replace").strip() == config.config.digest()
        except OSError:
            return False

    def _minors(self, inventory: Inventory) -> MigMinors:
        if self._simulated_minors is not None:
            return self._simulated_minors(inventory)
        try:
            return read_mig_minors(self._mig_minors.read_text(errors="replace"))
        except OSError:
            return {}

    # --- CDI (decision 40)

    async def _specs(self, config: ServedConfig, inventory: Inventory, found: HostFacts) -> Specs:
        """Return class → spec: ours for simulated GPUs, else what `nvidia-ctk` makes; nothing where it is missing."""
        if self._simulated_minors is not None:
            return simulated_specs(config, inventory, found)
        program = _on_host(config, config.nvidia_ctk_path)
        if program is None:
            return {}
        spec = await _run_ctk(program, self._ctk_arguments(config), self._ctk_seconds)
        return {"gpu": spec} if spec else {}

    def _ctk_arguments(self, config: ServedConfig) -> tuple[str, ...]:
        return (
            "cdi",
            "generate",
            "--format=json",
            f"--vendor={CDI_VENDOR}",
            "--class=gpu",
            f"--device-name-strategy={config.device_id_strategy}",
            f"--driver-root={config.driver_root}",
            f"--nvidia-cdi-hook-path={config.nvidia_ctk_path}",
            *(f"--feature-flags={flag}" for flag in self._cdi_feature_flags),
            *(f"--disable-hook={hook}" for hook in self._cdi_disable_hooks),
        )

    def _write(self, specs: Specs) -> None:
        """Write a file for each class, whole or not at all; runtimes watch the folder. Raises InvalidInput."""
        try:
            self._cdi_folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            for kind, spec in specs.items():
                _replace(self._cdi_folder / f"{CDI_VENDOR}-{kind}.json", json.dumps(spec, indent=1))
        except OSError as error:
            raise InvalidInput(
                f"the CDI spec cannot be written to {self._cdi_folder}: {error.strerror}",
                hint="mount the host's /var/run/cdi into the plugin's container, or use deviceListStrategy: envvar",
            ) from error


def _is_there(config: ServedConfig, node: str) -> bool:
    """Return whether the device node exists, on the host or below the driver root in our container; no link counts."""
    for path in (host_path(config, node), f"{config.container_driver_root.rstrip('/')}{node}"):
        with suppress(OSError):
            if stat.S_ISCHR(os.lstat(path).st_mode):
                return True
    return False


def _on_host(config: ServedConfig, program: str) -> Path | None:
    """Return where a program of the host is for us: below its mounted root, or where it says; None = nowhere."""
    for root in (config.container_driver_root.rstrip("/"), ""):
        path = Path(f"{root}{program}")
        if os.access(path, os.X_OK) and path.is_file():
            return path
    return None


async def _run_ctk(program: Path, arguments: Sequence[str], seconds: float) -> Mapping[str, Any] | None:
    """Return the spec that `nvidia-ctk cdi generate` prints; None = it failed, which is logged."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
    except OSError as error:
        log.error("nvidia-ctk cannot be run", program=str(program), error=error.strerror)
        return None
    try:
        async with asyncio.timeout(seconds):
            printed, said = await process.communicate()
        spec = json.loads(printed)
    except TimeoutError:
        log.error("nvidia-ctk did not end", program=str(program), seconds=seconds)
        return None
    except ValueError:
        log.error("nvidia-ctk failed", program=str(program), error=said.decode(errors="replace").strip()[-500:])
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return spec if isinstance(spec, dict) and spec.get("devices") else None


def _replace(path: Path, text: str) -> None:
    """Write the file anew, so that nobody sees half of it; a link of that name is replaced, not followed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
