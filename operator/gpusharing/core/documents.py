"""What kind of document somebody wrote (decision 25), and the config texts that some kinds hold."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpusharing.api import names
from gpusharing.api.problems import Problem

CONFIG_KEY_MAX = 253
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
# Words that only a device-plugin config has; a bare `version: v1` is one too.
_PLUGIN_WORDS = re.compile(
    r"\b(timeSlicing|migStrategy|failRequestsGreaterThanOne|renameByDefault|deviceListStrategy|deviceIDStrategy"
    r"|sharedDevicesAllocationPolicy|failOnInitError|nvidiaDriverRoot)\b|\bsharing[\"']?\s*:"
)
_VERSION = re.compile(r"^[\s{]*[\"']?version[\"']?\s*:\s*[\"']?v1[\"']?,?\s*$", re.MULTILINE)


class Kind(StrEnum):
    """Kinds of documents that `lint` tells apart."""

    CONFIGMAP = "ConfigMap"
    POLICY = names.POLICY_KIND
    LIST = "List"
    OTHER_OBJECT = "another Kubernetes object"
    OPERATOR_VALUES = "values of the GPU operator's chart"
    CHART_VALUES = "values of the device plugin's chart"
    PLUGIN_CONFIG = "a device-plugin config"

    @property
    def is_object(self) -> bool:
        """Whether it is a Kubernetes object, of which a file may hold many."""
        return self in {Kind.CONFIGMAP, Kind.POLICY, Kind.LIST, Kind.OTHER_OBJECT}


def kind_of(data: Any) -> Kind:
    """Return what the document is, by its own words, never by its file's name."""
    if not isinstance(data, Mapping):
        return Kind.PLUGIN_CONFIG
    kind = data.get("kind")
    if isinstance(kind, str):
        if kind.endswith("List") and isinstance(data.get("items"), list):
            return Kind.LIST
        return {"ConfigMap": Kind.CONFIGMAP, names.POLICY_KIND: Kind.POLICY}.get(kind, Kind.OTHER_OBJECT)
    plugin = data.get("devicePlugin")
    if isinstance(plugin, Mapping) and isinstance(plugin.get("config"), Mapping):
        return Kind.OPERATOR_VALUES
    config = data.get("config")
    if isinstance(config, Mapping) and ("map" in config or "name" in config):
        return Kind.CHART_VALUES
    return Kind.PLUGIN_CONFIG


@dataclass(frozen=True, slots=True)
class Embedded:
    """A config inside another document: its name is the key that holds its text."""

    name: str
    path: str
    text: str


def embedded(entries: Any, path: str) -> tuple[list[Embedded], list[Problem]]:
    """Return the configs of a mapping of name → text, and what keeps a name or a text from being used."""
    if entries is None:
        return [], []
    if not isinstance(entries, Mapping):
        return [], [Problem(path, "not a mapping", "it maps the name of each config to its text")]
    configs, problems = [], []
    for name, text in entries.items():
        here = f"{path}.{name}"
        if not _CONFIG_KEY.fullmatch(name) or len(name) > CONFIG_KEY_MAX:
            problems.append(Problem(here, "not a key that a ConfigMap can have", "letters, digits, -, _ and . only"))
        elif len(name) > names.LABEL_VALUE_MAX or not _LABEL_VALUE.fullmatch(name):
            message = f"no node can choose this config: {names.CONFIG_LABEL} cannot have that value"
            hint = "at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit"
            problems.append(Problem(here, message, hint, "warning"))
        if isinstance(text, str):
            configs.append(Embedded(name, here, text))
        else:
            hint = f"write {name}: |- and the config below it, indented"
            problems.append(Problem(here, "not text: a config is text inside its key, so the API server refuses", hint))
    return configs, problems


def looks_like_a_config(text: str) -> bool:
    """Whether the text is meant for the device plugin, as far as its words tell."""
    return bool(_PLUGIN_WORDS.search(text)) or ("mig-configs" not in text and bool(_VERSION.search(text)))
