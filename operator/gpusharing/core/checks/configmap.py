"""A ConfigMap that holds device-plugin configs: one key = one named config.

>>> check({"kind": "ConfigMap", "data": {"any": "version: v1"}})
[]
>>> [str(problem) for problem in check({"kind": "ConfigMap", "data": {"any": {"version": "v1"}}})]
['data.any: not text: a config is text inside its key, so the API server refuses. \
hint: write any: |- and the config below it, indented']
"""

from collections.abc import Mapping
from typing import Any

from gpusharing.api.problems import Problem
from gpusharing.core.documents import Embedded, embedded, looks_like_a_config


def configs(configmap: Mapping[str, Any]) -> list[Embedded]:
    """Return the configs that the ConfigMap holds; none where nothing in it is meant for the plugin."""
    found, _ = embedded(configmap.get("data"), "data")
    return found if any(looks_like_a_config(config.text) for config in found) else []


def check(configmap: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the ConfigMap itself."""
    found, problems = embedded(configmap.get("data"), "data")
    if not found and not problems:
        return [Problem("data", "no config in it", severity="hint")]
    if found and not configs(configmap):
        return [Problem("data", "no key of it looks like a device-plugin config: not looked at", severity="hint")]
    return problems
