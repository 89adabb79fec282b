"""The resources that a config makes of a node's hardware: the lists of ids that the kubelet should see.

Names, ids and what is refused are NVIDIA's (contract 1.7, 3, 4). A state of the hardware that NVIDIA's plugin dies on
is a refused config here: InvalidInput, so that the last good config stays served (decision 36).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusharing.api import names
from gpusharing.api.problems import quoted
from gpusharing.core.advertise import resource_of_profile
from gpusharing.core.checks.pluginconfig.resourcenames import full_name
from gpusharing.core.devices import DISPLAY_MODELS, Gpu, Inventory, share_id
from gpusharing.core.errors import InvalidInput
from gpusharing.core.listsize import check_size, shortest_list
from gpusharing.core.mps import refuse_mps
from gpusharing.core.serving import ServedConfig

ID_MAX = 63
# What the kubelet takes (kubelet contract 11); the domain is always NVIDIA's.
_NAME = re.compile(r"nvidia\.com/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of a resource's list: a GPU, a MIG device, or one share of either."""

    id: str
    # the UUID behind the id: a GPU's or a MIG device's
    base: str
    # the UUID of the GPU that it is on
    gpu: str
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """One extended resource and its devices, in order of GPU, MIG device, replica."""

    # as advertised: nvidia.com/gpu.shared
    name: str
    devices: tuple[Device, ...]
    # shares per device; 1 = not shared
    replicas: int = 1
    mps: bool = False

    @property
    def short_name(self) -> str:
        """Return what follows the slash."""
        return self.name.partition("/")[2]

    @property
    def whole_gpus(self) -> bool:
        """Whether each device is a GPU of its own: allocation then is aligned (contract 5.2)."""
        return self.replicas == 1 and all(device.base == device.gpu for device in self.devices)


def resources_of(config: ServedConfig, inventory: Inventory) -> tuple[Resource, ...]:
    """Return what the config makes of the hardware, by name. Raises InvalidInput where NVIDIA's plugin would exit."""
    gpus = served_gpus(inventory)
    _refuse_states(config, gpus)
    unshared = _unshared(config, gpus)
    refuse_mps(config, gpus)
    resources = (_resource(config, name, devices) for name, devices in unshared.items())
    return tuple(sorted(resources, key=lambda resource: resource.name))


def unknown_resources(config: ServedConfig, inventory: Inventory) -> tuple[str, ...]:
    """Return the names under `sharing` that no device of the node has, in order of the config (`UnknownResource`)."""
    known = _unshared(config, served_gpus(inventory))
    return tuple(name for name in _replicas(config) if name not in known)


def served_gpus(inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs that may be served, by index: all but those that only drive a monitor."""
    gpus = (gpu for gpu in inventory.gpus if gpu.model not in DISPLAY_MODELS)
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _refuse_states(config: ServedConfig, gpus: Sequence[Gpu]) -> None:
    """Raise for what NVIDIA's plugin calls an invalid state of the hardware (contract 3.2)."""
    if config.mig_strategy == "single":
        _refuse_single(gpus)
    elif config.mig_strategy == "mixed":
        _refuse_compute_instances(gpus)


def _refuse_single(gpus: Sequence[Gpu]) -> None:
    enabled = [gpu for gpu in gpus if gpu.mig_mode]
    if not enabled:
        return
    if len(enabled) < len(gpus):
        plain = _listed([gpu for gpu in gpus if not gpu.mig_mode])
        raise InvalidInput(
            f"migStrategy: single, but MIG is enabled on {_listed(enabled)} and not on {plain}",
            hint="enable MIG on all GPUs of the node, or use migStrategy: mixed",
        )
    if empty := [gpu for gpu in enabled if not gpu.mig_devices]:
        raise InvalidInput(
            f"migStrategy: single, but {_listed(empty)} in MIG mode without any MIG device",
            hint="create MIG devices there, or use migStrategy: mixed, which passes over such GPUs",
        )
    profiles = sorted({device.profile for gpu in enabled for device in gpu.mig_devices})
    if len(profiles) > 1:
        raise InvalidInput(
            f"migStrategy: single, but the MIG devices have {len(profiles)} profiles: {', '.join(profiles)}",
            hint="give all GPUs one profile, or use migStrategy: mixed",
        )


def _refuse_compute_instances(gpus: Sequence[Gpu]) -> None:
    for gpu in gpus:
        for device in gpu.mig_devices if gpu.mig_mode else ():
            if device.compute_slices != device.gpu_slices:
                raise InvalidInput(
                    f"migStrategy: mixed, but MIG device {device.index} of GPU {gpu.index} is a {device.profile}, "
                    f"{device.compute_slices} of {device.gpu_slices} compute slices, for which there is no resource",
                    hint="create each compute instance in the full size of its GPU instance",
                )


def _listed(gpus: Sequence[Gpu]) -> str:
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"


def _unshared(config: ServedConfig, gpus: Sequence[Gpu]) -> Mapping[str, list[Device]]:
    """Return resource → its devices before any sharing, in order of (GPU index, MIG index)."""
    found: dict[str, list[Device]] = {}
    for gpu in gpus:
        for name, device in _devices(config, gpu):
            found.setdefault(name, []).append(device)
    return found


def _devices(config: ServedConfig, gpu: Gpu) -> Iterator[tuple[str, Device]]:
    if config.mig_strategy == "none" or not gpu.mig_mode:
        yield names.GPU_RESOURCE, Device(gpu.uuid, gpu.uuid, gpu.uuid, gpu.numa_node)
        return
    for mig in sorted(gpu.mig_devices, key=lambda mig: mig.index):
        name = names.GPU_RESOURCE if config.mig_strategy == "single" else resource_of_profile(mig.profile)
        yield name, Device(mig.uuid, mig.uuid, gpu.uuid, gpu.numa_node)


def _replicas(config: ServedConfig) -> Mapping[str, int]:
    """Return resource → shares per device. Of a resource that is listed twice the larger number wins, as NVIDIA's."""
    replicas: dict[str, int] = {}
    for entry in config.shared.resources if config.shared else ():
        name = full_name(entry.name)
        replicas[name] = max(entry.replicas, replicas.get(name, 0))
    return replicas


def _resource(config: ServedConfig, name: str, devices: Sequence[Device]) -> Resource:
    replicas = _replicas(config).get(name)
    if replicas is None:
        return _checked(Resource(name, tuple(devices)))
    renamed = f"{name}{names.SHARED_SUFFIX}" if config.shared and config.shared.rename_by_default else name
    # Before they are made: a replica count with two digits too many would fill the memory.
    shortest_list(renamed, len(devices) * replicas, min(len(device.id) for device in devices))
    shares = tuple(
        Device(share_id(device.base, replica), device.base, device.gpu, device.numa_node)
        for device in devices
        for replica in range(replicas)
    )
    return _checked(Resource(renamed, shares, replicas, mps=config.mps is not None))


def _checked(resource: Resource) -> Resource:
    """Return the resource, or raise for what the kubelet would not take (P7)."""
    if not _NAME.fullmatch(resource.name):
        raise InvalidInput(
            f"{quoted(resource.name)} is no resource name that the kubelet takes",
            hint="at most 63 letters, digits, -, _ and . after the slash, a letter or digit at both ends",
        )
    for device in resource.devices:
        if len(device.id) > ID_MAX:
            raise InvalidInput(
                f"{quoted(device.id)} of {resource.name} has {len(device.id)} characters, ids have at most {ID_MAX}",
                hint="this is no UUID that NVIDIA's driver makes: check the inventory",
            )
    check_size(resource.name, resource.devices)
    return resource
