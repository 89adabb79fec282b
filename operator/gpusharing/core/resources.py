"""The resources that a config makes of a node's hardware: the lists of ids that the kubelet should see."""

from dataclasses import dataclass


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
