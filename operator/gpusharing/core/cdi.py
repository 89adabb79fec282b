"""CDI specs for simulated GPUs: device nodes only (decision 40). With NVML, `nvidia-ctk` writes them."""

from collections.abc import Iterator, Sequence
from typing import Any

from gpusharing.core.devices import Inventory
from gpusharing.core.edits import CDI_VENDOR, Granted, host_path
from gpusharing.core.host import CONTROL_NODES, HostFacts, device_nodes, imex_channels, imex_node
from gpusharing.core.resources import served_gpus
from gpusharing.core.serving import ServedConfig

# The first version in which a device node may lie elsewhere on the host.
_CDI_VERSION = "0.5.0"


def simulated_specs(config: ServedConfig, inventory: Inventory, host: HostFacts) -> dict[str, dict[str, Any]]:
    """Return class → CDI spec, a JSON file each; a class without devices has none.

    Names follow `deviceIDStrategy`. MIG devices are named under every strategy: containers of an older config start
    again by the names they were given. Raises InvalidInput for one that is served without capability nodes.
    """
    gpus = [
        _device(config, one.name(config), device_nodes(one.gpu, one.mig, host)) for one in _all(config, inventory, host)
    ]
    channels = [_device(config, str(channel), [imex_node(channel)]) for channel in imex_channels(config, host)]
    control = [node for node in CONTROL_NODES if node in host.nodes]
    specs = {"gpu": _spec(config, "gpu", gpus, control), "imex-channel": _spec(config, "imex-channel", channels, [])}
    return {kind: spec for kind, spec in specs.items() if spec["devices"]}


def _all(config: ServedConfig, inventory: Inventory, host: HostFacts) -> Iterator[Granted]:
    for gpu in served_gpus(inventory):
        yield Granted(gpu)
        for mig in gpu.mig_devices if gpu.mig_mode else ():
            if config.mig_strategy != "none" or (gpu.minor, mig.gi, mig.ci) in host.mig_minors:
                yield Granted(gpu, mig)


def _spec(config: ServedConfig, kind: str, devices: list[dict[str, Any]], common: Sequence[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"cdiVersion": _CDI_VERSION, "kind": f"{CDI_VENDOR}/{kind}", "devices": devices}
    return spec | ({"containerEdits": _edits(config, common)} if common else {})


def _device(config: ServedConfig, name: str, nodes: Sequence[str]) -> dict[str, Any]:
    return {"name": name, "containerEdits": _edits(config, nodes)}


def _edits(config: ServedConfig, nodes: Sequence[str]) -> dict[str, Any]:
    return {"deviceNodes": [{"path": node, "hostPath": host_path(config, node), "permissions": "rw"} for node in nodes]}
