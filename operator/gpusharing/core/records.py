"""The record of a node: what we assigned to it, kept in ConfigMap `gpusharing-<node>` (decision 8)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from gpusharing.api import names
from gpusharing.api.pluginconfig import InvalidPluginConfig, load
from gpusharing.core.desired_state import Layout, Policy
from gpusharing.core.matching import Node


def record_name(node: str) -> str:
    """Return the ConfigMap's name; a node name that is too long is cut and told apart by 8 hex of its SHA-256."""
    name = f"{names.RECORD_PREFIX}{node}"
    if len(name) <= names.DNS_SUBDOMAIN_MAX:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"{name[: names.DNS_SUBDOMAIN_MAX - 9].rstrip('.-')}-{digest}"


@dataclass(frozen=True, slots=True)
class Record:
    """What we assigned to a node: in layout per-node also the config itself and the one before it."""

    node: str
    node_uid: str
    policy: str
    policy_uid: str
    config: str
    previous_label: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    # Not part of what we write: read back.
    ours: bool = field(default=True, compare=False)
    applied_at: datetime | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Return the ConfigMap's name."""
        return record_name(self.node)


def read_record(configmap: Mapping[str, Any]) -> Record:
    """Read a ConfigMap that bears a record's name; `ours` says whether it is one of ours at all."""
    metadata = configmap["metadata"]
    notes = metadata.get("annotations") or {}
    managers = [
        entry
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
    ]
    owners = metadata.get("ownerReferences") or ()
    labelled = (metadata.get("labels") or {}).get(names.MANAGED_LABEL) == "true"
    node = _node_of(metadata["name"], notes)
    return Record(
        node=node,
        node_uid=next((owner["uid"] for owner in owners if owner.get("kind") == "Node"), ""),
        policy=notes.get(names.POLICY_ANNOTATION, ""),
        policy_uid=notes.get(names.POLICY_UID_ANNOTATION, ""),
        config=notes.get(names.CONFIG_ANNOTATION, ""),
        previous_label=notes.get(names.PREVIOUS_LABEL_ANNOTATION),
        data=dict(configmap.get("data") or {}),
        ours=(labelled or bool(managers)) and record_name(node) == metadata["name"],
        applied_at=max((datetime.fromisoformat(entry["time"]) for entry in managers if "time" in entry), default=None),
    )


def _node_of(name: str, notes: Mapping[str, str]) -> str:
    """Return the node by the annotation, or by the name where somebody broke the annotation."""
    noted = notes.get(names.NODE_ANNOTATION, "")
    return noted if noted and record_name(noted) == name else name.removeprefix(names.RECORD_PREFIX)


def record_object(record: Record, namespace: str) -> dict[str, Any]:
    """Return the whole server-side apply: what it leaves out is given up, a former config's key included."""
    notes = {
        names.NODE_ANNOTATION: record.node,
        names.POLICY_ANNOTATION: record.policy,
        names.POLICY_UID_ANNOTATION: record.policy_uid,
        names.CONFIG_ANNOTATION: record.config,
    }
    if record.previous_label is not None:
        notes[names.PREVIOUS_LABEL_ANNOTATION] = record.previous_label
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": record.name,
            "namespace": namespace,
            "labels": {names.MANAGED_LABEL: "true"},
            "annotations": notes,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": record.node, "uid": record.node_uid}],
        },
        "data": dict(record.data),
    }


def wanted_record(
    node: Node, policy: Policy, layout: Layout, current: Record | None, previous_label: str | None
) -> Record:
    """Return the record that the node should have; the config before it is read back from the current one."""
    assert policy.rendered is not None, "an owner has a config: this is a bug, please report it"
    data: dict[str, str] = {}
    if layout == "per-node":
        before = _previous(current, node.config_label, policy.rendered.name) if current else {}
        data = {policy.rendered.name: policy.rendered.text, **before}
    return Record(
        node=node.name,
        node_uid=node.uid,
        policy=policy.name,
        policy_uid=policy.uid,
        config=policy.rendered.name,
        previous_label=previous_label,
        data=data,
    )


def needs_write(current: Record | None, wanted: Record) -> bool:
    """Whether an apply would change anything of ours; keys that somebody else added are none of our business."""
    if current is None:
        return True
    ours = {key: current.data[key] for key in wanted.data if key in current.data}
    return wanted != Record(
        node=current.node,
        node_uid=current.node_uid,
        policy=current.policy,
        policy_uid=current.policy_uid,
        config=current.config,
        previous_label=current.previous_label,
        data=ours,
    )


def _previous(current: Record, label: str, wanted: str) -> dict[str, str]:
    """Return the one config to keep beside the wanted one, if it is still intact.

    What the node's label still names comes first (a pass may have been cut short before the label moved), then what
    was assigned before.
    """
    candidates = [label, current.config]
    if current.config == wanted:
        candidates += sorted(current.data)
    for name in candidates:
        text = current.data.get(name) if name != wanted else None
        if text is not None and _intact(name, text):
            return {name: text}
    return {}


@lru_cache(maxsize=1024)
def _intact(name: str, text: str) -> bool:
    """Whether the text is the config that the name promises: a config edited by hand is not one to go back to."""
    try:
        return load(text).digest()[:8] == name.rpartition("-")[2]
    except InvalidPluginConfig:
        return False
