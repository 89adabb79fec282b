"""What is a GPU node, and which policies name it (decisions 6 and 7)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpusharing.api import names
from gpusharing.api.meta import LabelSelector
from gpusharing.core.gfd import model_of


@dataclass(frozen=True, slots=True)
class Node:
    """What we use of a Node object."""

    name: str
    uid: str
    labels: Mapping[str, str]
    # Field managers that own the config label, ours included.
    label_managers: tuple[str, ...] = ()
    # None where nodes are watched metadata-only.
    allocatable: Mapping[str, int] | None = None
    # Whether its kubelet is ready, and whether it is not cordoned; None where nodes are watched metadata-only.
    ready: bool | None = None
    schedulable: bool | None = None
    # Since when its kubelet is not ready; None = it is, or nobody says.
    unready_since: datetime | None = None
    # False for a node that the controller's node selector leaves out: no policy may own it.
    in_scope: bool = True

    @property
    def metadata_only(self) -> bool:
        """Whether only the metadata was seen."""
        return self.schedulable is None

    def completed_by(self, full: "Node") -> "Node":
        """Return the node with what only a full object says, as it was last seen."""
        return replace(
            self,
            allocatable=full.allocatable,
            ready=full.ready,
            schedulable=full.schedulable,
            unready_since=full.unready_since,
        )

    @property
    def config_label(self) -> str:
        """Return the value of the config label; empty = none."""
        return self.labels.get(names.CONFIG_LABEL, "")

    @property
    def label_is_ours(self) -> bool:
        """Whether our field manager owns the config label."""
        return names.FIELD_MANAGER in self.label_managers

    @property
    def hands_off(self) -> bool:
        """Whether the admin asked us to leave the node exactly as it is (decision 10)."""
        return self.labels.get(names.SKIP_LABEL) == "true"

    @property
    def model(self) -> str:
        """Return the GPU model by the product label, without suffixes; empty = not labelled."""
        return model_of(self.labels.get(names.PRODUCT_LABEL, ""))


def read_node(obj: Mapping[str, Any], *, in_scope: bool = True, devices: bool = True) -> Node:
    """Read a Node as the API server shows it, metadata-only or in full; `devices`: with what is allocatable."""
    metadata = obj["metadata"]
    status = obj.get("status") or {}
    full = "spec" in obj or "status" in obj
    ready, since = _readiness(status)
    return Node(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        labels=metadata.get("labels") or {},
        label_managers=_managers_of_config_label(metadata),
        allocatable=_devices(status["allocatable"]) if devices and "allocatable" in status else None,
        ready=ready if full else None,
        schedulable=not (obj.get("spec") or {}).get("unschedulable", False) if full else None,
        unready_since=None if ready else since,
        in_scope=in_scope,
    )


def _readiness(status: Mapping[str, Any]) -> tuple[bool, datetime | None]:
    """Return whether the kubelet is ready, and since when that is so; a Node without the condition is not."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            since = condition.get("lastTransitionTime")
            return condition.get("status") == "True", datetime.fromisoformat(since) if since else None
    return False, None


def _managers_of_config_label(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return who owns the config label by managedFields; our name counts only for an apply."""
    found = []
    for entry in metadata.get("managedFields") or ():
        labels = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
        if f"f:{names.CONFIG_LABEL}" in labels:
            manager = str(entry.get("manager", ""))
            ours_by_update = manager == names.FIELD_MANAGER and entry.get("operation") != "Apply"
            found.append(f"{manager} (update)" if ours_by_update else manager)
    return tuple(sorted(set(found)))


_SUFFIXES = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
_QUANTITY = re.compile(r"(\d+)(|k|M|G|Ki|Mi|Gi)")


def _devices(allocatable: Mapping[str, str]) -> dict[str, int]:
    """Return the NVIDIA resources; a count is a quantity, so 60,000 reads `60k`."""
    counts = {}
    for name, text in allocatable.items():
        count = count_of(text) if name.startswith(names.RESOURCE_DOMAIN) else None
        if count is not None:
            counts[name] = count
    return counts


def count_of(quantity: object) -> int | None:
    """Return a whole quantity of the API as a number; None = it is none."""
    match = _QUANTITY.fullmatch(str(quantity))
    return int(match[1]) * _SUFFIXES[match[2]] if match else None


def excluded_by(node: Node) -> str:
    """Return what keeps the node from every policy, GPU or not, in a few words; empty = nothing does."""
    if not node.in_scope:
        return "the controller's node selector leaves it out"
    if node.labels.get(names.OPERANDS_LABEL) == "false":
        return f"it is labelled {names.OPERANDS_LABEL}=false"
    workload = node.labels.get(names.WORKLOAD_LABEL, "container")
    return f"it is labelled {names.WORKLOAD_LABEL}={workload}" if workload != "container" else ""


def is_gpu_node(node: Node, *, reports_gpus: bool = False) -> bool:
    """Whether policies may name the node at all, whatever their selector says."""
    labels = node.labels
    return not excluded_by(node) and (
        names.PRODUCT_LABEL in labels
        or labels.get(names.PRESENT_LABEL) == "true"
        or labels.get(names.PCI_LABEL) == "true"
        or reports_gpus
    )


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a selector: `key operator values`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the term; the product is compared raw and without suffixes."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and self._lists(value)
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:  # NotIn holds for an absent label too, as in Kubernetes
                return value is None or not self._lists(value)

    def _lists(self, value: str) -> bool:
        if value in self.values:
            return True
        return self.key == names.PRODUCT_LABEL and model_of(value) in self.values

    def __str__(self) -> str:
        """Return the term as kubectl writes selectors."""
        listed = ", ".join(sorted(self.values))
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "In":
                return f"{self.key} in ({listed})"
            case _:
                return f"{self.key} notin ({listed})"


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled label selector; no terms = everything."""

    terms: tuple[Term, ...] = ()

    @classmethod
    def of(cls, selector: LabelSelector) -> "Selector":
        """Compile the selector of a policy."""
        labels = [Term(key, "In", frozenset([value])) for key, value in (selector.match_labels or {}).items()]
        expressions = [
            Term(term.key, term.operator, frozenset(term.values or ())) for term in selector.match_expressions or ()
        ]
        return cls(tuple(labels + expressions))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all terms hold."""
        # in line, as this is asked for every node and policy: a call costs as much as the answer
        for term in self.terms:
            listed = term.operator == "In" and labels.get(term.key) in term.values
            if not listed and not term.holds(labels):
                return False
        return True

    def failing(self, labels: Mapping[str, str]) -> tuple[Term, ...]:
        """Return the terms that do not hold."""
        return tuple(term for term in self.terms if not term.holds(labels))
