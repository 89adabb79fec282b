"""The one ConfigMap of layout `shared`, which NVIDIA's plugin mounts (decision 15).

Its readers see a change only after the kubelet's sync, hence two clocks: a label moves `sync_delay` after its key was
written, a key goes `retention` after its last reference. Both instants stand in annotations, so that a restart
neither waits anew nor deletes early.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gpusharing.api import names
from gpusharing.api.meta import rfc3339


@dataclass(frozen=True, slots=True)
class SharedConfig:
    """The shared ConfigMap as it stands in the cluster."""

    data: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, datetime] = field(default_factory=dict)
    unreferenced: Mapping[str, datetime] = field(default_factory=dict)
    exists: bool = field(default=False, compare=False)
    ours: bool = field(default=True, compare=False)

    def visible_in(self, key: str, now: datetime, sync_delay: timedelta) -> timedelta | None:
        """Return how long until every reader has the key; None = it is not even written."""
        if key not in self.data or key not in self.written:
            return None
        return max(timedelta(), min(self.written[key], now) + sync_delay - now)


NOTHING_SHARED = SharedConfig()


def read_shared(configmap: Mapping[str, Any] | None) -> SharedConfig:
    """Read the ConfigMap; None = there is none."""
    if configmap is None:
        return SharedConfig()
    metadata = configmap["metadata"]
    notes = metadata.get("annotations") or {}
    return SharedConfig(
        data=dict(configmap.get("data") or {}),
        written=_instants(notes.get(names.WRITTEN_ANNOTATION)),
        unreferenced=_instants(notes.get(names.UNREFERENCED_ANNOTATION)),
        exists=True,
        ours=(metadata.get("labels") or {}).get(names.MANAGED_LABEL) == "true",
    )


def _instants(text: str | None) -> dict[str, datetime]:
    """Read `{"key": "RFC 3339"}`; an annotation that somebody broke counts as not there."""
    try:
        instants = {str(key): datetime.fromisoformat(moment) for key, moment in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return instants if all(moment.tzinfo for moment in instants.values()) else {}


def shared_object(shared: SharedConfig, name: str, namespace: str) -> dict[str, Any]:
    """Return the whole server-side apply."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.MANAGED_LABEL: "true"},
            "annotations": {
                names.WRITTEN_ANNOTATION: _text(shared.written),
                names.UNREFERENCED_ANNOTATION: _text(shared.unreferenced),
            },
        },
        "data": dict(shared.data),
    }


def _text(instants: Mapping[str, datetime]) -> str:
    return json.dumps({key: rfc3339(moment) for key, moment in sorted(instants.items())})


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """What the ConfigMap should be; `due` = when to look again because a key may go then."""

    wanted: SharedConfig
    write: bool
    due: timedelta | None = None


def plan_shared(
    current: SharedConfig,
    configs: Mapping[str, str],
    labelled: frozenset[str],
    *,
    default: str,
    now: datetime,
    retention: timedelta,
) -> SharedPlan:
    """Return the next state: `configs` (name → text) are wanted, `labelled` are values that nodes' labels have.

    A key that we never wrote is somebody else's: the apply leaves it out and the server leaves it alone, unless a label
    names it.
    """
    now = now.replace(microsecond=0)  # annotations hold whole seconds
    data = {names.SHARED_DEFAULT_KEY: default, **configs}
    unreferenced: dict[str, datetime] = {}
    known = current.written or current.data  # a broken annotation makes all keys ours: none may go early
    ours = {key: text for key, text in current.data.items() if key in known or key in data or key in labelled}
    for key, text in ours.items():
        if key in data:
            continue
        since = min(current.unreferenced.get(key, now), now)
        if key in labelled:
            data[key] = text
        elif now < since + retention:
            data[key] = text
            unreferenced[key] = since
    written = {
        key: min(current.written.get(key, now), now) if ours.get(key) == text else now for key, text in data.items()
    }
    wanted = SharedConfig(data, written, unreferenced)
    due = min((since + retention - now for since in unreferenced.values()), default=None)
    return SharedPlan(wanted, write=not current.exists or replace(current, data=ours) != wanted, due=due)
