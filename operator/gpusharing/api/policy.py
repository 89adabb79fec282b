"""`GpuSharingPolicy`: which nodes, MIG strategy, sharing and allocation policy; and what became of it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpusharing.api.meta import VALUES_MESSAGE, Condition, LabelSelector, Model, Report, values_fit
from gpusharing.api.sharing import (
    MAX_MPS_REPLICAS,
    MPS_REPLICAS_MESSAGE,
    Allocation,
    DeviceIdStrategy,
    DeviceListStrategy,
    MigStrategy,
    SharedResource,
    SharingStrategy,
)

SAMPLE_MAX = 10

# Labels that the config itself changes (decision 7): a selector on one would un-match its own nodes.
SELF_CHANGED_LABELS = (
    "nvidia.com/device-plugin.config",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.strategy",
    "nvidia.com/mps.capable",
)
SELF_CHANGED_PREFIX = "nvidia.com/mig-"
# ... and those that change only where `single` turns MIG devices into nvidia.com/gpu.
SINGLE_CHANGED_LABELS = ("nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.multiprocessors")
SINGLE_CHANGED_PREFIXES = ("nvidia.com/gpu.slices.", "nvidia.com/gpu.engines.")

SELF_CHANGED_MESSAGE = (
    "the config itself changes nvidia.com/device-plugin.config, gpu.replicas, gpu.sharing-strategy, mig.strategy, "
    "mig-* and mps.capable: select by nvidia.com/gpu.product or a label of your own"
)
SINGLE_CHANGED_MESSAGE = (
    "migStrategy: single changes nvidia.com/gpu.count, gpu.memory, gpu.multiprocessors, gpu.slices.* and "
    "gpu.engines.*: select by nvidia.com/gpu.product or a label of your own"
)
MPS_WITH_MIG_MESSAGE = "MPS cannot be combined with MIG: set migStrategy to none, or sharing.strategy to time-slicing"
SPREAD_MESSAGE = "keepTogether contradicts policy: spread: set it to none, or choose packed or distributed"
TOPOLOGY_MESSAGE = "topology: preferred needs keepTogether: preferred or required, or policy: spread"
MIG_RESOURCE_MESSAGE = "nvidia.com/mig-* resources exist only with migStrategy: mixed"


def _keys(selector: str) -> str:
    """Return the CEL list of the label keys that a selector names."""
    return (
        f"((has({selector}.matchLabels) ? {selector}.matchLabels.map(k, k) : []) + "
        f"(has({selector}.matchExpressions) ? {selector}.matchExpressions.map(e, e.key) : []))"
    )


def _any_of(keys: tuple[str, ...], prefixes: tuple[str, ...]) -> str:
    """Return the CEL test whether `k` is one of the keys or starts with one of the prefixes."""
    listed = ", ".join(f"'{key}'" for key in keys)
    return " || ".join([f"k in [{listed}]", *(f"k.startsWith('{prefix}')" for prefix in prefixes)])


def _rules(*rules: dict[str, str]) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}


NODE_SELECTOR_RULES = _rules(
    {
        "rule": f"!{_keys('self')}.exists(k, {_any_of(SELF_CHANGED_LABELS, (SELF_CHANGED_PREFIX,))})",
        "message": SELF_CHANGED_MESSAGE,
    },
    {
        "rule": values_fit("self"),
        "message": VALUES_MESSAGE,
        "fieldPath": ".matchExpressions",
    },
)
SHARING_RULES = _rules(
    {
        "rule": f"self.strategy != 'mps' || self.resources.all(r, r.replicas <= {MAX_MPS_REPLICAS})",
        "message": MPS_REPLICAS_MESSAGE,
        "fieldPath": ".resources",
    }
)
ALLOCATION_RULES = _rules(
    {
        "rule": "self.policy != 'spread' || self.keepTogether == 'none'",
        "message": SPREAD_MESSAGE,
        "fieldPath": ".keepTogether",
    },
    {
        "rule": "self.topology == 'none' || self.keepTogether != 'none' || self.policy == 'spread'",
        "message": TOPOLOGY_MESSAGE,
        "fieldPath": ".topology",
    },
)
SPEC_RULES = _rules(
    {
        "rule": "!has(self.sharing) || self.sharing.strategy != 'mps' || self.migStrategy == 'none'",
        "message": MPS_WITH_MIG_MESSAGE,
        "fieldPath": ".migStrategy",
        "reason": "FieldValueForbidden",
    },
    {
        "rule": (
            "!has(self.sharing) || self.migStrategy == 'mixed' || "
            "self.sharing.resources.all(r, !r.name.startsWith('nvidia.com/mig-'))"
        ),
        "message": MIG_RESOURCE_MESSAGE,
        "fieldPath": ".sharing.resources",
    },
    {
        "rule": (
            f"self.migStrategy != 'single' || !{_keys('self.nodeSelector')}.exists(k, "
            f"{_any_of(SINGLE_CHANGED_LABELS, SINGLE_CHANGED_PREFIXES)})"
        ),
        "message": SINGLE_CHANGED_MESSAGE,
        "fieldPath": ".nodeSelector",
    },
)


class Sharing(Model):
    """How devices are split into shares."""

    strategy: SharingStrategy = Field(
        description=(
            "time-slicing: processes take turns, without memory isolation. mps: processes run side by side through "
            "NVIDIA's MPS daemon; whole GPUs only."
        )
    )
    rename_by_default: bool = Field(
        default=False,
        description="true advertises shares as <resource>.shared instead of <resource>: pods ask for shares by name.",
    )
    fail_requests_greater_than_one: bool | None = Field(
        default=None,
        description=(
            "true refuses a container that asks for more than one share. Absent = the plugin's default: allowed with "
            "time-slicing, refused with MPS."
        ),
    )
    resources: list[SharedResource] = Field(
        description="The resources that are shared, each once; a resource that is not listed stays whole.",
        min_length=1,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class PluginFlags(Model):
    """Flags of the device plugin, in its own spelling. Absent = not rendered: the plugin's own default holds."""

    device_list_strategy: list[DeviceListStrategy] | None = Field(
        default=None,
        description="How devices are handed to containers; several may be combined.",
        min_length=1,
        max_length=4,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    device_id_strategy: DeviceIdStrategy | None = Field(
        default=None,
        alias="deviceIDStrategy",
        description="Whether containers are told GPUs by uuid or by index.",
    )
    pass_device_specs: bool | None = Field(
        default=None,
        description="true also hands over device nodes; needed beside the CPU manager's static policy.",
    )
    fail_on_init_error: bool | None = Field(
        default=None,
        description="true makes a plugin that finds no driver fail; false lets it wait with nothing served.",
    )


class PolicySpec(Model):
    """What the admin wants."""

    node_selector: LabelSelector = Field(
        description=(
            "Which GPU nodes; {} means all of them. nvidia.com/gpu.product is compared with and without the suffix "
            "that GPU Feature Discovery adds once sharing or MIG is on (-SHARED, -MIG-...)."
        ),
        json_schema_extra={"x-kubernetes-map-type": "atomic", **NODE_SELECTOR_RULES},
    )
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = Field(
        default=0,
        description=(
            "Which policy owns a node that several name: the highest priority, then the older policy, then the name."
        ),
        json_schema_extra={"format": "int32"},
    )
    mode: Literal["enforce", "dry-run"] = Field(
        default="enforce",
        description=(
            "enforce writes. dry-run shows in status.plan what it would do and writes nothing; nodes that the policy "
            "already owns stay as they are."
        ),
    )
    mig_strategy: MigStrategy = Field(
        default="none",
        description=(
            "How MIG devices are advertised: none (as whole GPUs), single (as nvidia.com/gpu), mixed (as "
            "nvidia.com/mig-<profile>)."
        ),
    )
    allocation: Allocation = Field(
        default=Allocation(),
        description="How the devices of a request are chosen. Whole, unshared GPUs are always chosen by their links.",
        json_schema_extra=ALLOCATION_RULES,
    )
    sharing: Sharing | None = Field(
        default=None, description="How devices are shared; absent = not at all.", json_schema_extra=SHARING_RULES
    )
    adopt_manual: bool = Field(
        default=False,
        description=(
            "true takes over nodes whose config label was set by a person or another tool; the old value is recorded "
            "and put back when the policy lets go."
        ),
    )
    allow_placements: bool = Field(
        default=False,
        description=(
            "true lets GpuPlacements reserve GPUs of the nodes that this policy owns, as far as no pod has them; who "
            "may write GpuPlacements can then take whole GPUs out of the shared resource."
        ),
    )
    plugin: PluginFlags | None = Field(
        default=None, description="Flags for the device plugin itself; only what is said here is rendered."
    )


Count = Annotated[int, Field(ge=0)]


class NodeCounts(Report):
    """How many nodes are where."""

    matched: Count = Field(default=0, description="GPU nodes that the selector names.")
    owned: Count = Field(default=0, description="Matched nodes that this policy won.")
    updated: Count = Field(default=0, description="Owned nodes whose ConfigMap and label are written.")
    applied: Count = Field(default=0, description="Owned nodes that serve the config, with the devices it implies.")
    conflicting: Count = Field(default=0, description="Matched nodes lost in a tie of priority.")
    skipped: Count = Field(
        default=0,
        description=(
            "Matched nodes left alone: gpusharing.io/skip, configured by hand, or kept by another policy in dry-run."
        ),
    )
    failed: Count = Field(default=0, description="Owned nodes that refuse the config or advertise a wrong capacity.")


class PlanSample(Report):
    """One node of a dry-run plan."""

    node: str = Field(description="The node's name.", max_length=253)
    from_: str = Field(default="", alias="from", description="The config label as it is; empty = none.", max_length=63)
    to: str = Field(default="", description="The config label as it would be; empty = none.", max_length=63)


class PlanSummary(Report):
    """What a dry-run policy would do if it were enforced."""

    add: Count = Field(default=0, description="Nodes that would get a config for the first time.")
    change: Count = Field(default=0, description="Nodes whose config would change.")
    release: Count = Field(default=0, description="Nodes that this policy holds and would let go.")
    unchanged: Count = Field(default=0, description="Nodes that would stay as they are.")
    skipped: Count = Field(default=0, description="Nodes that would be left alone.")
    sample: list[PlanSample] = Field(
        default=[],
        description="The first nodes that would change, by name.",
        max_length=SAMPLE_MAX,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class PolicyStatus(Report):
    """What became of it; written by the controller alone."""

    observed_generation: int | None = Field(
        default=None, description="The generation that all conditions and counts were computed from.", ge=0
    )
    conditions: list[Condition] = Field(
        default=[],
        description=(
            "Ready always; Reconciling, Stalled, Conflicted and Degraded only while true; Applied once nodes are owned."
        ),
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    config_name: str = Field(
        default="", description="Value of the label nvidia.com/device-plugin.config on owned nodes.", max_length=63
    )
    config_hash: str = Field(default="", description="SHA-256 of the canonical rendered config, in hex.", max_length=64)
    nodes: NodeCounts = Field(default=NodeCounts(), description="How many nodes are where.")
    plan: PlanSummary | None = Field(default=None, description="Only in mode dry-run: what would be done.")
    allocation_policy: str = Field(default="", description="The allocation policy, for `kubectl get`.", max_length=63)
    sharing: str = Field(
        default="", description="The sharing in words, for `kubectl get`; for example 4x time-slicing.", max_length=63
    )


class PolicyObject(Model):
    """How the GPUs of the nodes that its selector names are shared, and what became of it; edit it with kubectl."""

    api_version: Literal["gpusharing.io/v1alpha1"] = Field(description="The API group and version.")
    kind: Literal["GpuSharingPolicy"] = Field(description="The kind.")
    metadata: dict[str, Any] = Field(default={}, description="Standard object metadata.")
    spec: PolicySpec = Field(description="What the admin wants.", json_schema_extra=SPEC_RULES)
    status: PolicyStatus = Field(default=PolicyStatus(), description="What became of it.")
