"""Whole clusters as tests need them: a World, or the file that `kubectl get -o json` would have saved of one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.builders import NOW, NodeBuilder, PolicyBuilder, ReportBuilder, make_record

from gpusharing.api import names
from gpusharing.core.desired_state import Layout
from gpusharing.core.records import Record, record_object
from gpusharing.core.world import Objects, World, read_world

Object = dict[str, Any]


def configured(node: NodeBuilder, policy: PolicyBuilder, report: ReportBuilder) -> tuple[NodeBuilder, Record, Any]:
    """A node on which the policy's config is written and served."""
    node = node.config(policy.rendered().name)
    return node, make_record(node.build(), policy), report.serving(policy.rendered())


def objects_of(
    nodes: Sequence[NodeBuilder] = (),
    policies: Sequence[PolicyBuilder] = (),
    reports: Sequence[ReportBuilder] = (),
    records: Sequence[Record] = (),
    configmaps: Sequence[Object] = (),
) -> dict[str, list[Object]]:
    """Everything as the API server shows it, by kind."""
    return {
        "nodes": [node.object() for node in nodes],
        "policies": [policy.object() for policy in policies],
        "reports": [report.object() for report in reports],
        "configmaps": [*(record_object(record, names.NAMESPACE) for record in records), *configmaps],
    }


def make_world(*, layout: Layout | None = None, records_known: bool = True, **objects: Sequence[Any]) -> World:
    """A world of these builders and records."""
    return read_world(Objects(**objects_of(**objects), configmaps_read=records_known), now=NOW, layout=layout)


def save(folder: Path, *, name: str = "saved.json", **objects: Sequence[Any]) -> str:
    """A file as kubectl saves it, which leaves managedFields out. Returns its path."""
    items = [obj for kind in objects_of(**objects).values() for obj in kind]
    for item in items:
        item["metadata"].pop("managedFields", None)
    file = folder / name
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)
