"""What was last seen in the cluster, and what follows from it. Every `put` says which keys have to be looked at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Any, Literal

from pydantic import ValidationError

from gpusharing.api import names
from gpusharing.api.node import GpuNodeStatus
from gpusharing.api.policy import PolicyStatus
from gpusharing.controller.keys import SHARED_KEY, Key
from gpusharing.controller.members import Members
from gpusharing.controller.patience import Patience
from gpusharing.controller.placing import Placing
from gpusharing.controller.sightings import Sightings
from gpusharing.core.desired_state import Layout, Outcome, Policy, compile_policy
from gpusharing.core.evaluate import evaluate, holder_of, plan_as_if_enforced
from gpusharing.core.matching import Node, is_gpu_node, read_node
from gpusharing.core.plan import Change, NodePlan, Situation
from gpusharing.core.records import Record, read_record
from gpusharing.core.repairs import Repairs
from gpusharing.core.reports import read_report
from gpusharing.core.sharedconfig import NOTHING_SHARED, SharedConfig
from gpusharing.core.status import NodeState

Kind = Literal["policy", "node", "report", "record"]
KINDS: tuple[Kind, ...] = ("policy", "node", "report", "record")
NO_REPAIRS = Repairs()


@dataclass(frozen=True, slots=True)
class SeenPolicy:
    """A policy with what its status writes need."""

    policy: Policy
    status: PolicyStatus
    resource_version: str


class Cache:
    """The controller's view of the world. Pure decisions are taken from it; only workers and watches change it."""

    def __init__(
        self, layout: Layout, *, sync_delay: timedelta, plugin_gone_after: float, placing: Placing | None = None
    ) -> None:
        self.layout: Layout = layout
        self.placing = placing or Placing(on=False, lost_after=timedelta())
        self._sync_delay = sync_delay
        self.patience = Patience(plugin_gone_after)
        self.policies: dict[str, SeenPolicy] = {}
        self.by_name: dict[str, Policy] = {}
        self.ranked: tuple[Policy, ...] = ()
        self.nodes: dict[str, Node] = {}
        self.reports: dict[str, GpuNodeStatus] = {}
        self.records: dict[str, Record] = {}
        self.shared: SharedConfig = NOTHING_SHARED
        self.states: dict[str, NodeState] = {}
        self.members = Members()
        # node → the config label when it was last seen as assigned
        self.settled: dict[str, str] = {}
        self.repairs: dict[str, Repairs] = {}
        self.write_errors: dict[str, str] = {}
        # nodes whose release waits because the CRD is gone or new
        self.held: set[str] = set()
        self.seen: dict[Kind, Sightings] = {kind: Sightings() for kind in KINDS}

    @property
    def full_nodes(self) -> bool:
        """Whether nodes are seen in full, and not their metadata only."""
        return self.layout == "shared" or self.placing.on

    # --- what was seen

    def put_policy(self, obj: Mapping[str, Any]) -> set[Key]:
        """Take in a policy. Nodes are looked at again only where its spec is new, its status where that is."""
        metadata = obj["metadata"]
        name = metadata["name"]
        if not self.seen["policy"].is_news(metadata):
            return set()
        known = self.policies.get(name)
        same = (
            known is not None
            and known.policy.uid == metadata.get("uid")
            and known.policy.generation == metadata.get("generation", 1)
        )
        policy = known.policy if known is not None and same else compile_policy(obj, self.layout)
        self.policies[name] = seen = SeenPolicy(policy, _status(obj), metadata.get("resourceVersion", ""))
        if known is not None and same:
            return {("policy", name)} if seen.status != known.status else set()
        self._rank()
        return {("policy", name), *self._affected(name, policy)}

    def drop_policy(self, name: str, uid: str = "") -> set[Key]:
        """Forget a policy (of this uid); its nodes go to the next match or are released."""
        known = self.policies.get(name)
        if known is None or (uid and known.policy.uid != uid):
            return set()
        del self.policies[name]
        self._rank()
        return self._affected(name, None)

    def put_node(self, obj: Mapping[str, Any], *, in_scope: bool = True) -> set[Key]:
        """Take in a node; a heartbeat changes nothing."""
        metadata, seen = obj["metadata"], self.seen["node"]
        known = self.nodes.get(metadata["name"])
        # a full object says more than the metadata-only answer of its version
        whole = known is not None and known.metadata_only and known.in_scope == in_scope
        if (whole and seen.knows(metadata)) or not seen.is_news(metadata):
            return set()
        node = read_node(obj, in_scope=in_scope, devices=self.layout == "shared")
        if known is not None:
            if node.metadata_only and node.uid == known.uid:  # the answer to a write
                node = node.completed_by(known)
            if known == node:
                return set()
            if known.uid != node.uid:
                self._forget(node.name)
        self.nodes[node.name] = _interned(node)
        return {("node", node.name), *self.placing.node_changed(known, node)}

    def knows_node(self, metadata: Mapping[str, Any]) -> bool:
        """Whether the node was seen in full, in this very version."""
        known = self.nodes.get(metadata["name"])
        return known is not None and not known.metadata_only and self.seen["node"].knows(metadata)

    def drop_node(self, name: str, uid: str = "") -> set[Key]:
        """Forget a node (of this uid)."""
        known = self.nodes.get(name)
        if known is None or (uid and known.uid != uid):
            return set()
        del self.nodes[name]
        self._forget(name)
        return {("node", name), *self.placing.node_changed(known, None)}

    def put_report(self, obj: Mapping[str, Any]) -> set[Key]:
        """Take in a GpuNode's status; one that cannot be read counts as none."""
        metadata, seen = obj["metadata"], self.seen["report"]
        name = metadata["name"]
        if (name in self.reports and seen.knows(metadata)) or not seen.is_news(metadata):
            return set()
        keys = self.placing.put_gpu_node(obj) if self.placing.on else set()
        report = read_report(obj)
        if report is None:
            return keys | self._drop_report(name)
        if self.reports.get(name) == report:
            return keys
        self.reports[name] = report
        return {("node", name), *keys}

    def drop_report(self, name: str) -> set[Key]:
        """Forget a GpuNode."""
        return self._drop_report(name) | self.placing.drop_gpu_node(name)

    def _drop_report(self, name: str) -> set[Key]:
        return {("node", name)} if self.reports.pop(name, None) is not None else set()

    def put_record(self, configmap: Mapping[str, Any]) -> set[Key]:
        """Take in a ConfigMap that bears a record's name."""
        metadata, seen = configmap["metadata"], self.seen["record"]
        if seen.knows(metadata) or not seen.is_news(metadata):
            return set()
        record = read_record(configmap)
        known = self.records.get(record.node)
        self.records[record.node] = record
        same = known is not None and (known, known.ours) == (record, record.ours)
        return set() if same else {("node", record.node)}

    def drop_record(self, node: str) -> set[Key]:
        """Forget a record."""
        return {("node", node)} if self.records.pop(node, None) is not None else set()

    def deleted_record(self, node: str) -> None:
        """Forget a record that we deleted ourselves; a list that began before may still show it."""
        if (record := self.records.pop(node, None)) is not None:
            self.seen["record"].bury_ours(record.name)

    def put_shared(self, shared: SharedConfig) -> set[Key]:
        """Take in the shared ConfigMap; every node that waits for a key is looked at again."""
        if (self.shared, self.shared.exists, self.shared.ours) == (shared, shared.exists, shared.ours):
            return set()
        self.shared = shared
        waiting = {
            name
            for name, state in self.states.items()
            if state.plan.wait is not None or state.plan.change is Change.REFUSED
        }
        return {SHARED_KEY} | {("node", name) for name in waiting}

    def bury(self, kind: Literal["policy", "node", "report"], metadata: Mapping[str, Any]) -> set[Key]:
        """Take in a deletion that a watch tells of; one that was overtaken by the next of the name is none."""
        if not self.seen[kind].bury(metadata):
            return set()
        name, uid = metadata["name"], metadata.get("uid", "")
        match kind:
            case "policy":
                return self.drop_policy(name, uid)
            case "node":
                return self.drop_node(name, uid)
            case "report":
                return self.drop_report(name)

    # --- what follows

    def evaluate(self, name: str, now: float) -> set[Key]:
        """Decide anew about a node, if it is there. Returns the policies (and the shared config) that it concerns."""
        if name not in self.nodes:
            return set()
        before, after = self.states.get(name), self._state(name, now)
        if after.assignment.outcome is not Outcome.UNCLAIMED or after.plan.change is not Change.RELEASE:
            self.held.discard(name)
        record, node = self.records.get(name), self.nodes[name]
        if record is not None and node.config_label == record.config:
            self.settled[name] = record.config
        if before == after:
            return set()
        self.states[name] = after
        concerned = self.members.move(name, before, after)
        keys: set[Key] = {("policy", policy) for policy in concerned if policy in self.policies}
        keys |= self.placing.owner_changed(before, after)
        used = (before.plan.before, before.plan.after) if before is not None else ()
        if self.layout == "shared" and used != (after.plan.before, after.plan.after):
            keys.add(SHARED_KEY)
        return keys

    def _state(self, name: str, now: float) -> NodeState:
        record, report = self.records.get(name), self.reports.get(name)
        state = evaluate(
            self.nodes[name],
            self.ranked,
            holder=holder_of(record, self.by_name),
            record=record,
            report=report,
            situation=self._situation(name),
        )
        if not state.plan.actions:
            self.write_errors.pop(name, None)
        repairs = self.repairs.get(name, NO_REPAIRS)
        return replace(
            state,
            verdict=self.patience.judge(name, state.verdict, now),
            contested_by=(repairs.manager or "an unnamed manager") if repairs.contested(now) else "",
            write_error=self.write_errors.get(name, ""),
        )

    def plan_as_if_enforced(self, name: str, policy: Policy) -> NodePlan | None:
        """Return what a dry-run policy would do to the node; None = it would not own it."""
        return plan_as_if_enforced(
            self.nodes[name],
            self.ranked,
            policy,
            record=self.records.get(name),
            report=self.reports.get(name),
            situation=self._situation(name),
        )

    def _situation(self, name: str) -> Situation:
        return Situation(
            layout=self.layout,
            now=datetime.now(UTC),
            shared=self.shared,
            sync_delay=self._sync_delay,
            settled=self.settled.get(name, ""),
        )

    def configs_in_use(self) -> tuple[dict[str, str], frozenset[str]]:
        """Return the shared ConfigMap's wanted keys with their texts, and every value that a label or record has."""
        configs: dict[str, str] = {}
        for state in self.states.values():
            owner = state.assignment.policy
            owned = state.assignment.outcome is Outcome.OWNED and state.plan.change not in {
                Change.MANUAL,
                Change.REFUSED,
            }
            if owned and owner is not None and owner.rendered is not None:
                configs[owner.rendered.name] = owner.rendered.text
        labels = {node.config_label for node in self.nodes.values()} | {r.config for r in self.records.values()}
        return dict(sorted(configs.items())), frozenset(labels - {""})

    def _reports_gpus(self, name: str) -> bool:
        report = self.reports.get(name)
        return report is not None and bool(report.gpus)

    def _affected(self, name: str, policy: Policy | None) -> set[Key]:
        """Return the nodes that the policy's former or present selector names, or that it holds.

        Only those that were decided about before: a node without a state has its own key under way.
        """
        nodes = set(self.members.of(name))
        nodes |= {node for node in self.states if (record := self.records.get(node)) and record.policy == name}
        if policy is not None and policy.selector is not None:
            nodes |= {
                name
                for name in self.states
                if (node := self.nodes.get(name)) is not None
                and policy.selector.matches(node.labels)
                and is_gpu_node(node, reports_gpus=self._reports_gpus(name))
            }
        return {("node", node) for node in nodes}

    def forget_state(self, name: str) -> set[Key]:
        """Forget what followed for a node that is gone; returns the policies that counted it."""
        before = self.states.pop(name, None)
        concerned = self.members.move(name, before, None)
        keys: set[Key] = {("policy", policy) for policy in concerned if policy in self.policies}
        return keys | self.placing.owner_changed(before, None)

    def states_of(self, policy: str) -> Iterator[NodeState]:
        """Yield the states of the nodes that the policy matches or holds, by name."""
        for name in sorted(self.members.of(policy)):
            if (state := self.states.get(name)) is not None:
                yield state

    def _forget(self, name: str) -> None:
        for known in (self.settled, self.repairs, self.write_errors):
            known.pop(name, None)
        self.patience.forget(name)
        self.held.discard(name)

    def _rank(self) -> None:
        self.by_name = {name: seen.policy for name, seen in self.policies.items()}
        self.ranked = tuple(sorted(self.by_name.values(), key=lambda policy: policy.rank))


def _status(obj: Mapping[str, Any]) -> PolicyStatus:
    try:
        return PolicyStatus.model_validate(obj.get("status") or {})
    except ValidationError:
        return PolicyStatus()  # written anew as a whole


def _interned(node: Node) -> Node:
    """Share label keys and values between nodes: 10,000 nodes have mostly the same ones."""
    labels = {intern(key): intern(value) for key, value in node.labels.items()}
    managers = tuple(intern(manager) for manager in node.label_managers)
    return replace(node, labels=labels, label_managers=managers)


def is_record(configmap: Mapping[str, Any], shared: tuple[str, str] | None) -> bool:
    """Whether a ConfigMap of our namespace bears a record's name."""
    metadata = configmap["metadata"]
    if shared == (metadata["namespace"], metadata["name"]):
        return False
    return str(metadata["name"]).startswith(names.RECORD_PREFIX)
