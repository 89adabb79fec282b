"""Whether a config may be served on this node: its text, then the hardware, then the host (decisions 36 to 38)."""

from dataclasses import dataclass

from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.core.configtext import read_foreign, read_rendered
from gpusharing.core.devices import Inventory
from gpusharing.core.effective import Hidden, serve
from gpusharing.core.listing import Listing, check_fit
from gpusharing.core.options import Options
from gpusharing.core.resources import Resource, resources_of, unknown_resources
from gpusharing.core.serving import ServedConfig


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A config as it was found."""

    # the label's value; empty = no config, flags and environment alone count
    name: str = ""
    # None = there is none, and none is needed
    text: str | None = None
    # by our controller
    rendered: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A config that can be read, and what there is to say about it."""

    source: ConfigText
    served: ServedConfig
    hidden: tuple[Hidden, ...] = ()
    unknown_keys: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def accept(source: ConfigText, options: Options, runtime: str) -> Accepted:
    """Return what the text says. Raises InvalidInput, one sentence, for what is refused whatever the hardware is."""
    if source.text is None:
        served, hidden = serve(PluginConfig(), source.name, options, runtime=runtime)
        return Accepted(source, served, hidden)
    if source.rendered:
        served, hidden = serve(read_rendered(source.text), source.name, options, runtime=runtime)
        return Accepted(source, served, hidden)
    mig_strategy = options.given.get("mig_strategy")
    foreign = read_foreign(source.text, mig_strategy.value if mig_strategy else "")
    served, hidden = serve(foreign.config, source.name, options, runtime=runtime)
    return Accepted(source, served, hidden, foreign.unknown_keys, foreign.remarks)


@dataclass(frozen=True, slots=True)
class Fitted:
    """An accepted config and what it makes of the node's hardware."""

    accepted: Accepted
    resources: tuple[Resource, ...]
    # names under `sharing` that no device has
    unknown_resources: tuple[str, ...] = ()

    @property
    def served(self) -> ServedConfig:
        """Return the config with every option resolved."""
        return self.accepted.served


def fit(accepted: Accepted, inventory: Inventory, listing: Listing) -> Fitted:
    """Return what the config makes of the hardware. Raises InvalidInput where that cannot be served.

    With the ids of `listing`, which would then retire, each list must be short enough for the kubelet.
    """
    resources = resources_of(accepted.served, inventory)
    check_fit(listing, resources)
    return Fitted(accepted, resources, unknown_resources(accepted.served, inventory))
