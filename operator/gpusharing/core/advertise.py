"""Inventory + config → how many devices of each resource the kubelet should see (contract, sections 3.1 and 3.4)."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpusharing.api import names
from gpusharing.api.node import Gpu, ResourceReport
from gpusharing.api.pluginconfig import PluginConfig, ReplicatedResources
from gpusharing.core.devices import DISPLAY_MODELS
from gpusharing.core.gfd import GpuLabels


def resource_of_profile(profile: str) -> str:
    """Return the resource of a MIG profile: `1g.5gb+me` → `nvidia.com/mig-1g.5gb.me`."""
    return f"{names.MIG_RESOURCE_PREFIX}{profile.replace('+', '.')}"


def implied(config: PluginConfig, gpus: Iterable[Gpu]) -> dict[str, int]:
    """Return resource → number of ids that the config makes of these GPUs, sick ones included."""
    return _replicated(config, _whole(config, gpus))


def predicted(config: PluginConfig, gpus: Iterable[Gpu], reported: Mapping[str, ResourceReport]) -> dict[str, int]:
    """Return resource → devices that the kubelet should confirm: the implied ids without sick and withheld ones.

    Which GPUs are sick is read from the inventory; single sick shares and withheld ids only the plugin knows.
    """
    gpus = list(gpus)
    everything = implied(config, gpus)
    on_sick_gpus = implied(config, [gpu for gpu in gpus if not gpu.healthy])
    counts = {}
    for name, total in everything.items():
        row = reported.get(name, ResourceReport(name=name))
        # Listed as unhealthy are sick, withheld and retiring ids; one may be sick and withheld at a time.
        absent = max(row.devices - row.healthy - row.retiring, on_sick_gpus.get(name, 0))
        counts[name] = max(0, total - absent)
    return counts


def predicted_from_labels(config: PluginConfig, labels: GpuLabels) -> dict[str, int] | None:
    """Return what the labels of GPU Feature Discovery imply, or None where they do not tell (decision 59)."""
    strategy = (config.flags.mig_strategy if config.flags else None) or "none"
    if labels.invalid or labels.devices == 0 or (strategy != labels.mig_strategy and strategy != "none"):
        return None
    if strategy == "none" and labels.mig_strategy == "single" and labels.mig:
        return None  # the count is still one of MIG devices
    whole = Counter({names.GPU_RESOURCE: labels.devices})
    if strategy == "mixed":
        if any(entry.model for entry in labels.mig):
            return None  # two models: gpu.count speaks of one of them only
        whole = Counter({resource_of_profile(entry.profile): entry.count for entry in labels.mig}) or whole
    return _replicated(config, whole)


def _whole(config: PluginConfig, gpus: Iterable[Gpu]) -> Counter[str]:
    strategy = (config.flags.mig_strategy if config.flags else None) or "none"
    counts: Counter[str] = Counter()
    for gpu in gpus:
        if gpu.model in DISPLAY_MODELS:
            continue
        if strategy == "none" or not gpu.mig_mode:
            counts[names.GPU_RESOURCE] += 1
        elif strategy == "single":
            counts[names.GPU_RESOURCE] += len(gpu.mig_devices)
        else:
            counts.update(resource_of_profile(device.profile) for device in gpu.mig_devices)
    return counts


def _replicated(config: PluginConfig, whole: Mapping[str, int]) -> dict[str, int]:
    shared = _active(config)
    replicas = {resource.name: resource.replicas for resource in shared.resources} if shared else {}
    suffix = names.SHARED_SUFFIX if shared and shared.rename_by_default else ""
    return {
        f"{name}{suffix}" if name in replicas else name: count * replicas.get(name, 1)
        for name, count in sorted(whole.items())
    }


def _active(config: PluginConfig) -> ReplicatedResources | None:
    """Return the strategy that counts; MPS wins, as in the plugin."""
    return (config.sharing.mps or config.sharing.time_slicing) if config.sharing else None
