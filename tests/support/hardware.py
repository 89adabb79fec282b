"""Hardware and served configs as tests need them: `make_hardware(4).mig(1, "1g.10gb", "1g.10gb").build()`.

A builder is a value: every method returns a new one. UUIDs have the length of real ones and say what they are.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.api.sharing import Allocation, DeviceListStrategy
from gpusharing.core.devices import Gpu, Inventory, MigDevice
from gpusharing.core.serving import ServedConfig

MODEL = "NVIDIA A100-SXM4-80GB"


def gpu_uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def mig_uuid(gpu: int, index: int) -> str:
    return f"MIG-{gpu:08x}-0000-0000-0000-{index:012x}"


@dataclass(frozen=True)
class HardwareBuilder:
    """GPUs of one model; minors differ from indices, NUMA nodes are two GPUs each."""

    gpus: tuple[Gpu, ...]

    def mig(self, gpu: int, *profiles: str, uuids: tuple[str, ...] = ()) -> Self:
        """Put a GPU into MIG mode, with one device for each profile; slots have gaps, as NVML's may."""
        devices = tuple(
            _mig_device(uuids[n] if uuids else mig_uuid(gpu, n), n, profile) for n, profile in enumerate(profiles)
        )
        return self.change(gpu, mig_mode=True, mig_devices=devices)

    def change(self, gpu: int, **fields: Any) -> Self:
        changed = (replace(one, **fields) if one.index == gpu else one for one in self.gpus)
        return replace(self, gpus=tuple(changed))

    def without(self, *indices: int) -> Self:
        return replace(self, gpus=tuple(gpu for gpu in self.gpus if gpu.index not in indices))

    def build(self) -> Inventory:
        return Inventory(self.gpus, driver_version="580.95.05")


def make_hardware(count: int) -> HardwareBuilder:
    """So many GPUs."""
    return HardwareBuilder(
        tuple(
            Gpu(
                index=index,
                uuid=gpu_uuid(index),
                model=MODEL,
                minor=10 + index,
                memory_mib=81920,
                numa_node=index // 2,
                compute_capability=(8, 0),
            )
            for index in range(count)
        )
    )


def _mig_device(uuid: str, n: int, profile: str) -> MigDevice:
    parts = profile.partition("gb")[0].split(".")
    compute = int(parts[0].removesuffix("c")) if parts[0].endswith("c") else int(parts[0].removesuffix("g"))
    size = next(int(part.removesuffix("g")) for part in parts if part.endswith("g"))
    return MigDevice(uuid, 2 * n, profile, gi=n + 1, ci=0, compute_slices=compute, gpu_slices=size)


@dataclass(frozen=True)
class ConfigBuilder:
    """A served config; nothing is shared until said so."""

    content: dict[str, Any]
    fields: dict[str, Any]

    def mig(self, strategy: str) -> Self:
        content = {**self.content, "flags": {"migStrategy": strategy}}
        return replace(self, content=content, fields={**self.fields, "mig_strategy": strategy})

    def shared(self, replicas: int | dict[str, int], strategy: str = "timeSlicing", **fields: Any) -> Self:
        """Share nvidia.com/gpu, or the resources of the mapping."""
        each = replicas if isinstance(replicas, dict) else {"nvidia.com/gpu": replicas}
        section = {"resources": [{"name": name, "replicas": count} for name, count in each.items()], **fields}
        return replace(self, content={**self.content, "sharing": {strategy: section}})

    def mps(self, replicas: int, **fields: Any) -> Self:
        return self.shared(replicas, "mps", **fields).set(mps_root="/run/nvidia/mps")

    def lists(self, *strategies: DeviceListStrategy) -> Self:
        return self.set(device_list_strategies=strategies)

    def allocation(self, **fields: Any) -> Self:
        return self.set(allocation=Allocation(**fields))

    def set(self, **fields: Any) -> Self:
        return replace(self, fields={**self.fields, **fields})

    def build(self) -> ServedConfig:
        return ServedConfig(config=PluginConfig.model_validate(self.content), **self.fields)


def make_config(name: str = "") -> ConfigBuilder:
    """A config of that name."""
    return ConfigBuilder({}, {"name": name})
