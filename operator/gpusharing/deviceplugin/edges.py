"""What the plugin sees of GPUs, host and kubelet: the seams at which tests put doubles."""

from collections.abc import Mapping
from typing import Protocol

from gpusharing.core.devices import Inventory
from gpusharing.core.host import HostFacts
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.registration import RegistrationStatus


class Hardware(Protocol):
    """What is known of the GPUs."""

    @property
    def inventory(self) -> Inventory | None:
        """Return what the node has, as it was last seen; None = it was never seen."""

    @property
    def problem(self) -> str:
        """Return why the GPUs cannot be seen now; empty = they can."""

    @property
    def sick(self) -> Mapping[str, str]:
        """Return UUID or single id → why it is sick."""


class Host(Protocol):
    """What is known of the host beside its GPUs."""

    def nodes(self, config: ServedConfig) -> frozenset[str]:
        """Return which of the device nodes are there that are handed over only if they exist. Cheap."""

    async def facts(self, config: ServedConfig, inventory: Inventory, runtime: str) -> HostFacts:
        """Look, and write the CDI specs that the config needs. Raises InvalidInput if the config cannot be served.

        `runtime` is the container runtime as the Node says it; empty = not known. May take many seconds.
        """

    def mps_ready(self, config: ServedConfig, resource: str) -> bool:
        """Return whether the MPS daemon of the resource runs with this config."""


class Server(Protocol):
    """What serves one resource to the kubelet."""

    @property
    def status(self) -> RegistrationStatus:
        """Return how it stands with the kubelet."""

    def start(self) -> None:
        """Serve and register."""

    def changed(self) -> None:
        """Send the list again if it differs."""

    async def stop(self) -> None:
        """End for good."""
