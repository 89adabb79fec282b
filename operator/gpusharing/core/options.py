"""Options of the device plugin: how each is spelled on the command line and in the environment, and what it takes.

Below `NVIDIA` stand those of NVIDIA's plugin that a config may set too (contract 2.1), one declaration each; the
in-node plugin's own are in `deviceplugin/settings.py`. An option that is not given leaves the word to the config.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, get_args

from gpusharing.api.problems import nearest
from gpusharing.api.sharing import DeviceIdStrategy, DeviceListStrategy, MigStrategy

Reader = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `read` makes its value of a text, or raises ValueError with the rest of a sentence."""

    # of `ServedConfig` for those below, else of `Settings`
    field: str
    help: str
    read: Reader
    # without dashes, the first one is shown
    flags: tuple[str, ...] = ()
    # the first one that is set counts
    variables: tuple[str, ...] = ()
    # where a config says it
    path: str = ""
    # the flag that says false
    negation: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether the bare flag says true."""
        return self.read is boolean

    @property
    def is_list(self) -> bool:
        """Whether the flag may be repeated."""
        return self.read in (list_strategies, channels)


@dataclass(frozen=True, slots=True)
class Given:
    """A value from the command line or the environment, and which flag or variable says it."""

    value: Any
    by: str


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the environment say of NVIDIA's options, by field; the rest is the config's."""

    given: Mapping[str, Given] = field(default_factory=lambda: MappingProxyType({}))


# --- what options take


def text(value: str) -> str:
    """Take anything."""
    return value


def boolean(value: str) -> bool:
    """Read a boolean as Go does; a variable that is set to nothing is false (urfave/cli)."""
    if value in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if value in {"", "0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError("is not a boolean; write true or false")


def one_of(*words: str) -> Reader:
    """Return the reader of one word of a list."""

    def read(value: str) -> str:
        if value not in words:
            meant = nearest(value, words)
            raise ValueError(f"is not known; did you mean {meant}?" if meant else f"is not one of {', '.join(words)}")
        return value

    return read


_list_strategy = one_of(*get_args(DeviceListStrategy))


def list_strategies(value: str) -> tuple[str, ...]:
    """Read device list strategies, separated by commas."""
    return tuple(_list_strategy(word.strip()) for word in value.split(","))


def channels(value: str) -> tuple[int, ...]:
    """Read IMEX channels, separated by commas: none, or channel 0."""
    words = tuple(word.strip() for word in value.strip("[]").split(",") if word.strip())
    if words not in ((), ("0",)):
        raise ValueError("is refused; only channel 0 is accepted, or none")
    return tuple(map(int, words))


# --- NVIDIA's

DISCOVERY_STRATEGY = "device_discovery_strategy"
ALLOCATION_POLICY = "allocation_policy"

NVIDIA: tuple[Option, ...] = (
    Option(
        "mig_strategy",
        "How MIG devices are advertised: none, single (as nvidia.com/gpu) or mixed (a resource per profile).",
        one_of(*get_args(MigStrategy)),
        ("mig-strategy",),
        ("MIG_STRATEGY",),
        "flags.migStrategy",
    ),
    Option(
        "fail_on_init_error",
        "Whether a node without a working driver is not ready (/readyz 503); else it is ready and serves nothing.",
        boolean,
        ("fail-on-init-error",),
        ("FAIL_ON_INIT_ERROR",),
        "flags.failOnInitError",
    ),
    Option(
        "driver_root",
        "Where the NVIDIA driver is installed on the host.",
        text,
        ("driver-root", "nvidia-driver-root"),
        ("NVIDIA_DRIVER_ROOT",),
        "flags.nvidiaDriverRoot",
    ),
    Option(
        "dev_root",
        "Below which folder of the host the device nodes are; empty = the driver root.",
        text,
        ("dev-root", "nvidia-dev-root"),
        ("NVIDIA_DEV_ROOT",),
        "flags.nvidiaDevRoot",
    ),
    Option("mps_root", "Folder of the MPS daemons on the host.", text, ("mps-root",), ("MPS_ROOT",), "flags.mpsRoot"),
    Option(
        "gdrcopy",
        "Whether containers get NVIDIA_GDRCOPY=enabled.",
        boolean,
        ("gdrcopy-enabled",),
        ("GDRCOPY_ENABLED",),
        "flags.gdrcopyEnabled",
    ),
    Option(
        "gds",
        "Whether containers get NVIDIA_GDS=enabled.",
        boolean,
        ("gds-enabled",),
        ("GDS_ENABLED",),
        "flags.gdsEnabled",
    ),
    Option(
        "mofed",
        "Whether containers get NVIDIA_MOFED=enabled.",
        boolean,
        ("mofed-enabled",),
        ("MOFED_ENABLED",),
        "flags.mofedEnabled",
    ),
    Option(
        DISCOVERY_STRATEGY,
        "auto and nvml are the same here; tegra is refused. Simulated GPUs: --discovery.",
        one_of("auto", "nvml", "tegra"),
        ("device-discovery-strategy",),
        ("DEVICE_DISCOVERY_STRATEGY",),
        "flags.deviceDiscoveryStrategy",
    ),
    Option(
        "pass_device_specs",
        "Whether the device nodes are named to the kubelet, for the CPU manager's sake.",
        boolean,
        ("pass-device-specs",),
        ("PASS_DEVICE_SPECS",),
        "flags.plugin.passDeviceSpecs",
    ),
    Option(
        "device_list_strategies",
        "How containers learn their devices: envvar, volume-mounts, cdi-annotations, cdi-cri; a list, or repeated.",
        list_strategies,
        ("device-list-strategy",),
        ("DEVICE_LIST_STRATEGY",),
        "flags.plugin.deviceListStrategy",
    ),
    Option(
        "device_id_strategy",
        "Whether containers are told uuid or index.",
        one_of(*get_args(DeviceIdStrategy)),
        ("device-id-strategy",),
        ("DEVICE_ID_STRATEGY",),
        "flags.plugin.deviceIDStrategy",
    ),
    Option(
        "cdi_annotation_prefix",
        "Prefix of CDI annotation keys.",
        text,
        ("cdi-annotation-prefix",),
        ("CDI_ANNOTATION_PREFIX",),
        "flags.plugin.cdiAnnotationPrefix",
    ),
    Option(
        "nvidia_ctk_path",
        "Path of nvidia-ctk on the host.",
        text,
        ("nvidia-cdi-hook-path", "nvidia-ctk-path"),
        ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        "flags.plugin.nvidiaCTKPath",
    ),
    Option(
        "container_driver_root",
        "Where the driver root is mounted in this container.",
        text,
        ("driver-root-ctr-path", "container-driver-root"),
        ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        "flags.plugin.containerDriverRoot",
    ),
    Option(
        ALLOCATION_POLICY,
        "How shares are chosen: distributed or packed; wins over gpusharing.allocation.policy of the config.",
        one_of("distributed", "packed"),
        ("shared-devices-allocation-policy",),
        ("SHARED_DEVICES_ALLOCATION_POLICY",),
        "flags.plugin.sharedDevicesAllocationPolicy",
    ),
    Option(
        "imex_channels",
        "IMEX channels that containers get: none, or 0.",
        channels,
        ("imex-channel-ids",),
        ("IMEX_CHANNEL_IDS",),
        "imex.channelIDs",
    ),
    Option(
        "imex_required",
        "Whether an IMEX channel that is not there is an error.",
        boolean,
        ("imex-required",),
        ("IMEX_REQUIRED",),
        "imex.required",
    ),
)
