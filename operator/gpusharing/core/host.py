"""What the plugin has to know of its host before it may answer `Allocate`: found by the shell, judged here.

`Allocate` itself looks at nothing (P10). A device node that is missing on the host leaves the pod pending for ever, and
a runtime without CDI starts the container without its GPU and without a word (kubelet contract 5.2).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpusharing.api.problems import quoted
from gpusharing.core.devices import Gpu, MigDevice
from gpusharing.core.errors import InvalidInput
from gpusharing.core.serving import ServedConfig

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
# The first versions that read CDI names; containerd 1.7 has it behind a switch, 2.0 and CRI-O by default.
_CDI_SINCE = {"containerd": (1, 7), "cri-o": (1, 23)}
_RUNTIME = re.compile(r"(?P<name>[a-z-]+)://v?(?P<major>[0-9]+)\.(?P<minor>[0-9]+)")
_MIG_MINOR = re.compile(r"gpu(?P<gpu>[0-9]+)/gi(?P<gi>[0-9]+)(/ci(?P<ci>[0-9]+))?/access (?P<minor>[0-9]+)")

# (minor of the GPU, GPU instance, compute instance; None = the GPU instance's own) → minor of the capability node
MigMinors = Mapping[tuple[int, int, int | None], int]


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What was found on the host."""

    # which of `optional_nodes` exist, by their path in a container
    nodes: frozenset[str] = frozenset()
    mig_minors: MigMinors = field(default_factory=lambda: MappingProxyType({}))
    # as Node status and CONTAINER_RUNTIME write it: containerd://1.7.24; empty = not known
    runtime: str = ""
    # classes of which a CDI spec is there: gpu, imex-channel, gdrcopy, gds, mofed
    cdi_classes: frozenset[str] = frozenset()


def optional_nodes(config: ServedConfig) -> tuple[str, ...]:
    """Return the device nodes that are handed over only if they exist: the shell looks for them."""
    return (*CONTROL_NODES, *map(imex_node, config.imex_channels))


def imex_node(channel: int) -> str:
    """Return the device node of an IMEX channel."""
    return f"/dev/nvidia-caps-imex-channels/channel{channel}"


def imex_channels(config: ServedConfig, host: HostFacts) -> tuple[int, ...]:
    """Return the configured channels that the host has."""
    return tuple(channel for channel in config.imex_channels if imex_node(channel) in host.nodes)


def device_nodes(gpu: Gpu, mig: MigDevice | None, host: HostFacts) -> tuple[str, ...]:
    """Return the device nodes of a GPU or MIG device (contract 4). Raises InvalidInput without a capability node."""
    parent = f"/dev/nvidia{gpu.minor}"
    if mig is None:
        return (parent,)
    minors = [host.mig_minors.get((gpu.minor, mig.gi, ci)) for ci in (None, mig.ci)]
    if None in minors:
        raise InvalidInput(
            f"{mig.uuid} has no capability node: the driver lists none for gpu{gpu.minor}/gi{mig.gi}/ci{mig.ci}",
            hint="look at /proc/driver/nvidia-caps/mig-minors; is it mounted into the plugin's container?",
        )
    return (parent, *(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors))


def read_mig_minors(text: str) -> MigMinors:
    """Read `/proc/driver/nvidia-caps/mig-minors`; lines that say something else are skipped (contract 4)."""
    found = (_MIG_MINOR.fullmatch(line.strip()) for line in text.splitlines())
    return MappingProxyType(
        {
            (int(match["gpu"]), int(match["gi"]), int(match["ci"]) if match["ci"] else None): int(match["minor"])
            for match in found
            if match
        }
    )


def uses_cdi(config: ServedConfig) -> bool:
    """Whether containers get their devices by CDI names."""
    return any(strategy.startswith("cdi-") for strategy in config.device_list_strategies)


def check_host(config: ServedConfig, host: HostFacts) -> None:
    """Raise InvalidInput if the host lacks what the config needs: an IMEX channel, or CDI (decision 40)."""
    for channel in config.imex_channels:
        if config.imex_required and imex_node(channel) not in host.nodes:
            raise InvalidInput(
                f"imex.required: true, but {imex_node(channel)} is not there",
                hint="start the IMEX service on the node, or set imex.required: false",
            )
    check_cdi(config, host)


def check_cdi(config: ServedConfig, host: HostFacts) -> None:
    """Raise InvalidInput if containers could not get their GPUs by CDI."""
    if not uses_cdi(config):
        return
    _check_runtime(config, host.runtime)
    if "gpu" not in host.cdi_classes:
        raise InvalidInput(
            f"deviceListStrategy {_strategies(config)}, but there is no CDI spec: {config.nvidia_ctk_path} is not on "
            "the host, or failed",
            hint="install the NVIDIA container toolkit and set nvidiaCTKPath, or use deviceListStrategy: envvar",
        )


def _check_runtime(config: ServedConfig, runtime: str) -> None:
    if not runtime:
        raise InvalidInput(
            f"deviceListStrategy {_strategies(config)}, but the container runtime is not known, and not each has CDI",
            hint="set CONTAINER_RUNTIME, for example containerd://2.0.0, or use deviceListStrategy: envvar",
        )
    match = _RUNTIME.match(runtime)
    since = _CDI_SINCE.get(match["name"]) if match else None
    if match is None or since is None or (int(match["major"]), int(match["minor"])) < since:
        raise InvalidInput(
            f"deviceListStrategy {_strategies(config)}, but {quoted(runtime)} has no CDI: containers would start "
            "without their GPUs",
            hint="CDI needs containerd 1.7 or CRI-O 1.23; or use deviceListStrategy: envvar",
        )


def _strategies(config: ServedConfig) -> str:
    return ",".join(config.device_list_strategies)
