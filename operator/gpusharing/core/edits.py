"""`Allocate`: what a container gets for its ids (contract 6, in the canonical form of 12.11).

Equal input gives an equal answer, and nothing is looked up: the kubelet keeps the answer for the pod's whole life.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from gpusharing.core.devices import Gpu, Inventory, MigDevice, base_of
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import CONTROL_NODES, HostFacts, device_nodes, imex_channels, imex_node, uses_cdi
from gpusharing.core.reservations import is_place
from gpusharing.core.resources import Resource
from gpusharing.core.serving import ServedConfig

CDI_VENDOR = "k8s.device-plugin.nvidia.com"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
PLACEMENT_COUNT, PLACEMENT_INDEXES = "GPU_PLACEMENT_COUNT", "GPU_PLACEMENT_INDEXES"
_DEVICES_FOLDER = "/var/run/nvidia-container-devices"
_ANNOTATION_SPACE = uuid.uuid5(uuid.NAMESPACE_DNS, CDI_VENDOR)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host in the container."""

    container_path: str
    host_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device node of the host in the container."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Edits:
    """What is changed in a container: the content of a `ContainerAllocateResponse`."""

    envs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # fully qualified: k8s.device-plugin.nvidia.com/gpu=GPU-…
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Granted:
    """A GPU, or a MIG device of it, that the container gets."""

    gpu: Gpu
    mig: MigDevice | None = None

    def name(self, config: ServedConfig) -> str:
        """Return what the container is told: a UUID or an index, by `deviceIDStrategy` (contract 4)."""
        if config.device_id_strategy == "uuid":
            return self.mig.uuid if self.mig else self.gpu.uuid
        return f"{self.gpu.index}:{self.mig.index}" if self.mig else str(self.gpu.index)


def edits_for(
    config: ServedConfig, resource: Resource, ids: Sequence[str], inventory: Inventory, host: HostFacts
) -> Edits:
    """Return what a container with these ids gets. Raises InvalidInput if one is not in the inventory.

    Names come in the order of the ids, each once, whatever the `deviceIDStrategy`. A service of a placement is never
    told the host's indexes where it could take them for its own: those count from 0 (placement guide, 8.1).
    """
    granted = _granted(ids, inventory)
    names = [one.name(config) for one in granted]
    channels = imex_channels(config, host)
    parts = [_cdi(config, resource, names, channels, host), _mps(config, resource), _features(config)]
    if not all(strategy.startswith("cdi-") for strategy in config.device_list_strategies):
        visible = [one.gpu.uuid for one in granted] if is_place(resource.name) else names
        parts += [
            _visible_devices(config, visible, channels),
            _volume_mounts(config, visible, channels),
            _device_specs(config, granted, channels, host),
        ]
    return _together([*parts, _placement(resource, granted)])


def cdi_name(kind: str, name: str) -> str:
    """Return a qualified CDI name: `k8s.device-plugin.nvidia.com/gpu=0`."""
    return f"{CDI_VENDOR}/{kind}={name}"


def host_path(config: ServedConfig, node: str) -> str:
    """Return where a device node is on the host: below `nvidiaDevRoot`, else below `nvidiaDriverRoot`."""
    return f"{(config.dev_root or config.driver_root).rstrip('/')}{node}"


def _granted(ids: Iterable[str], inventory: Inventory) -> tuple[Granted, ...]:
    """Return the devices behind the ids, each once, in order of the ids."""
    known = {gpu.uuid: Granted(gpu) for gpu in inventory.gpus}
    known |= {mig.uuid: Granted(gpu, mig) for gpu in inventory.gpus for mig in gpu.mig_devices}
    bases = dict.fromkeys(map(base_of, ids))
    for base in bases:
        if base not in known:
            raise InvalidInput(f"{base} is not on this node any more", hint="delete the pod, so that it is made anew")
    return tuple(known[base] for base in bases)


def _cdi(
    config: ServedConfig, resource: Resource, devices: Sequence[str], channels: Sequence[int], host: HostFacts
) -> Edits:
    if not uses_cdi(config):
        return Edits()
    extras = {"gdrcopy": config.gdrcopy, "gds": config.gds, "mofed": config.mofed}
    names = (
        *(cdi_name("gpu", name) for name in devices),
        *(cdi_name("imex-channel", str(channel)) for channel in channels),
        *(cdi_name(kind, "all") for kind, enabled in extras.items() if enabled and kind in host.cdi_classes),
    )
    strategies = config.device_list_strategies
    # The reference draws the key at random. Ours follows from the answer: the same call gets the same answer.
    unique = uuid.uuid5(_ANNOTATION_SPACE, f"{resource.name}={','.join(names)}")
    key = f"{config.cdi_annotation_prefix}nvidia-device-plugin_{unique}"
    return Edits(
        annotations={key: ",".join(names)} if "cdi-annotations" in strategies else {},
        cdi_devices=names if "cdi-cri" in strategies else (),
    )


def _mps(config: ServedConfig, resource: Resource) -> Edits:
    if not resource.mps:
        return Edits()
    root, pipe = config.mps_root.rstrip("/"), f"{resource.name}/pipe"
    return Edits(
        envs={"CUDA_MPS_PIPE_DIRECTORY": f"/mps/{pipe}"},
        mounts=(Mount(f"/mps/{pipe}", f"{root}/{pipe}"), Mount("/dev/shm", f"{root}/shm")),
    )


def _placement(resource: Resource, granted: Sequence[Granted]) -> Edits:
    """Return what a service of a placement may want to know: how many GPUs it has, and which of the host's they are."""
    if not is_place(resource.name):
        return Edits()
    indexes = ",".join(str(one.gpu.index) for one in granted)
    return Edits(envs={PLACEMENT_COUNT: str(len(granted)), PLACEMENT_INDEXES: indexes})


def _features(config: ServedConfig) -> Edits:
    enabled = {"NVIDIA_GDRCOPY": config.gdrcopy, "NVIDIA_GDS": config.gds, "NVIDIA_MOFED": config.mofed}
    return Edits(envs={name: "enabled" for name, on in enabled.items() if on})


def _visible_devices(config: ServedConfig, devices: Sequence[str], channels: Sequence[int]) -> Edits:
    if "envvar" not in config.device_list_strategies:
        return Edits()
    imex = {"NVIDIA_IMEX_CHANNELS": ",".join(map(str, channels))} if channels else {}
    return Edits(envs={VISIBLE_DEVICES: ",".join(devices)} | imex)


def _volume_mounts(config: ServedConfig, devices: Sequence[str], channels: Sequence[int]) -> Edits:
    if "volume-mounts" not in config.device_list_strategies:
        return Edits()
    files = (*devices, *(f"imex/{channel}" for channel in channels))
    return Edits(
        envs={VISIBLE_DEVICES: _DEVICES_FOLDER},
        mounts=tuple(Mount(f"{_DEVICES_FOLDER}/{file}", "/dev/null") for file in files),
    )


def _device_specs(config: ServedConfig, granted: Sequence[Granted], channels: Sequence[int], host: HostFacts) -> Edits:
    if not config.pass_device_specs:
        return Edits()
    nodes = (
        *(node for node in CONTROL_NODES if node in host.nodes),
        *(node for one in granted for node in device_nodes(one.gpu, one.mig, host)),
        *map(imex_node, channels),
    )
    # MIG devices of one GPU share its node; the reference lists it twice (contract 12.11)
    return Edits(devices=tuple(DeviceSpec(node, host_path(config, node)) for node in dict.fromkeys(nodes)))


def _together(parts: Sequence[Edits]) -> Edits:
    """Return all in one; where two set a variable the later wins, as in the reference."""
    envs: dict[str, str] = {}
    for part in parts:
        envs |= part.envs
    return Edits(
        envs=MappingProxyType(envs),
        mounts=tuple(mount for part in parts for mount in part.mounts),
        devices=tuple(device for part in parts for device in part.devices),
        annotations=MappingProxyType({key: text for part in parts for key, text in part.annotations.items()}),
        cdi_devices=tuple(name for part in parts for name in part.cdi_devices),
    )
