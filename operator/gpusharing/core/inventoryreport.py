"""The hardware as `GpuNode.status` shows it."""

from gpusharing.api import node
from gpusharing.core.devices import Gpu, MigDevice


def gpu_report(gpu: Gpu, healthy: bool) -> node.Gpu:
    """Return the row of one GPU. MIG devices are shown in MIG mode only."""
    return node.Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        numa_node=gpu.numa_node,
        link_group=gpu.link_group,
        healthy=healthy,
        mig_mode=gpu.mig_mode,
        mig_devices=[_mig_report(device) for device in gpu.mig_devices] if gpu.mig_mode else [],
    )


def _mig_report(device: MigDevice) -> node.MigDevice:
    return node.MigDevice(uuid=device.uuid, profile=device.profile, start=device.start)
