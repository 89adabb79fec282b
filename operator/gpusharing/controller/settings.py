"""Settings: flag `--<name>` > environment `GPUSHARING_<NAME>` > file `--config` > default, from one declaration."""

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from gpusharing.api import names
from gpusharing.api.pluginconfig import InvalidPluginConfig, load
from gpusharing.api.problems import nearest
from gpusharing.core.durations import seconds
from gpusharing.core.errors import InvalidInput

Duration = Annotated[float, BeforeValidator(seconds), Field(ge=0)]


class Settings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        env_prefix="GPUSHARING_", extra="forbid", frozen=True, cli_kebab_case=True, cli_hide_none_type=True
    )

    namespace: str = Field(default=names.NAMESPACE, description="Namespace of the Lease and the nodes' records.")
    layout: Literal["per-node", "shared"] = Field(
        default="per-node",
        description="per-node: a ConfigMap per node, for our plugin. shared: one ConfigMap, for NVIDIA's plugin.",
    )
    target_namespace: str = Field(
        default="", description="Layout shared: namespace of the ConfigMap; empty = --namespace."
    )
    target_configmap: str = Field(default=names.SHARED_CONFIGMAP, description="Layout shared: name of the ConfigMap.")
    shared_default: str = Field(
        default="version: v1\n", description="Layout shared: text of the key `default`, for nodes without a label."
    )
    shared_sync_delay: Duration = Field(
        default=120.0, description="Layout shared: how long kubelets may take to see a new key."
    )
    shared_key_retention: Duration = Field(default=600.0, description="Layout shared: how long an unused key is kept.")
    shared_debounce: Duration = Field(default=1.0, description="Layout shared: how long changes are collected.")
    node_selector: str = Field(default="", description="Label selector of the nodes to watch; empty = all.")
    workers_max: int = Field(default=64, ge=1, le=96, description="How many writes may be under way at once.")
    resync: Duration = Field(default=480.0, gt=0, description="How often everything is listed and compared.")
    status_pace: Duration = Field(
        default=2.0, description="At most one status write per policy or placement in this time."
    )
    plugin_gone_after: Duration = Field(
        default=30.0, description="Layout shared: how long 0 allocatable devices are taken for a restart."
    )
    placement: bool = Field(
        default=True, description="Whether GpuPlacements are planned; nodes are then watched in full."
    )
    node_lost_after: Duration = Field(
        default=300.0, description="How long a node may be not ready before its placements' services move."
    )
    stale_after: Duration = Field(
        default=600.0,
        description="remove-stale-resources: for how long a resource must have had 0 devices.",
    )
    lease_duration: Duration = Field(default=15.0, gt=0, description="Others wait this long after our last renewal.")
    lease_deadline: Duration = Field(default=10.0, gt=0, description="We stop when renewing fails for this long.")
    lease_period: Duration = Field(default=2.0, gt=0, description="How often the lease is renewed.")
    request_timeout: Duration = Field(default=30.0, gt=0, description="Deadline of one request.")
    server_timeout: Duration = Field(default=45.0, ge=1, description="How long one watch request lasts.")
    inactivity_timeout: Duration = Field(default=55.0, gt=0, description="When a silent watch is opened anew.")
    watchdog: Duration = Field(default=70.0, gt=0, description="When a watch that does not come back ends the process.")
    listen: str = Field(default=":8080", description="Address of /livez, /readyz and /metrics.")
    log_format: Literal["json", "console"] = Field(default="json", description="How logs are written.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Which logs.")
    kubeconfig: str = Field(default="", description="Kubeconfig file; empty = in a pod its account, else $KUBECONFIG.")
    context: str = Field(default="", description="Context of the kubeconfig; empty = the current one.")

    @field_validator("listen")
    @classmethod
    def _an_address(cls, value: str) -> str:
        if not re.fullmatch(r"[^\s]*:\d{1,5}", value) or int(value.rpartition(":")[2]) > 65535:
            raise ValueError("is not an address; write host:port or :port")
        return value

    @field_validator("shared_default")
    @classmethod
    def _a_config(cls, value: str) -> str:
        try:
            load(value)
        except InvalidPluginConfig as error:
            raise ValueError(f"is not a plugin config: {error}") from error
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        """Refuse times with which two replicas lead at once, or the watchdog ends a process that is well."""
        ascending = (
            ("lease_period", "lease_deadline", "lease_duration"),
            ("server_timeout", "inactivity_timeout", "watchdog"),
        )
        for times in ascending:
            for shorter, longer in pairwise(times):
                if (low := getattr(self, shorter)) >= (high := getattr(self, longer)):
                    raise ValueError(
                        f"setting {shorter.replace('_', '-')}: {low:g} s must be shorter than "
                        f"{longer.replace('_', '-')}, which is {high:g} s"
                    )
        return self

    @property
    def shared_target(self) -> tuple[str, str] | None:
        """Return namespace and name of the shared ConfigMap; None in layout per-node."""
        if self.layout != "shared":
            return None
        return (self.target_namespace or self.namespace, self.target_configmap)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keep init (the file) last and the environment before it; the command line is added in front by the caller."""
        return named["env_settings"], named["init_settings"]


def read_settings(arguments: Sequence[str], *, program: str, what: str) -> Settings:
    """Read all sources. Raises InvalidInput naming the setting, its value and what was expected."""

    class Run(Settings):
        model_config = SettingsConfigDict(cli_prog_name=program)
        config: str = Field(default="", description="YAML file of settings, one `name: value` a line.")

    Run.__doc__ = what
    flags = [argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--")]
    _refuse_unknown(flags, known=[*Run.model_fields, "help"], where="command line")
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(
            Run, cli_parse_args=list(arguments), cli_exit_on_error=False, cli_kebab_case=True, cli_hide_none_type=True
        )
        file = source.env_vars.get("config") or os.environ.get("GPUSHARING_CONFIG")
        given = _read_file(file) if file else {}
        return Run(_cli_settings_source=source, **given)
    except ValidationError as error:
        raise _explained(error) from error
    except SettingsError as error:
        raise InvalidInput(f"{error}", hint="`--help` lists all settings") from error


def _refuse_unknown(given: Iterable[str], *, known: Iterable[str], where: str) -> None:
    words = sorted(name.replace("_", "-") for name in known)
    for name in given:
        if name.replace("_", "-") not in words:
            meant = nearest(name, words)
            hint = f"did you mean {meant}?" if meant else "`--help` lists all settings"
            raise InvalidInput(f"{where}: unknown setting {name!r}", hint=hint)


def _explained(error: ValidationError) -> InvalidInput:
    finding = error.errors(include_url=False)[0]
    message = finding["msg"].removeprefix("Value error, ")
    if not finding["loc"]:
        return InvalidInput(message, hint="`--help` lists all settings and their defaults")
    name = str(finding["loc"][0]).replace("_", "-")
    return InvalidInput(
        f"setting {name}: {finding['input']!r} {message}",
        hint=f"it comes from --{name}, GPUSHARING_{name.upper().replace('-', '_')} or the file of --config",
    )


def _read_file(path: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(Path(path).read_text()) or {}
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}", hint="--config names a YAML file of settings") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(f"{path}: {' '.join(str(error).split())}", hint="it must be a YAML mapping") from error
    if not isinstance(data, dict):
        raise InvalidInput(f"{path}: not a mapping", hint="write one `name: value` a line")
    _refuse_unknown(map(str, data), known=Settings.model_fields, where=path)
    return {str(key).replace("-", "_"): value for key, value in data.items()}
