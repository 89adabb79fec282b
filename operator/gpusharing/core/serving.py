"""What the in-node plugin serves: one config after command line and environment had their say (contract 2)."""

from dataclasses import dataclass, field

from gpusharing.api.pluginconfig import PluginConfig, ReplicatedResources
from gpusharing.api.sharing import Allocation, DeviceIdStrategy, DeviceListStrategy, MigStrategy


@dataclass(frozen=True, slots=True)
class ServedConfig:
    """A config with every option resolved: flag, then environment, then config, then NVIDIA's default."""

    # the label's value; empty = no config, the plugin's own flags count
    name: str = ""
    config: PluginConfig = field(default_factory=PluginConfig)
    mig_strategy: MigStrategy = "none"
    fail_on_init_error: bool = True
    device_list_strategies: tuple[DeviceListStrategy, ...] = ("envvar",)
    device_id_strategy: DeviceIdStrategy = "uuid"
    pass_device_specs: bool = False
    driver_root: str = "/"
    # prefix of device nodes on the host; empty = the driver root
    dev_root: str = ""
    mps_root: str = ""
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    # on the host
    nvidia_ctk_path: str = "/usr/bin/nvidia-ctk"
    container_driver_root: str = "/driver-root"
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    imex_channels: tuple[int, ...] = ()
    imex_required: bool = False
    allocation: Allocation = field(default_factory=Allocation)

    @property
    def time_slicing(self) -> ReplicatedResources | None:
        """Return the time-slicing section, if that is the active strategy."""
        return self.config.sharing.time_slicing if self.config.sharing and not self.config.sharing.mps else None

    @property
    def mps(self) -> ReplicatedResources | None:
        """Return the MPS section, if that is the active strategy."""
        return self.config.sharing.mps if self.config.sharing else None

    @property
    def shared(self) -> ReplicatedResources | None:
        """Return the section of the active sharing strategy; None = nothing is shared."""
        return self.mps or self.time_slicing
