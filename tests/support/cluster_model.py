"""A cluster on paper: one node's config label with its owners, and the records. It takes actions as a server would.

Just enough of server-side apply to ask what a plan's writes lead to, also when they stop after any one of them.
"""

from dataclasses import dataclass, field, replace

from tests.support.builders import NodeBuilder

from gpusharing.api import names
from gpusharing.core.matching import Node
from gpusharing.core.plan import Action, ApplyRecord, DeleteRecord, ReleaseLabel, RestoreLabel, SetLabel
from gpusharing.core.records import Record


class Conflict(AssertionError):
    """An apply without force met another owner: the plan should have known."""


@dataclass
class PaperCluster:
    """One node and what stands beside it."""

    node: NodeBuilder
    label: str = ""
    managers: frozenset[str] = frozenset()
    records: dict[str, Record] = field(default_factory=dict)
    writes: int = 0

    def observed(self) -> Node:
        """The node as a watch shows it."""
        return self.node.config(self.label, *sorted(self.managers)).build() if self.label else self.node.build()

    def record(self) -> Record | None:
        return self.records.get(self.node.name)

    def apply(self, action: Action) -> None:
        """Make one write."""
        self.writes += 1
        match action:
            case ApplyRecord(record):
                self._apply_record(record)
            case SetLabel(_, uid, value, force):
                self._own_label(uid, names.FIELD_MANAGER, value, force)
            case RestoreLabel(_, uid, value):
                self._own_label(uid, names.RESTORING_FIELD_MANAGER, value, force=True)
            case ReleaseLabel(_, uid):
                self._same_node(uid)
                self.managers -= {names.FIELD_MANAGER}
                self.label = self.label if self.managers else ""
            case DeleteRecord(node):
                assert self.records[node].ours, "a ConfigMap that is not ours was deleted"
                del self.records[node]

    def _apply_record(self, record: Record) -> None:
        """Keys that we no longer send go; keys of others stay (here: those that name no config)."""
        known = self.records.get(record.node)
        assert known is None or known.ours, "a ConfigMap that is not ours was overwritten"
        foreign = {key: text for key, text in known.data.items() if "-" not in key} if known else {}
        self.records[record.node] = replace(record, data={**foreign, **record.data})

    def _own_label(self, uid: str, manager: str, value: str, force: bool) -> None:
        self._same_node(uid)
        others = self.managers - {manager}
        if self.label == value:
            self.managers |= {manager}
            return
        if others and not force:
            raise Conflict(f"{sorted(others)} own {self.label!r}")
        self.label, self.managers = value, frozenset({manager})

    def _same_node(self, uid: str) -> None:
        assert uid == self.node.node_uid, "a write to a node of another uid"
