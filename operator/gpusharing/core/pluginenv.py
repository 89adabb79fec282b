"""The plugin's environment: each variable hides a key of the config file (contract, section 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Key of the config below `flags` → the variable that hides it.
VARIABLES = {
    "migStrategy": "MIG_STRATEGY",
    "failOnInitError": "FAIL_ON_INIT_ERROR",
    "mpsRoot": "MPS_ROOT",
    "nvidiaDriverRoot": "NVIDIA_DRIVER_ROOT",
    "nvidiaDevRoot": "NVIDIA_DEV_ROOT",
    "gdrcopyEnabled": "GDRCOPY_ENABLED",
    "gdsEnabled": "GDS_ENABLED",
    "mofedEnabled": "MOFED_ENABLED",
    "deviceDiscoveryStrategy": "DEVICE_DISCOVERY_STRATEGY",
    "plugin.passDeviceSpecs": "PASS_DEVICE_SPECS",
    "plugin.deviceListStrategy": "DEVICE_LIST_STRATEGY",
    "plugin.deviceIDStrategy": "DEVICE_ID_STRATEGY",
}


@dataclass(frozen=True, slots=True)
class Environment:
    """What a deployment sets. A value of None is set to something that we do not know."""

    values: Mapping[str, Any]
    by: str
