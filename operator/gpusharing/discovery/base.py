"""How the plugin sees the hardware, whatever is behind it: NVML in a worker process, or a simulated inventory."""

from collections.abc import AsyncIterator, Mapping
from typing import Literal, Protocol

from gpusharing.api.reasons import Reason
from gpusharing.core.devices import Inventory
from gpusharing.core.errors import GpuSharingError
from gpusharing.core.health import GpuEvent, Probe

Kind = Literal["absent", "hung", "failed"]


class DiscoveryError(GpuSharingError):
    """The hardware cannot be seen: there is no driver, it does not answer in time, or it answers with an error."""

    reason = Reason.NVML_UNAVAILABLE
    retry = True

    def __init__(self, message: str, *, kind: Kind, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class DeviceDiscovery(Protocol):
    """What the plugin asks. Calls may be made at any time and in any order; each ends within its deadline."""

    async def inventory(self) -> Inventory:
        """Return what the node has. A GPU that is lost stays in it as it was last seen. Raises DiscoveryError."""

    async def probe(self) -> Mapping[str, Probe]:
        """Ask every GPU whether it is there; keys are UUIDs. Cheap. Raises DiscoveryError if none can be asked."""

    async def computing(self) -> frozenset[str]:
        """Return the UUIDs of GPUs that processes compute on, as far as it can be seen. Raises DiscoveryError."""

    def events(self) -> AsyncIterator[GpuEvent]:
        """Yield XIDs as they come, equal ones that come together only once. Never raises; for one reader."""

    async def close(self) -> None:
        """Let go of everything; the events end."""
