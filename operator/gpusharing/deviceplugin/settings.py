"""Settings of `gpusharing device-plugin`: NVIDIA's flags and variables (contract 2.1) and our own (decision 44).

Flag over environment over default, one declaration each: NVIDIA's options that a config may set too stand in
`core/options.py`, everything else is a field below. Own reading instead of pydantic-settings: that alone would cost
4 MiB of the plugin's 70 (decision 33), and it has no word for "not given", which is what a config needs.
"""

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gpusharing.api import names
from gpusharing.api.problems import nearest, quoted
from gpusharing.core.durations import seconds
from gpusharing.core.effective import TEGRA
from gpusharing.core.errors import InvalidInput
from gpusharing.core.options import DISCOVERY_STRATEGY, NVIDIA, Given, Option, Options, Reader, boolean, one_of, text
from gpusharing.core.serving import ServedConfig

PROGRAM = "gpusharing device-plugin"
_ADDRESS = re.compile(r"[^\s]*:(\d{1,5})")
_NAMESPACE_AND_NAME = re.compile(r"[a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9.]*")


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


def _address(value: str) -> str:
    found = _ADDRESS.fullmatch(value)
    if not found or int(found[1]) > 65535:
        raise ValueError("is not an address; write host:port or :port")
    return value


def _namespace_and_name(value: str) -> str:
    if value and not _NAMESPACE_AND_NAME.fullmatch(value):
        raise ValueError("does not name a ConfigMap; write namespace/name")
    return value


def _some_time(value: str) -> float:
    time = seconds(value)
    if not time:
        raise ValueError("must be longer than nothing")
    return time


def _option(
    default: Any, help_: str, flag: str, *more: str, read: Reader = text, env: Iterable[str] = (), negation: str = ""
) -> Any:
    """Declare a setting; `env` are its variables, without any it has one named after the flag."""
    flags = (flag, *more) if flag else ()
    variables = tuple(env) or (f"GPUSHARING_{flag.upper().replace('-', '_')}",)
    option = Option("", help_, read, flags, variables, negation=negation)
    return field(default=default, metadata={"option": option})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Durations are seconds."""

    # What is said of NVIDIA's options that a config may set too.
    given: Options = field(default_factory=Options)

    # --- NVIDIA's that have no key in a config
    config_file: str = _option(
        "",
        "A config file, read anew when it changes and on SIGHUP; then no label, ConfigMap or placement counts.",
        "config-file",
        env=["CONFIG_FILE"],
    )
    kubelet_socket: str = _option(
        "/var/lib/kubelet/device-plugins/kubelet.sock",
        "The kubelet's registration socket; empty = never register.",
        "kubelet-socket",
        env=["KUBELET_SOCKET"],
    )
    cdi_feature_flags: tuple[str, ...] = _option(
        (), "Passed to nvidia-ctk, separated by commas.", "cdi-feature-flags", read=_words, env=["CDI_FEATURE_FLAGS"]
    )
    cdi_disable_hooks: tuple[str, ...] = _option(
        (),
        "CDI hooks to leave out, separated by commas; or all.",
        "cdi-disable-hooks",
        read=_words,
        env=["CDI_DISABLE_HOOKS"],
    )
    disable_healthchecks: str = _option(
        "", "XIDs to ignore, separated by commas; all or xids = no health checks.", "", env=["DP_DISABLE_HEALTHCHECKS"]
    )
    enable_healthchecks: str = _option(
        "", "XIDs to mind although they are ignored otherwise; or all.", "", env=["DP_ENABLE_HEALTHCHECKS"]
    )

    # --- where configs come from
    node_name: str = _option(
        "",
        "This node; from the downward API's spec.nodeName. Needed without --config-file.",
        "node-name",
        env=["NODE_NAME"],
    )
    node_label: str = _option(
        names.CONFIG_LABEL, "The node label that names the config.", "node-label", env=["NODE_LABEL"]
    )
    config_map: str = _option(
        "",
        "A hand-written ConfigMap with a config per key, as namespace/name; empty = what our controller assigned.",
        "config-map",
        read=_namespace_and_name,
        env=["CONFIG_MAP"],
    )
    namespace: str = _option(names.NAMESPACE, "The controller's namespace, where the nodes' records are.", "namespace")
    kubeconfig: str = _option("", "Kubeconfig file; empty = in a pod its account, else $KUBECONFIG.", "kubeconfig")
    context: str = _option("", "Context of the kubeconfig; empty = the current one.", "context")

    # --- the node
    discovery: Literal["nvml", "simulated"] = _option(
        "nvml",
        "How GPUs are found: nvml, or simulated from --inventory.",
        "discovery",
        read=one_of("nvml", "simulated"),
    )
    inventory: str = _option(
        "", "Simulated GPUs: a YAML file, or a folder of <node>.yaml with default.yaml.", "inventory"
    )
    pod_resources_socket: str = _option(
        "/var/lib/kubelet/pod-resources/kubelet.sock", "Where the kubelet says who holds what.", "pod-resources-socket"
    )
    container_runtime: str = _option(
        "",
        "The container runtime, for CDI, such as containerd://2.1.4; empty = what the Node says.",
        "container-runtime",
        env=["CONTAINER_RUNTIME"],
    )
    state_dir: str = _option(
        "/var/lib/gpu-sharing", "Folder for the checkpoint and the ledger of reservations, on the host.", "state-dir"
    )
    mps_control_binary: str = _option(
        "nvidia-cuda-mps-control", "The MPS control program; a name is looked for in PATH.", "mps-control-binary"
    )

    # --- what is said to others
    http_address: str = _option(":9402", "Address of /livez, /readyz and /metrics.", "http-address", read=_address)
    report: bool = _option(
        True,
        "Whether GpuNode and the node's condition are written; without a node name they never are.",
        "report",
        read=boolean,
        negation="no-report",
    )
    remove_stale_names: bool = _option(
        False,
        "Whether names of placements without devices are taken from the Node after 10 min.",
        "remove-stale-names",
        read=boolean,
    )
    log_format: Literal["json", "console"] = _option(
        "json", "How logs are written: json or console.", "log-format", read=one_of("json", "console")
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = _option(
        "INFO",
        "Which logs: DEBUG, INFO, WARNING or ERROR.",
        "log-level",
        read=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    )

    # --- how long
    config_poll: float = _option(1.0, "How often the config file is looked at.", "config-poll", read=_some_time)
    change_spacing: float = _option(
        30.0, "A change of config sooner than this after the last one waits.", "change-spacing", read=seconds
    )
    first_request_within: float = _option(
        5.0,
        "With a checkpoint the API server is first asked at some moment of this time.",
        "first-request-within",
        read=seconds,
    )
    report_spacing: float = _option(
        2.0, "The shortest time between two writes of the report.", "report-spacing", read=_some_time
    )
    occupancy_spacing: float = _option(
        15.0,
        "The same where nothing but who holds what has changed; with up to a fifth more.",
        "occupancy-spacing",
        read=_some_time,
    )
    request_timeout: float = _option(
        30.0, "Deadline of one request to the API server.", "request-timeout", read=_some_time
    )
    retry_max: float = _option(
        30.0, "The longest pause before the API server is tried again.", "retry-max", read=_some_time
    )

    @property
    def reports(self) -> bool:
        """Whether `GpuNode` and the node's condition are written."""
        return self.report and bool(self.node_name)


OURS: tuple[Option, ...] = tuple(
    Option(each.name, option.help, option.read, option.flags, option.variables, negation=option.negation)
    for each in fields(Settings)
    if (option := each.metadata.get("option")) is not None
)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Settings:
    """Read command line and environment; `--help` prints all and exits. Raises InvalidInput with a sentence."""
    variables = os.environ if environment is None else environment
    flags = _flags(arguments)
    stated = {option.field: value for option in (*NVIDIA, *OURS) if (value := _value(option, flags, variables))}
    ours = {option.field: stated[option.field].value for option in OURS if option.field in stated}
    given = Options({option.field: stated[option.field] for option in NVIDIA if option.field in stated})
    settings = Settings(given=given, **ours)
    for message, hint in _contradictions(settings):
        raise InvalidInput(message, hint=hint)
    return settings


def refuse_platform(root: Path = Path("/")) -> None:
    """Raise InvalidInput on Tegra and WSL, whose GPUs this plugin cannot serve (decision 44)."""
    family = root / "sys/devices/soc0/family"
    if (root / "etc/nv_tegra_release").exists() or (family.is_file() and "tegra" in family.read_text().lower()):
        raise InvalidInput("this machine is a Tegra, whose GPUs are not served", hint="use NVIDIA's own plugin there")
    if (root / "dev/dxg").exists():
        raise InvalidInput("this machine is WSL, whose GPUs are not served", hint="use NVIDIA's own plugin there")


# --- command line and environment


def _by_flag() -> dict[str, tuple[Option, bool]]:
    """Return flag → its option, and whether it says false."""
    options = (*NVIDIA, *OURS)
    spelled = {flag: (option, False) for option in options for flag in option.flags}
    return spelled | {option.negation: (option, True) for option in options if option.negation}


def _flags(arguments: Sequence[str]) -> dict[str, Given]:
    """Return field → what the command line says, as text; of a repeated flag the last one, of a list all."""
    known, found = _by_flag(), dict[str, Given]()
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument in {"-h", "--help"}:
            sys.stdout.write(_help())
            raise SystemExit(0)
        name, assigned, value = argument.removeprefix("-").removeprefix("-").partition("=")
        if not argument.startswith("-") or name not in known:
            raise _unknown(argument, name, known)
        option, negated = known[name]
        if negated and assigned:
            raise InvalidInput(f"--{name} takes no value", hint=f"write --{name}, or --{option.flags[0]}={value}")
        if option.is_switch and not assigned:
            value = "false" if negated else "true"
        elif not assigned:
            if not rest:
                raise InvalidInput(f"--{name}: its value is missing", hint=f"write --{name}=VALUE")
            value = rest.pop(0)
        before = found.get(option.field)
        found[option.field] = Given(f"{before.value},{value}" if before and option.is_list else value, f"--{name}")
    return found


def _unknown(argument: str, name: str, known: Mapping[str, object]) -> InvalidInput:
    if not argument.startswith("-"):
        return InvalidInput(
            f"unexpected argument {quoted(argument)}", hint="every setting is a flag: `--help` lists them"
        )
    meant = nearest(name, sorted(known))
    hint = f"did you mean --{meant}?" if meant else "`--help` lists all settings"
    return InvalidInput(f"unknown flag {quoted(argument.partition('=')[0])}", hint=hint)


def _value(option: Option, flags: Mapping[str, Given], variables: Mapping[str, str]) -> Given | None:
    """Return an option's value; None = nobody says anything. Raises InvalidInput for what it does not take.

    A variable that is there counts, and hides the config, even if it is empty (contract 2). One of our own that is
    empty where nothing could be meant by that counts as not there.
    """
    raw = flags.get(option.field)
    if raw is None:
        name = next((name for name in option.variables if name in variables), None)
        if name is None or (not variables[name] and not option.path and option.read is not text):
            return None
        raw = Given(variables[name], name)
    try:
        return Given(option.read(raw.value), raw.by)
    except ValueError as error:
        raise InvalidInput(f"{raw.by}: {quoted(raw.value)} {error}", hint=option.help) from error


def _contradictions(settings: Settings) -> Iterable[tuple[str, str]]:
    strategy = settings.given.given.get(DISCOVERY_STRATEGY)
    if strategy and strategy.value == "tegra":
        yield TEGRA
    if settings.config_file and settings.config_map:
        yield "both --config-file and --config-map", "with a config file no ConfigMap counts: leave one of them out"
    if not settings.config_file and not settings.node_name:
        yield "no node name", "set NODE_NAME from the downward API's spec.nodeName, or --config-file"
    if settings.discovery == "simulated" and not settings.inventory:
        yield "--discovery=simulated without --inventory", "name a file, or a folder of <node>.yaml"
    if settings.discovery != "simulated" and settings.inventory:
        yield "--inventory without --discovery=simulated", "GPUs are found by NVML: leave the inventory out"


# --- help


def _help() -> str:
    served, ours = ServedConfig(), Settings()
    defaults = {option.field: getattr(served, option.field, "") for option in NVIDIA}
    defaults |= {DISCOVERY_STRATEGY: "auto", "allocation_policy": served.allocation.policy}
    defaults |= {option.field: getattr(ours, option.field) for option in OURS}
    sections = (
        ("A config may say these too; a flag or variable hides what it says", NVIDIA),
        ("Everything else", OURS),
    )
    return f"usage: {PROGRAM} [--FLAG[=VALUE] ...]\n" + "".join(
        f"\n{title}:\n\n{''.join(_described(option, defaults[option.field]) for option in options)}"
        for title, options in sections
    )


def _described(option: Option, default: Any) -> str:
    words = [f"--{flag}" for flag in option.flags] + ([f"--{option.negation}"] if option.negation else [])
    spelled = ", ".join([*words, *option.variables])
    about = textwrap.wrap(f"{option.help} (default: {_shown(default)})", 100, break_on_hyphens=False)
    return f"  {spelled}\n" + "".join(f"      {line}\n" for line in about)


def _shown(default: Any) -> str:
    match default:
        case bool():
            return str(default).lower()
        case tuple():
            return ",".join(map(str, default)) or "empty"
        case float():
            return f"{default:g}s"
        case _:
            return default or "empty"
