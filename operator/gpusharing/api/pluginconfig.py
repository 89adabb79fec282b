"""The device plugin's config, version v1 (contract, section 1): one key of a ConfigMap, one file.

`load` is strict, for configs that our controller rendered; how NVIDIA reads what people write is in `core/checks`.
The canonical dump holds only what was said, so its hash names the content: a new optional field changes no name.
"""

import hashlib
import json
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field

from gpusharing.api.meta import Model
from gpusharing.api.problems import Problem, parse
from gpusharing.api.sharing import (
    Allocation,
    DeviceIdStrategy,
    DeviceListStrategy,
    MigStrategy,
)

MAX_BYTES = 1024 * 1024


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class PluginSection(Model):
    """`flags.plugin`."""

    pass_device_specs: bool | None = None
    # One string means a list of one (contract 1.1); a union would name each problem twice.
    device_list_strategy: Annotated[list[DeviceListStrategy] | None, BeforeValidator(_listed)] = None
    device_id_strategy: DeviceIdStrategy | None = Field(default=None, alias="deviceIDStrategy")
    cdi_annotation_prefix: str | None = None
    nvidia_ctk_path: str | None = Field(default=None, alias="nvidiaCTKPath")
    container_driver_root: str | None = None
    shared_devices_allocation_policy: Literal["packed", "distributed"] | None = None


class GfdSection(Model):
    """`flags.gfd`: read by GPU Feature Discovery only."""

    oneshot: bool | None = None
    no_timestamp: bool | None = None
    sleep_interval: str | None = None
    output_file: str | None = None
    machine_type_file: str | None = None


class Flags(Model):
    """`flags`: each may also come from the command line or the environment, which hide the file."""

    mig_strategy: MigStrategy | None = None
    fail_on_init_error: bool | None = None
    mps_root: str | None = None
    nvidia_driver_root: str | None = None
    nvidia_dev_root: str | None = None
    gdrcopy_enabled: bool | None = None
    gds_enabled: bool | None = None
    mofed_enabled: bool | None = None
    use_node_feature_api: bool | None = Field(default=None, alias="useNodeFeatureAPI")
    device_discovery_strategy: Literal["auto", "nvml", "tegra"] | None = None
    plugin: PluginSection | None = None
    gfd: GfdSection | None = None


class ReplicatedResource(Model):
    """One entry of `sharing.<strategy>.resources`. `devices` and `rename` are read, then dropped (contract 1.4)."""

    name: str
    replicas: int
    devices: Any = None
    rename: str | None = None


class ReplicatedResources(Model):
    """`sharing.timeSlicing` and `sharing.mps`."""

    rename_by_default: bool | None = None
    fail_requests_greater_than_one: bool | None = None
    resources: list[ReplicatedResource] = Field(min_length=1)


class SharingSection(Model):
    """`sharing`: never both."""

    time_slicing: ReplicatedResources | None = None
    mps: ReplicatedResources | None = None


class ResourcePattern(Model):
    """One naming rule; read, then replaced by the built-in ones (contract 1.4)."""

    pattern: str
    name: str


class ResourcesSection(Model):
    """`resources`: without effect."""

    gpus: list[ResourcePattern] | None = None
    mig: list[ResourcePattern] | None = None


class ImexSection(Model):
    """`imex`."""

    channel_ids: list[int] | None = Field(default=None, alias="channelIDs")
    required: bool | None = None


class GpuSharingSection(Model):
    """Our own key (decision 1): ignored by NVIDIA's plugin, written in layout per-node only."""

    allocation: Allocation


class PluginConfig(Model):
    """One named config."""

    version: Literal["v1"] = "v1"
    flags: Flags | None = None
    resources: ResourcesSection | None = None
    sharing: SharingSection | None = None
    imex: ImexSection | None = None
    gpusharing: GpuSharingSection | None = None

    def canonical(self) -> dict[str, Any]:
        """Return only what was said: no defaults, no empty sections; `version` always."""
        said: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
        return {"version": self.version, **_without_empty(said)}

    def digest(self) -> str:
        """Return the SHA-256 of the canonical dump as JSON with sorted keys, in hex."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_yaml(self) -> str:
        """Return the canonical dump as the text of a ConfigMap key; libyaml writes the same, ten times as fast."""
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        return yaml.dump(self.canonical(), Dumper=dumper, sort_keys=True, default_flow_style=False, width=120)


def _without_empty(node: dict[str, Any]) -> dict[str, Any]:
    pruned = {key: _without_empty(value) if isinstance(value, dict) else value for key, value in node.items()}
    return {key: value for key, value in pruned.items() if value != {}}


class InvalidPluginConfig(ValueError):
    """A config that is not what our controller renders; `problems` says all that is wrong."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class _Loader(yaml.SafeLoader):
    """YAML without aliases: we render none, and a few lines of them expand without end."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse an alias; everything else as usual."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


# PyYAML lets others through: ValueError for the date 2026-99-99, KeyError for `!!bool x`, AttributeError for
# `!!timestamp x`, RecursionError for a thousand brackets.
_UNREADABLE = (yaml.YAMLError, ValueError, KeyError, AttributeError, RecursionError)


def load(text: str) -> PluginConfig:
    """Read a config that our controller rendered. Raises InvalidPluginConfig with everything that is wrong."""
    size = len(text.encode())
    if size > MAX_BYTES:
        raise InvalidPluginConfig([Problem("", f"{size} bytes, more than {MAX_BYTES}")])
    try:
        data = yaml.load(text, _Loader)
    except _UNREADABLE as error:
        raise InvalidPluginConfig([Problem("", f"not valid YAML: {' '.join(str(error).split())}")]) from error
    config, problems = parse(PluginConfig, data)
    if config is None:
        raise InvalidPluginConfig(problems)
    return config
