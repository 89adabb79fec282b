"""Changing any leaf of a policy's spec changes the desired state, the plan or the status; a dead field is named.

The leaves are read from the schema, so that a new field is under this law without an edit here. What is observed is
what an admin can see: who owns which node, the writes of each plan, whether placements may reserve the node's GPUs, the
status with its printed words.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.builders import NOW, PolicyBuilder, ago, make_node, make_policy, make_record, make_report, ranked

from gpusharing.api.crd import structural_schema
from gpusharing.api.policy import PolicySpec, PolicyStatus
from gpusharing.core.desired_state import Layout, as_enforced
from gpusharing.core.evaluate import evaluate, holder_of, plan_as_if_enforced
from gpusharing.core.placement.inventory import reservable
from gpusharing.core.plan import Situation
from gpusharing.core.status import plan_summary, policy_status, tally

Path = tuple[str, ...]
Json = dict[str, Any]
SCHEMA = structural_schema(PolicySpec)

# Specs in which something can be changed: every field has a place in at least one.
MINIMAL: Json = {"nodeSelector": {}}
FULL: Json = {
    "nodeSelector": {
        "matchLabels": {"team": "x"},
        "matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4"]}],
    },
    "priority": 5,
    "mode": "enforce",
    "migStrategy": "mixed",
    "allocation": {"policy": "packed", "keepTogether": "preferred", "topology": "none"},
    "sharing": {
        "strategy": "time-slicing",
        "renameByDefault": False,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    },
    "adoptManual": False,
    "allowPlacements": False,
    "plugin": {"deviceListStrategy": ["envvar"], "passDeviceSpecs": False},
}
NO_MIG: Json = {**FULL, "migStrategy": "none"}
TERM_ON_A_LABEL: Json = {**MINIMAL, "nodeSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}
TERM_OFF_A_LABEL: Json = {
    **MINIMAL,
    "nodeSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
}
NOT_IN: Json = {
    **MINIMAL,
    "nodeSelector": {
        "matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": ["NVIDIA-L4"]}]
    },
}
DRY: Json = {**FULL, "mode": "dry-run"}
SPREAD: Json = {**MINIMAL, "allocation": {"policy": "spread"}}
MPS: Json = {**NO_MIG, "sharing": {**FULL["sharing"], "strategy": "mps"}}
WINNING: Json = {**FULL, "priority": 9}
ADOPTING: Json = {**WINNING, "adoptManual": True}
RENAMING: Json = {**FULL, "sharing": {**FULL["sharing"], "renameByDefault": True}}
LINKED: Json = {**FULL, "allocation": {**FULL["allocation"], "topology": "preferred"}}
RESERVABLE: Json = {**WINNING, "allowPlacements": True}
BASES = [
    MINIMAL,
    FULL,
    NO_MIG,
    TERM_ON_A_LABEL,
    TERM_OFF_A_LABEL,
    NOT_IN,
    DRY,
    SPREAD,
    MPS,
    WINNING,
    ADOPTING,
    RENAMING,
    LINKED,
    RESERVABLE,
]

# Text cannot be invented from a schema: values that stay valid, by the field's name. Others get a letter more.
TEXTS = {
    "key": ["team", "nvidia.com/gpu.product"],
    "values": ["NVIDIA-L4", "NVIDIA-A10"],
    "matchLabels": ["x", "y"],
    "name": ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"],
}


def leaves(schema: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Every leaf; `[]` stands for an item of a list and `*` for a value of a map."""
    if "properties" in schema:
        for name, child in schema["properties"].items():
            yield from leaves(child, (*path, name))
    elif "items" in schema:
        yield from leaves(schema["items"], (*path, "[]"))
    elif "additionalProperties" in schema:
        yield from leaves(schema["additionalProperties"], (*path, "*"))
    else:
        yield path, schema


LEAVES = dict(leaves(SCHEMA))


def values_for(path: Path, leaf: Json, now: Any) -> list[Any]:
    """Values that the leaf could have, other than the one it has."""
    if "enum" in leaf:
        values = list(leaf["enum"])
    elif leaf["type"] == "boolean":
        values = [True, False]
    elif leaf["type"] == "integer":
        values = [(now or 0) + step for step in (1, -1, 10)]
    else:
        name = next(part for part in reversed(path) if part not in {"[]", "*"})
        values = TEXTS.get(name, [f"{now or ''}x"])
    return [value for value in values if value != now]


def with_leaf(spec: Json, path: Path, leaf: Json) -> Iterator[tuple[Any, Json]]:
    """Yield value and spec for every other value of the leaf; missing parents are made, with that leaf alone."""
    changed = copy.deepcopy(spec)
    holder: Any = changed
    for part, following in pairwise(path):
        empty: Any = [] if following == "[]" else {}
        if part == "[]":
            if not holder:
                holder.append(empty)
            holder = holder[0]
        else:
            holder = holder.setdefault(part, empty)
    key: Any = path[-1]
    if key == "[]":
        if not holder:
            holder.append(None)
        key = 0
    elif key == "*":
        key = next(iter(holder), "team")
    now = holder[key] if isinstance(holder, list) else holder.get(key)
    for value in values_for(path, leaf, now):
        holder[key] = value
        yield value, copy.deepcopy(changed)


RIVAL = make_policy("rival").priority(5).born(ago(days=9)).sharing(2)
HELD = make_record(make_node("held").build(), make_policy("p").sharing(16))
NODES = [
    make_node("l4").model("NVIDIA-L4").label("team", "x"),
    make_node("a10").model("NVIDIA-A10").label("team", "y"),
    make_node("shared").model("NVIDIA-L4-SHARED").label("team", "x"),
    make_node("manual").model("NVIDIA-L4").label("team", "x").manual("theirs"),
    make_node("held").model("NVIDIA-L4").label("team", "x").config(HELD.config),
    make_node("free").model("NVIDIA-A100-SXM4-80GB"),
]
REPORTS = {"l4": make_report("l4").gpus(2).mig(0, "1g.10gb").build()}


def observed(spec: Json, layout: Layout) -> Any:
    """Everything that an admin can see of this policy beside a rival, over a few nodes; None = the spec is refused."""
    builder: PolicyBuilder = replace(make_policy("p").born(ago(days=1)), spec=spec)
    policy, rival = builder.build(layout), RIVAL.build(layout)
    if policy.spec is None:
        return None
    policies = {"p": policy, "rival": rival}
    states, dry_plans = [], []
    for node in NODES:
        built = node.build()
        facts: dict[str, Any] = {
            "record": HELD if built.name == "held" else None,
            "report": REPORTS.get(built.name),
            "situation": Situation(layout, NOW),
        }
        order = ranked(*policies.values())
        states.append(evaluate(built, order, holder=holder_of(facts["record"], policies), **facts))
        if not policy.enforced:
            dry_plans.append(plan_as_if_enforced(built, order, as_enforced(policy), **facts))
    summary = plan_summary(plan for plan in dry_plans if plan) if dry_plans else None
    mine = [state for state in states if "p" in {*state.assignment.matched, state.owner}]
    status = policy_status(policy, tally("p", mine), PolicyStatus(), NOW, layout=layout, plan=summary)
    plans = [(state.node, state.owner, state.plan, reservable(state.assignment)) for state in states]
    return (plans, status.to_wire())


def seen(spec: Json) -> Any:
    views = [observed(spec, layout) for layout in ("per-node", "shared")]
    return None if None in views else views


WANTED = {
    f"{'.'.join(path).replace('.[]', '[]')}={value}": (path, value)
    for path, leaf in LEAVES.items()
    for value in (leaf.get("enum") or ([True, False] if leaf["type"] == "boolean" else [...]))
}


@pytest.mark.parametrize(("path", "want"), WANTED.values(), ids=WANTED.keys())
def test_a_field_changes_something_that_can_be_seen(path: Path, want: Any) -> None:
    """Every value of an enum or a boolean matters; of a number or a text some other value does."""
    tried = False
    for base in BASES:
        before = seen(base)
        for value, spec in with_leaf(base, path, LEAVES[path]):
            if want is not ... and value != want:
                continue
            after = seen(spec)
            tried = tried or after is not None
            if after is not None and after != before:
                return
    assert tried, f"spec.{'.'.join(path)}: no base spec in which {want!r} would be valid: add one to BASES"
    pytest.fail(f"spec.{'.'.join(path)}: a dead field: {want!r} changes no config, no plan and no status")


def test_every_base_is_a_valid_spec() -> None:
    for base in BASES:
        assert seen(base) is not None, base


def test_the_law_covers_the_whole_spec() -> None:
    top = {path[0] for path in LEAVES}
    assert top == set(SCHEMA["properties"])
    assert len(LEAVES) >= 20
