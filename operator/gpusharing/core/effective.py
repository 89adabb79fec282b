"""What is served of a config: command line, then environment, then config, then default (contract 2, decision 27)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.api.problems import quoted
from gpusharing.api.sharing import Allocation
from gpusharing.core.errors import InvalidInput
from gpusharing.core.options import ALLOCATION_POLICY, DISCOVERY_STRATEGY, NVIDIA, Options
from gpusharing.core.serving import ServedConfig

NOTHING_GIVEN = Options()
_OUR_POLICY = "gpusharing.allocation.policy"


@dataclass(frozen=True, slots=True)
class Hidden:
    """A value of the config that a flag or a variable takes away."""

    path: str
    # the flag or the variable
    by: str
    value: Any
    hidden_value: Any

    def __str__(self) -> str:
        """Return the warning."""
        return f"{self.path}: {quoted(self.hidden_value)} is hidden: {self.by} says {quoted(self.value)}, and that wins"


def serve(
    config: PluginConfig, name: str, given: Options = NOTHING_GIVEN, *, runtime: str = ""
) -> tuple[ServedConfig, tuple[Hidden, ...]]:
    """Return what is served, and every value of the config that is not because something else is given.

    `runtime` is the node's container runtime (`containerd://2.1.4`); empty = not known. Raises InvalidInput for what
    does not go together (contract 1.7), as far as that can be said without the hardware.
    """
    values, hidden = dict[str, Any](), list[Hidden]()
    said = _said(config)
    for option in NVIDIA:
        path, in_config = said[option.field]
        if (stated := given.given.get(option.field)) is None:
            if in_config is not None:
                values[option.field] = in_config
            continue
        values[option.field] = stated.value
        if in_config not in (None, stated.value):
            hidden.append(Hidden(path, stated.by, stated.value, in_config))
    discovery = values.pop(DISCOVERY_STRATEGY, "auto")
    allocation = config.gpusharing.allocation if config.gpusharing else Allocation()
    if policy := values.pop(ALLOCATION_POLICY, None):
        allocation = allocation.model_copy(update={"policy": policy})
    served = ServedConfig(name=name, config=config, allocation=allocation, **values)
    for message, hint in _contradictions(served, discovery, runtime):
        raise InvalidInput(message, hint=hint)
    return served, tuple(hidden)


def _said(config: PluginConfig) -> dict[str, tuple[str, Any]]:
    """Return what the config says of each option: its path and value, by field.

    Of the allocation policy our own key says more than NVIDIA's: it wins, and says nothing of what it leaves out.
    """
    canonical = config.canonical()
    said = {option.field: (option.path, _at(canonical, option.path)) for option in NVIDIA}
    if config.gpusharing and "policy" in config.gpusharing.allocation.model_fields_set:
        said[ALLOCATION_POLICY] = (_OUR_POLICY, config.gpusharing.allocation.policy)
    return said


def _at(canonical: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path; None = nothing is said there."""
    here: Any = canonical
    for key in path.split("."):
        here = here.get(key) if isinstance(here, Mapping) else None
    return tuple(here) if isinstance(here, list) else here


def _contradictions(served: ServedConfig, discovery: str, runtime: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong and a hint, in the order in which it is looked for."""
    if discovery == "tegra":
        yield TEGRA
    sharing = served.config.sharing
    if sharing and sharing.time_slicing and sharing.mps:
        yield "sharing: both timeSlicing and mps", "leave one of them out"
    if served.mps and served.mig_strategy == "mixed":
        yield "MPS with MIG strategy mixed: MPS serves whole GPUs only", "set none, or share by timeSlicing"
    if served.mps and not served.mps_root:
        yield "MPS without flags.mpsRoot", "set it, --mps-root or MPS_ROOT; usually /run/nvidia/mps"
    if served.imex_channels not in ((), (0,)):
        yield f"imex.channelIDs: {list(served.imex_channels)} is refused", "only [] and [0] are accepted"
    by_cdi = [strategy for strategy in served.device_list_strategies if strategy.startswith("cdi-")]
    if by_cdi and not runtime:
        yield (
            f"device list strategy {by_cdi[0]}: the node's container runtime is not known, so neither is whether it "
            "has CDI",
            "let the plugin read its Node, or set CONTAINER_RUNTIME",
        )


TEGRA = (
    "device discovery strategy tegra: GPUs of Tegra are not served",
    "use NVIDIA's own plugin there; else auto, or nvml",
)
