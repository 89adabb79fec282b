"""Policies → what each node should have: which policy owns it, and the config that policy renders to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from gpusharing.api import names
from gpusharing.api.pluginconfig import (
    Flags,
    GpuSharingSection,
    PluginConfig,
    PluginSection,
    ReplicatedResource,
    ReplicatedResources,
    SharingSection,
)
from gpusharing.api.policy import PolicySpec, Sharing
from gpusharing.api.problems import Problem, parse
from gpusharing.core.checks.policy import check_spec
from gpusharing.core.matching import Node, Selector, is_gpu_node

Layout = Literal["per-node", "shared"]


@dataclass(frozen=True, slots=True)
class RenderedConfig:
    """A policy's plugin config and its content-addressed name."""

    name: str
    digest: str
    text: str
    config: PluginConfig


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, compiled. `spec`, `selector` and `rendered` are None where the spec is invalid: see `problems`."""

    name: str
    uid: str
    generation: int
    created: datetime
    spec: PolicySpec | None
    selector: Selector | None
    rendered: RenderedConfig | None
    problems: tuple[Problem, ...] = ()

    @property
    def enforced(self) -> bool:
        """Whether the policy may take nodes."""
        return self.spec is not None and self.spec.mode == "enforce"

    @property
    def rank(self) -> tuple[int, datetime, str]:
        """Return the order in which policies win: highest priority, then the older, then the name."""
        return (-(self.spec.priority if self.spec else 0), self.created, self.name)


def compile_policy(obj: Mapping[str, Any], layout: Layout) -> Policy:
    """Read a policy object as the API server shows it. Never raises: what is wrong stands in `problems`."""
    metadata = obj.get("metadata") or {}
    spec, problems = parse(PolicySpec, obj.get("spec"), at="spec")
    if spec is not None:
        problems = [problem for problem in check_spec(spec) if problem.severity == "error"]
    valid = spec is not None and not problems
    return Policy(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 1),
        created=_moment(metadata.get("creationTimestamp")),
        spec=spec if valid else None,
        selector=Selector.of(spec.node_selector) if spec and valid else None,
        rendered=render(spec, layout) if spec and valid else None,
        problems=tuple(problems),
    )


_NOT_CREATED = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def _moment(text: object) -> datetime:
    """Return the creation time; a policy that is not created yet (a file) is younger than every other."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return _NOT_CREATED
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def render(spec: PolicySpec, layout: Layout) -> RenderedConfig:
    """Render a spec to the plugin config it stands for. Same content, same name, whatever the order of its lists."""
    plugin = spec.plugin
    allocation = spec.allocation
    config = PluginConfig(
        flags=Flags(
            mig_strategy=spec.mig_strategy if spec.mig_strategy != "none" else None,
            fail_on_init_error=plugin.fail_on_init_error if plugin else None,
            plugin=PluginSection(
                shared_devices_allocation_policy="packed" if allocation.policy == "packed" else "distributed",
                device_list_strategy=sorted(plugin.device_list_strategy or ()) or None if plugin else None,
                device_id_strategy=plugin.device_id_strategy if plugin else None,
                pass_device_specs=plugin.pass_device_specs if plugin else None,
            ),
        ),
        sharing=_sharing(spec.sharing) if spec.sharing else None,
        gpusharing=GpuSharingSection(allocation=allocation) if layout == "per-node" else None,
    )
    digest = config.digest()
    return RenderedConfig(_config_name(spec, layout, digest), digest, config.to_yaml(), config)


def _sharing(sharing: Sharing) -> SharingSection:
    replicated = ReplicatedResources(
        rename_by_default=sharing.rename_by_default or None,
        fail_requests_greater_than_one=sharing.fail_requests_greater_than_one,
        resources=[
            ReplicatedResource(name=resource.name, replicas=resource.replicas)
            for resource in sorted(sharing.resources, key=lambda resource: resource.name)
        ],
    )
    return SharingSection(mps=replicated) if sharing.strategy == "mps" else SharingSection(time_slicing=replicated)


def _config_name(spec: PolicySpec, layout: Layout, digest: str) -> str:
    """Return `<policy>[-<MIG strategy>][-<max replicas>x]-<8 hex>` (decision 2); only the hex means anything.

    The rest says nothing that is not rendered: `spread`, unknown to NVIDIA's plugin, is `distributed` there.
    """
    policy = spec.allocation.policy
    parts: list[str] = ["distributed" if layout == "shared" and policy == "spread" else policy]
    if spec.mig_strategy != "none":
        parts.append(spec.mig_strategy)
    if spec.sharing:
        parts.append(f"{max(resource.replicas for resource in spec.sharing.resources)}x")
    return f"{'-'.join(parts)[: names.LABEL_VALUE_MAX - 9]}-{digest[:8]}"


class Outcome(StrEnum):
    """What a node's assignment is."""

    OWNED = "owned"
    UNCLAIMED = "unclaimed"
    HANDS_OFF = "hands-off"
    FROZEN = "frozen"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which policy owns a node, and which others name it."""

    outcome: Outcome
    policy: Policy | None = None
    # Every policy whose selector names the node, in order of rank; those in mode dry-run count it and take nothing.
    matched: tuple[str, ...] = ()
    # Those that lost to `policy` on equal priority and want another config.
    tied: tuple[str, ...] = ()


def assign(node: Node, ranked: Iterable[Policy], *, holder: Policy | None, reports_gpus: bool = False) -> Assignment:
    """Decide who owns the node.

    `ranked` are the policies in order of rank; `holder` is the policy that the node's record names, if it still
    exists. A holder in mode dry-run, or with an invalid spec, keeps the node exactly as it is (decision 9): an edit
    that must not be enforced must not be felt either.
    """
    matching: list[Policy] = []
    if is_gpu_node(node, reports_gpus=reports_gpus):
        matching = [policy for policy in ranked if policy.selector is not None and policy.selector.matches(node.labels)]
    matched = tuple(policy.name for policy in matching)
    candidates = [policy for policy in matching if policy.enforced]
    if node.hands_off:
        return Assignment(Outcome.HANDS_OFF, matched=matched)
    if holder is not None and not holder.enforced:
        return Assignment(Outcome.FROZEN, holder, matched=matched)
    if not candidates:
        return Assignment(Outcome.UNCLAIMED, matched=matched)
    winner = candidates[0]
    tied = tuple(policy.name for policy in candidates[1:] if _ties(policy, winner))
    return Assignment(Outcome.OWNED, winner, matched, tied)


def _ties(policy: Policy, winner: Policy) -> bool:
    """Whether the policy lost on equal priority while wanting another config (decision 12)."""
    if policy.spec is None or winner.spec is None or policy.rendered is None or winner.rendered is None:
        return False
    return policy.spec.priority == winner.spec.priority and policy.rendered.digest != winner.rendered.digest


def as_enforced(policy: Policy) -> Policy:
    """Return the policy as it would be in mode enforce, for the plan of a dry run."""
    if policy.spec is None:
        return policy
    return replace(policy, spec=policy.spec.model_copy(update={"mode": "enforce"}))
