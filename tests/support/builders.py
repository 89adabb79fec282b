"""Nodes, policies and reports as tests need them: `make_node("a").model("NVIDIA-L4").gpus(8)`.

A builder is a value: every method returns a new one. `build()` gives what the core works with, `object()` what the API
server shows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from gpusharing.api import names
from gpusharing.api.node import Gpu, GpuNodeStatus, MigDevice, ReservationReport, ReservationState, ResourceReport
from gpusharing.api.policy import PolicySpec
from gpusharing.core.advertise import implied
from gpusharing.core.desired_state import Layout, Policy, RenderedConfig, compile_policy
from gpusharing.core.matching import Node, read_node
from gpusharing.core.records import Record

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
MODEL = "NVIDIA-A100-SXM4-80GB"


def ago(**duration: float) -> datetime:
    """The moment that long before `NOW`: `ago(minutes=5)`."""
    return NOW - timedelta(**duration)


@dataclass(frozen=True)
class NodeBuilder:
    """A GPU node, labelled with a model; nobody has set its config label."""

    name: str
    labels: dict[str, str]
    node_uid: str
    managers: tuple[tuple[str, str], ...] = ()
    counts: dict[str, str] | None = None
    in_scope: bool = True

    def label(self, key: str, value: str) -> Self:
        return replace(self, labels={**self.labels, key: value})

    def without(self, *keys: str) -> Self:
        return replace(self, labels={key: value for key, value in self.labels.items() if key not in keys})

    def model(self, product: str) -> Self:
        return self.label(names.PRODUCT_LABEL, product)

    def gpus(self, count: int) -> Self:
        return self.label(names.COUNT_LABEL, str(count))

    def mig(self, strategy: str, **counts: int) -> Self:
        """GFD's labels in MIG mode: `mig("mixed", **{"1g.10gb": 7})`."""
        node = self.label(names.MIG_STRATEGY_LABEL, strategy)
        for profile, count in counts.items():
            node = node.label(f"{names.MIG_RESOURCE_PREFIX}{profile}.count", str(count))
        return node

    def skipped(self) -> Self:
        return self.label(names.SKIP_LABEL, "true")

    def config(self, value: str, *managers: str) -> Self:
        """The config label, set by these field managers; without any by us."""
        owners = managers or (names.FIELD_MANAGER,)
        applied = {names.FIELD_MANAGER, names.RESTORING_FIELD_MANAGER}
        operations = tuple((owner, "Apply" if owner in applied else "Update") for owner in owners)
        return replace(self.label(names.CONFIG_LABEL, value), managers=operations)

    def manual(self, value: str) -> Self:
        """The config label as a person sets it."""
        return self.config(value, "kubectl-label")

    def uid(self, uid: str) -> Self:
        return replace(self, node_uid=uid)

    def allocatable(self, **counts: int | str) -> Self:
        """Devices by short name: `allocatable(gpu=8)`, `allocatable(**{"mig-1g.10gb": 7})`."""
        return replace(self, counts={f"{names.RESOURCE_DOMAIN}{key}": str(count) for key, count in counts.items()})

    def out_of_scope(self) -> Self:
        return replace(self, in_scope=False)

    def object(self) -> dict[str, Any]:
        owned = {"f:metadata": {"f:labels": {f"f:{names.CONFIG_LABEL}": {}}}}
        obj: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "uid": self.node_uid,
                "labels": dict(self.labels),
                "managedFields": [
                    {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": owned}
                    for manager, operation in self.managers
                ],
            },
        }
        if self.counts is not None:
            obj["status"] = {"allocatable": {"cpu": "64", "memory": "512Gi", **self.counts}}
        return obj

    def build(self) -> Node:
        return read_node(self.object(), in_scope=self.in_scope)


def make_node(name: str = "a") -> NodeBuilder:
    """A node with one label that says that it has GPUs."""
    return NodeBuilder(name, {names.PRODUCT_LABEL: MODEL}, f"uid-{name}")


@dataclass(frozen=True)
class PolicyBuilder:
    """A policy that selects every GPU node, and shares nothing."""

    name: str
    spec: dict[str, Any]
    policy_uid: str
    number: int = 1
    created: datetime | None = field(default_factory=lambda: ago(days=1))

    def with_spec(self, **fields: Any) -> Self:
        return replace(self, spec={**self.spec, **fields})

    def selecting(self, labels: dict[str, str]) -> Self:
        """`matchLabels`."""
        return self.with_spec(nodeSelector={**self.spec["nodeSelector"], "matchLabels": labels})

    def where(self, key: str, operator: str, *values: str) -> Self:
        """One more term of `matchExpressions`."""
        selector = self.spec["nodeSelector"]
        term = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        return self.with_spec(
            nodeSelector={**selector, "matchExpressions": [*selector.get("matchExpressions", []), term]}
        )

    def priority(self, priority: int) -> Self:
        return self.with_spec(priority=priority)

    def dry_run(self) -> Self:
        return self.with_spec(mode="dry-run")

    def mig(self, strategy: str) -> Self:
        return self.with_spec(migStrategy=strategy)

    def allocating(self, policy: str = "distributed", **fields: str) -> Self:
        """`allocating("packed", keepTogether="preferred")`."""
        return self.with_spec(allocation={"policy": policy, **fields})

    def sharing(self, replicas: int | dict[str, int] = 4, strategy: str = "time-slicing", **fields: bool) -> Self:
        """`sharing(4)`, or a dict from resource to replicas."""
        listed = replicas if isinstance(replicas, dict) else {names.GPU_RESOURCE: replicas}
        resources = [{"name": name, "replicas": count} for name, count in listed.items()]
        return self.with_spec(sharing={"strategy": strategy, "resources": resources, **fields})

    def adopting(self) -> Self:
        return self.with_spec(adoptManual=True)

    def plugin(self, **flags: Any) -> Self:
        return self.with_spec(plugin=flags)

    def invalid(self) -> Self:
        """A spec that the API server would have refused."""
        return self.with_spec(sharing={"strategy": "time-slicing", "resources": [{"name": "gpu", "replicas": 1}]})

    def born(self, created: datetime | None) -> Self:
        return replace(self, created=created)

    def generation(self, number: int) -> Self:
        return replace(self, number=number)

    def uid(self, uid: str) -> Self:
        return replace(self, policy_uid=uid)

    def object(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self.name, "uid": self.policy_uid, "generation": self.number}
        if self.created is not None:
            metadata["creationTimestamp"] = self.created.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"apiVersion": names.API_VERSION, "kind": names.POLICY_KIND, "metadata": metadata, "spec": self.spec}

    def build(self, layout: Layout = "per-node") -> Policy:
        return compile_policy(self.object(), layout)

    def rendered(self, layout: Layout = "per-node") -> RenderedConfig:
        rendered = self.build(layout).rendered
        assert rendered is not None, "the spec of this builder is invalid"
        return rendered


def make_policy(name: str = "p") -> PolicyBuilder:
    """A policy for every GPU node, a day old."""
    return PolicyBuilder(name, {"nodeSelector": {}}, f"uid-{name}")


def make_spec(**fields: Any) -> PolicySpec:
    """A spec as users write it, with the selector filled in."""
    return PolicySpec.model_validate({"nodeSelector": {}, **fields}, by_alias=True, by_name=False)


def ranked(*policies: Policy) -> list[Policy]:
    """Policies in the order in which they win."""
    return sorted(policies, key=lambda policy: policy.rank)


def make_record(node: Node, policy: PolicyBuilder, *, previous_label: str | None = None, **data: str) -> Record:
    """What the controller wrote for the node when this policy came to own it (layout per-node)."""
    rendered = policy.rendered()
    return Record(
        node=node.name,
        node_uid=node.uid,
        policy=policy.name,
        policy_uid=policy.policy_uid,
        config=rendered.name,
        previous_label=previous_label,
        data={rendered.name: rendered.text, **data},
    )


@dataclass(frozen=True)
class ReportBuilder:
    """What the plugin of a node with unshared, healthy GPUs reports."""

    name: str
    inventory: tuple[Gpu, ...] = ()
    desired: str = ""
    served: str = ""
    error: str = ""
    rows: tuple[ResourceReport, ...] = ()
    entries: tuple[ReservationReport, ...] = ()

    def gpus(self, count: int, model: str = "NVIDIA A100-SXM4-80GB") -> Self:
        added = tuple(Gpu(index=index, uuid=f"GPU-{self.name}-{index}", model=model) for index in range(count))
        return replace(self, inventory=added)

    def _gpu(self, index: int, **fields: Any) -> Self:
        changed = self.inventory[index].model_copy(update=fields)
        return replace(self, inventory=(*self.inventory[:index], changed, *self.inventory[index + 1 :]))

    def mig(self, index: int, *profiles: str) -> Self:
        """Puts one GPU into MIG mode, with these devices."""
        devices = [
            MigDevice(uuid=f"MIG-{self.name}-{index}-{number}", profile=profile)
            for number, profile in enumerate(profiles)
        ]
        return self._gpu(index, mig_mode=True, mig_devices=devices)

    def sick(self, index: int) -> Self:
        return self._gpu(index, healthy=False)

    def serving(self, rendered: RenderedConfig) -> Self:
        """Serves this config, and the kubelet confirms every device of a healthy GPU."""
        healthy = implied(rendered.config, [gpu for gpu in self.inventory if gpu.healthy])
        rows = tuple(
            ResourceReport(
                name=name, devices=count, healthy=healthy.get(name, 0), advertised=healthy.get(name, 0), predicted=count
            )
            for name, count in implied(rendered.config, self.inventory).items()
        )
        return replace(self, desired=rendered.name, served=rendered.name, rows=rows)

    def asked_for(self, rendered: RenderedConfig, error: str = "") -> Self:
        """Sees this config as desired, and serves what it served before."""
        return replace(self, desired=rendered.name, error=error)

    def row(self, name: str, **fields: Any) -> Self:
        """Changes (or adds) the row of one resource."""
        known = {row.name: row for row in self.rows}
        known[name] = known.get(name, ResourceReport(name=name)).model_copy(update=fields)
        return replace(self, rows=tuple(known.values()))

    def reserved(self, state: ReservationState, *indexes: int, before: Iterable[int] = ()) -> Self:
        """GPUs that placements have, or shall have; and those that the name had `before`."""
        uuids, former = ([self.inventory[index].uuid for index in some] for some in (indexes, before))
        name = f"{names.PLACE_DOMAIN}s{len(self.entries)}.p.team-a"
        entry = ReservationReport(resource=name, gpus=uuids, releasing=former, state=state)
        return replace(self, entries=(*self.entries, entry))

    def build(self) -> GpuNodeStatus:
        return GpuNodeStatus.model_validate(
            {
                "reservations": list(self.entries),
                "gpus": list(self.inventory),
                "gpuCount": len(self.inventory),
                "config": {"desired": self.desired, "served": self.served, "error": self.error},
                "resources": list(self.rows),
            }
        )

    def object(self) -> dict[str, Any]:
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_KIND,
            "metadata": {"name": self.name, "uid": f"uid-report-{self.name}"},
            "status": self.build().to_wire(),
        }


def make_report(name: str = "a") -> ReportBuilder:
    """A report of a node with one GPU that serves nothing."""
    return ReportBuilder(name).gpus(1)
