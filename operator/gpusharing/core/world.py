"""The cluster as it was seen at one moment; `plan`, `explain` and `status` decide from it as the controller does."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from gpusharing.api import names
from gpusharing.api.node import GpuNodeStatus
from gpusharing.api.policy import PolicyStatus
from gpusharing.core.desired_state import Layout, Policy, compile_policy
from gpusharing.core.evaluate import evaluate, holder_of
from gpusharing.core.matching import Node, is_gpu_node, read_node
from gpusharing.core.plan import Situation
from gpusharing.core.records import Record, read_record
from gpusharing.core.sharedconfig import NOTHING_SHARED, SharedConfig, read_shared
from gpusharing.core.status import NodeState

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects as the API server, or a saved `kubectl get -o json`, shows them.

    `configmaps` are those of the controller's namespace; `configmaps_read` = False where nobody looked for them.
    """

    nodes: Sequence[Object] = ()
    policies: Sequence[Object] = ()
    reports: Sequence[Object] = ()
    configmaps: Sequence[Object] = ()
    configmaps_read: bool = True


@dataclass(frozen=True, slots=True)
class World:
    """Policies, nodes, reports, records and the shared ConfigMap; every name is unique."""

    layout: Layout
    now: datetime
    # In the order in which they win.
    policies: Mapping[str, Policy] = field(default_factory=dict)
    # What the controller last said about each policy.
    statuses: Mapping[str, PolicyStatus] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    reports: Mapping[str, GpuNodeStatus] = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)
    shared: SharedConfig = NOTHING_SHARED
    # False where ConfigMaps were not read: then nobody can tell who set a node's config label.
    records_known: bool = True

    @property
    def ranked(self) -> tuple[Policy, ...]:
        """Return the policies in the order in which they win."""
        return tuple(self.policies.values())

    def states(self) -> Iterator[NodeState]:
        """Decide about every GPU node, and every node that has something of ours, by name."""
        return (self.state(name) for name in sorted(self.nodes) if self.concerns(name))

    def state(self, name: str) -> NodeState:
        """Decide about one node."""
        record = self.records.get(name)
        return evaluate(
            self.nodes[name],
            self.policies.values(),
            holder=holder_of(record, self.policies),
            record=record,
            report=self.reports.get(name),
            situation=Situation(layout=self.layout, now=self.now, shared=self.shared),
        )

    def concerns(self, name: str) -> bool:
        """Whether the node has GPUs that policies may name, or something of ours."""
        node, record = self.nodes[name], self.records.get(name)
        ours = node.label_is_ours or (record is not None and record.ours)
        return ours or is_gpu_node(node, reports_gpus=self.reports_gpus(name))

    def reports_gpus(self, name: str) -> bool:
        """Whether a plugin reports GPUs of the node."""
        report = self.reports.get(name)
        return report is not None and bool(report.gpus)

    def uncertain(self, name: str) -> bool:
        """Whether nobody can tell who set the node's config label (decision 25)."""
        return not self.records_known and bool(self.nodes[name].config_label)

    def with_policies(self, objects: Iterable[Object]) -> "World":
        """Return the world once these policies are applied: each keeps the age and the uid of its namesake."""
        policies = dict(self.policies)
        for obj in objects:
            # What a file says of age and uid is of another object: the API server gives both.
            policy = compile_policy(
                {"metadata": {"name": obj["metadata"]["name"]}, "spec": obj.get("spec")}, self.layout
            )
            known = policies.get(policy.name)
            if known is not None:
                policy = replace(policy, uid=known.uid, created=known.created, generation=known.generation)
            policies[policy.name] = policy
        return replace(self, policies=_ranked(policies.values()))

    def without_policies(self, deleted: Iterable[str]) -> "World":
        """Return the world once these policies are deleted."""
        gone = set(deleted)
        return replace(self, policies={name: policy for name, policy in self.policies.items() if name not in gone})


def read_world(objects: Objects, *, now: datetime, layout: Layout | None = None) -> World:
    """Read a world. Without `layout` it is what the records say."""
    layout = layout or layout_of(objects.configmaps)
    records = {record.node: record for record in map(read_record, filter(_is_record, objects.configmaps))}
    shared = read_shared(next((obj for obj in objects.configmaps if _name(obj) == names.SHARED_CONFIGMAP), None))
    if layout == "per-node":
        shared = NOTHING_SHARED
    return World(
        layout=layout,
        now=now,
        policies=_ranked(compile_policy(obj, layout) for obj in objects.policies),
        statuses={_name(obj): _policy_status(obj) for obj in objects.policies},
        nodes={_name(obj): _node(obj, layout, records.get(_name(obj)), shared) for obj in objects.nodes},
        reports={_name(obj): report for obj in objects.reports if (report := _report(obj)) is not None},
        records=records,
        shared=shared,
        records_known=objects.configmaps_read,
    )


def _ranked(policies: Iterable[Policy]) -> dict[str, Policy]:
    return {policy.name: policy for policy in sorted(policies, key=lambda policy: policy.rank)}


def layout_of(configmaps: Sequence[Object]) -> Layout:
    """Return the layout that the controller works in: in `shared` records have no data."""
    records = [record for record in map(read_record, filter(_is_record, configmaps)) if record.ours]
    if records:
        return "per-node" if any(record.data for record in records) else "shared"
    shared = any(_name(obj) == names.SHARED_CONFIGMAP and read_shared(obj).ours for obj in configmaps)
    return "shared" if shared else "per-node"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _is_record(configmap: Object) -> bool:
    return _name(configmap).startswith(names.RECORD_PREFIX)


def _node(obj: Object, layout: Layout, record: Record | None, shared: SharedConfig) -> Node:
    # the controller does not see in layout per-node what is allocatable either: reports say more
    node = read_node(obj, devices=layout == "shared")
    if "managedFields" in obj["metadata"] or record is None or not record.ours:
        return node
    # kubectl leaves out who owns which field; a value that we recorded as ours is taken for ours.
    if node.config_label and node.config_label in {record.config, *record.data, *shared.written}:
        return replace(node, label_managers=(names.FIELD_MANAGER,))
    return node


def _report(obj: Object) -> GpuNodeStatus | None:
    """Read a GpuNode's status; one that cannot be read counts as none, as it does for the controller."""
    try:
        return GpuNodeStatus.model_validate(obj.get("status") or {})
    except ValidationError:
        return None


def _policy_status(obj: Object) -> PolicyStatus:
    try:
        return PolicyStatus.model_validate(obj.get("status") or {})
    except ValidationError:
        return PolicyStatus()
