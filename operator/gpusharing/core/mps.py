"""MPS: what it cannot do on this hardware (contract 1.7, 11)."""

from collections.abc import Sequence

from gpusharing.core.devices import Gpu
from gpusharing.core.errors import InvalidInput
from gpusharing.core.serving import ServedConfig

# Replicas that NVIDIA's daemon allows per GPU, from compute capability 7.5 on and before: V100 (7.0) gets 16.
MAX_REPLICAS, MAX_REPLICAS_BEFORE_TURING = 48, 16
_TURING = (7, 5)


def refuse_mps(config: ServedConfig, gpus: Sequence[Gpu]) -> None:
    """Raise InvalidInput where MPS cannot share these GPUs: NVIDIA's plugin or its daemon exits."""
    if config.mps is None:
        return
    if config.mig_strategy == "mixed":
        raise InvalidInput(
            "sharing.mps with migStrategy: mixed: MPS serves whole GPUs only",
            hint="share by sharing.timeSlicing, or set migStrategy: none",
        )
    if not config.mps_root:
        raise InvalidInput(
            "sharing.mps without an mpsRoot: the plugin finds the daemon's pipe below it",
            hint="set --mps-root or MPS_ROOT, usually /run/nvidia/mps",
        )
    _refuse_gpus(config, gpus)


def max_replicas(gpu: Gpu) -> int:
    """Return how many shares MPS can make of the GPU; of one whose capability is not known, what newer ones take."""
    known_older = (0, 0) < gpu.compute_capability < _TURING
    return MAX_REPLICAS_BEFORE_TURING if known_older else MAX_REPLICAS


def _refuse_gpus(config: ServedConfig, gpus: Sequence[Gpu]) -> None:
    replicas = max((entry.replicas for entry in config.mps.resources), default=1) if config.mps else 1
    for gpu in gpus:
        if config.mig_strategy == "single" and gpu.mig_mode:
            raise InvalidInput(
                f"sharing.mps with migStrategy: single, but GPU {gpu.index} is in MIG mode: MPS serves whole GPUs only",
                hint="share by sharing.timeSlicing, or disable MIG on the node",
            )
        if replicas > max_replicas(gpu):
            raise InvalidInput(
                f"sharing.mps: {replicas} replicas, but MPS allows at most {max_replicas(gpu)} on GPU {gpu.index} "
                f"({gpu.model}, compute capability {gpu.compute_capability[0]}.{gpu.compute_capability[1]})",
                hint=f"set replicas to {max_replicas(gpu)} or fewer",
            )
