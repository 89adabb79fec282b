"""Reference pages from what the code declares: the fields of a kind, from its CRD; the controller's settings."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from annotated_types import Ge, Le
from prometheus_client.metrics import MetricWrapperBase
from pydantic.fields import FieldInfo

from gpusharing.controller.settings import Settings
from gpusharing.core.options import NVIDIA, Option
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin import settings as plugin_settings
from gpusharing.observability.metrics import Metrics
from gpusharing.observability.pluginmetrics import PluginMetrics

JsonObject = Mapping[str, Any]
WIDTH = 118
_KUBERNETES_OWN = {"apiVersion", "kind", "metadata"}
_SCOPES = {"Cluster": "cluster-scoped", "Namespaced": "namespaced"}


def kind_page(crd: JsonObject) -> str:
    """Return the page of one kind: every field with type, default, limits and rules."""
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema, short = version["schema"]["openAPIV3Schema"], names["shortNames"][0]
    columns = [(column["name"].upper(), column.get("priority", 0)) for column in version["additionalPrinterColumns"]]
    shown, wide = (", ".join(name for name, at in columns if bool(at) is more) for more in (False, True))
    lines = [
        "<!-- Generated from operator/gpusharing/api by `make generate`. Do not edit. -->",
        f"# {names['kind']}",
        "",
        *_wrapped(schema["description"]),
        "",
        *_wrapped(
            f"API version `{crd['spec']['group']}/{version['name']}`, plural `{names['plural']}`, "
            f"short name `{short}`, category `{names['categories'][0]}`; the kind is {_SCOPES[crd['spec']['scope']]}."
        ),
        "",
        *_wrapped(f"`kubectl get {short}` shows {shown}{f'; with `-o wide` also {wide}' if wide else ''}."),
        "",
        *_wrapped(
            f"`kubectl explain {names['singular']} --recursive` prints these fields in a terminal. A field that is not "
            "listed here does not exist: kubectl refuses it."
        ),
        *_refusals(schema),
    ]
    for path, field, required in _fields(schema, ""):
        lines += ["", f"## `{path}`", "", *_wrapped(_facts(field, required)), "", *_wrapped(field["description"])]
        lines += _refusals(field)
    return "\n".join([*lines, ""])


def _fields(schema: JsonObject, path: str) -> Iterator[tuple[str, JsonObject, bool]]:
    """Yield path and schema of every field below, parents first."""
    for name, field in schema.get("properties", {}).items():
        if not path and name in _KUBERNETES_OWN:
            continue
        here = f"{path}.{name}" if path else name
        yield here, field, name in schema.get("required", [])
        yield from _fields(field, here)
        yield from _fields(field.get("items", {}), f"{here}[]")


def _facts(field: JsonObject, required: bool) -> str:
    """Return type, default and limits in a line."""
    facts = [_type(field), *_limits(field)]
    if required:
        facts.append("required")
    if "default" in field:
        facts.append(f"default `{_plain(field['default'])}`")
    return ", ".join(facts) + "."


def _type(field: JsonObject) -> str:
    if "enum" in field:
        return f"One of {_words(field['enum'])}"
    if field.get("x-kubernetes-int-or-string"):
        return f"`{field['pattern'].strip('^$')}`, or an integer"
    if field["type"] == "array":
        item = field["items"]
        return f"List; each entry is one of {_words(item['enum'])}" if "enum" in item else f"List of {item['type']}s"
    if isinstance(field.get("additionalProperties"), Mapping):
        return f"Map of {field['additionalProperties']['type']}s"
    return "Time (RFC 3339)" if field.get("format") == "date-time" else str(field["type"]).capitalize()


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _limits(field: JsonObject) -> Iterator[str]:
    if field.get("minimum") and field.get("format") != "int32":
        yield f"at least {field['minimum']}"
    if "maximum" in field and field.get("format") != "int32":
        yield f"at most {field['maximum']}"
    if "maxLength" in field:
        yield f"at most {field['maxLength']} characters"
    if "minItems" in field:
        yield "not empty"
    if limit := field.get("maxItems", field.get("maxProperties")):
        yield f"at most {limit} entries"
    match field.get("x-kubernetes-list-type"):
        case "map":
            yield f"each `{field['x-kubernetes-list-map-keys'][0]}` once"
        case "set":
            yield "each once"


def _refusals(field: JsonObject) -> list[str]:
    """Return the sentences with which the API server refuses a value of this field, as a list."""
    rules = [*_rules(field), *_rules(field.get("items", {}))]
    lines = [line for rule in rules for line in _wrapped(rule, "- ")]
    return ["", "The API server refuses it with a sentence:", "", *lines] if lines else []


def _rules(field: JsonObject) -> Iterator[str]:
    """Yield the sentences of the rules at this field."""
    for rule in field.get("x-kubernetes-validations", ()):
        at = rule.get("fieldPath", "").removeprefix(".")
        yield f"`{at}`: {rule['message']}" if at else rule["message"]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _wrapped(text: str, bullet: str = "") -> list[str]:
    """Return the text in lines; `<words>` that Markdown would take for HTML become code."""
    text = re.sub(r"'<\w+>'|[\w./-]*<\w+>(\.\w+)*", r"`\g<0>`", text)
    indent = " " * len(bullet)
    return textwrap.wrap(
        text, WIDTH, initial_indent=bullet, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def settings_page() -> str:
    """Return the page of the controller's settings."""
    rows = [
        f"| `{name.replace('_', '-')}` | {_default(field)} | {_meaning(field)} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(
        [
            "<!-- Generated from operator/gpusharing/controller/settings.py by `make generate`. Do not edit. -->",
            "# Settings of the controller",
            "",
            "`gpusharing controller`, `cleanup` and `remove-stale-resources` read each setting from, first one wins:",
            "",
            "1. the flag `--<name>`, for example `--resync 5m`;",
            "2. the environment variable `GPUSHARING_<NAME>`, for example `GPUSHARING_STATUS_PACE=5s`;",
            "3. the YAML file that `--config FILE` names, for example `resync: 5m`;",
            "4. the default.",
            "",
            "An unknown name or a value that does not fit ends the process with a sentence that says which and why.",
            "Durations are written `90s`, `8m`, `1m30s`, `250ms`, or as a number of seconds.",
            "",
            "| setting | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _default(field: FieldInfo) -> str:
    value = _duration(field.default) if field.annotation is float else str(field.default).strip()
    return f"`{value}`" if value else "empty"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:g}m" if minutes and not rest else f"{seconds:g}s"


def _meaning(field: FieldInfo) -> str:
    text = str(field.description)
    if choices := get_args(field.annotation):
        text += f" One of {_words(choices)}."
    limits = {type(limit): limit for limit in field.metadata}
    if Ge in limits and Le in limits:
        text += f" From {limits[Ge].ge} to {limits[Le].le}."
    return text


def plugin_settings_page() -> str:
    """Return the page of the device plugin's settings: NVIDIA's, which a config may set too, and all others."""
    served, ours = ServedConfig(), plugin_settings.Settings()
    return "\n".join(
        [
            "<!-- Generated from operator/gpusharing/deviceplugin/settings.py by `make generate`. Do not edit. -->",
            "# Settings of the device plugin",
            "",
            *_wrapped(
                "`gpusharing device-plugin` takes the flags and environment variables of NVIDIA's device plugin, and "
                "some of its own. A flag wins over a variable, a variable over the config, and that over the default. "
                "A variable that is set counts even if it equals the default: it hides what the config says, and a "
                "warning names it."
            ),
            "",
            *_wrapped(
                "Booleans are written `--flag`, `--flag=true`, `--flag=false`; in the environment `true`, `1`, "
                "`false`, `0`. Durations are written `90s`, `8m`, `250ms`, or as a number of seconds. An unknown "
                "flag or a value that does not fit ends the process with a sentence."
            ),
            "",
            "## What a config may say too",
            "",
            "| flag | variable | in the config | default | meaning |",
            "|---|---|---|---|---|",
            *(_option_row(option, getattr(served, option.field, ""), [_words([option.path])]) for option in NVIDIA),
            "",
            "## Everything else",
            "",
            "| flag | variable | default | meaning |",
            "|---|---|---|---|",
            *(_option_row(option, getattr(ours, option.field), []) for option in plugin_settings.OURS),
            "",
        ]
    )


def _option_row(option: Option, default: object, more: list[str]) -> str:
    flags = [f"--{flag}" for flag in (*option.flags, *filter(None, [option.negation]))]
    return f"| {' | '.join([_words(flags), _words(option.variables), *more, _shown(default), option.help])} |"


def _shown(default: object) -> str:
    match default:
        case bool():
            return f"`{str(default).lower()}`"
        case tuple():
            return _words(map(str, default)) or "none"
        case float():
            return f"`{_duration(default)}`"
        case _:
            return f"`{default}`" if default else "empty"


def metrics_page() -> str:
    """Return the page of the metrics of controller and device plugin: name, type, labels, meaning."""
    return "\n".join(
        [
            "<!-- Generated from operator/gpusharing/observability by `make generate`. Do not edit. -->",
            "# Metrics",
            "",
            "No label holds the name of a node, a pod or a policy.",
            "",
            "## Controller",
            "",
            "Served on `/metrics` of the address that the setting `listen` names.",
            "",
            *_metrics(Metrics()),
            "",
            "## Device plugin",
            "",
            "Served on `/metrics` of the address that the flag `--http-address` names, by each node for its own GPUs.",
            "",
            *_metrics(PluginMetrics()),
            "",
        ]
    )


def _metrics(declaring: object) -> list[str]:
    rows = []
    for declared in vars(declaring).values():
        if not isinstance(declared, MetricWrapperBase):
            continue
        [metric] = declared.describe()
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = ", ".join(f"`{label}`" for label in declared._labelnames)
        rows.append(f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |")
    return ["| metric | type | labels | meaning |", "|---|---|---|---|", *sorted(rows)]
