"""The nodes that a placement in a cluster may be planned on, from what the controller knows of them (guide, 5.5)."""

from collections.abc import Collection, Iterator, Mapping

from gpusharing.api.placement import Enforcement, Inventory, InventoryGpu, InventoryNode, PlacementSpec
from gpusharing.core.desired_state import Assignment, Outcome
from gpusharing.core.matching import Selector
from gpusharing.core.placement.cluster import Cluster
from gpusharing.core.placement.holders import Holders
from gpusharing.core.placement.observed import SeenGpu, SeenNode
from gpusharing.core.placement.pools import DEFAULT_MAX_NODES
from gpusharing.core.placement.stored import Placement

# more than these are looked at by their state only
MANY_NODES = 256
_NO_GPUS: Mapping[str, int] = {}


def reservable(assignment: Assignment) -> bool:
    """Whether placements may reserve GPUs of the node that this was decided about.

    The policy that owns it must allow it, and must not share by MPS, whose daemon holds the GPUs (guide, 8.5 and E15).
    """
    if assignment.outcome is not Outcome.OWNED or assignment.policy is None or assignment.policy.spec is None:
        return False
    spec = assignment.policy.spec
    return spec.allow_placements and (spec.sharing is None or spec.sharing.strategy != "mps")


def inventory(
    cluster: Cluster,
    placement: Placement,
    spec: PlacementSpec,
    held: Holders,
    bound: Collection[str],
    *,
    only_bound: bool = False,
    many: int = MANY_NODES,
) -> Inventory:
    """Return the nodes; `bound` are those on which something of the placement stays.

    Of more than `many` nodes those in the same state are passed over beyond the first few.

    Of a node that may not take anything new now (its kubelet or plugin is not ready, it is cordoned, or its policy no
    longer allows it), what is bound there stays: it is there, and not ready.
    """
    stored = _stored_gpus(placement)
    names = sorted(bound) if only_bound else _candidates(cluster, spec, held, bound, many)
    nodes = [
        _node(name, cluster.nodes[name], spec.enforcement, held, stored.get(name, _NO_GPUS), cluster.taken)
        for name in names
        if name in cluster.nodes
    ]
    return Inventory.model_construct(nodes=nodes)


def _candidates(cluster: Cluster, spec: PlacementSpec, held: Holders, bound: Collection[str], many: int) -> list[str]:
    """Return the nodes that bear on a plan, by name.

    Of nodes in the same state as many as the placement may open are as good as all: equal ones are taken by name.
    """
    selectors = [Selector.of(pool.node_selector) if pool.node_selector else Selector() for pool in spec.pools]
    found: list[tuple[str, tuple[bool, ...]]] = []
    for name, seen in sorted(cluster.nodes.items()):
        pools = tuple(selector.matches(seen.node.labels) for selector in selectors)
        if name in bound or (any(pools) and seen.gpu_node is not None and may_take(seen, spec.enforcement)):
            found.append((name, pools))
    if len(found) <= many:
        return [name for name, _ in found]
    wanted = sum(pool.nodes if pool.nodes != "auto" else pool.max_nodes or DEFAULT_MAX_NODES for pool in spec.pools)
    counts: dict[object, int] = {}
    kept = []
    for name, pools in found:
        state = (pools, _state(cluster.nodes[name], held, cluster.taken))
        counts[state] = counts.get(state, 0) + 1
        if name in bound or counts[state] <= wanted:
            kept.append(name)
    return kept


def _state(seen: SeenNode, held: Holders, taken: Collection[str]) -> tuple[object, ...]:
    """Return everything about a node that the planner decides by."""
    gpu_node = seen.gpu_node
    gpus = gpu_node.gpus if gpu_node is not None else ()
    ready = gpu_node is not None and gpu_node.ready and seen.node.ready and seen.node.schedulable
    return (
        ready,
        seen.reservable,
        len(held.names.get(seen.node.name, ())),
        *(
            (gpu.index, gpu.healthy, gpu.mig_mode, gpu.link_group, gpu.shares, gpu.in_use, _mark(gpu, held, taken))
            for gpu in gpus
        ),
    )


def _mark(gpu: SeenGpu, held: Holders, taken: Collection[str]) -> str:
    if gpu.uuid in held.others:
        return "another's"
    if gpu.uuid in taken:
        return "taken"
    return "own" if gpu.uuid in held.own else ""


def may_take(seen: SeenNode, enforcement: Enforcement) -> bool:
    """Whether the node's policy lets placements of this enforcement have GPUs there."""
    return seen.reservable or enforcement == "env"


def _stored_gpus(placement: Placement) -> dict[str, dict[str, int]]:
    """Return node → GPU → index of the stored plan."""
    stored: dict[str, dict[str, int]] = {}
    for _, assignment in placement.assignments():
        here = stored.setdefault(assignment.node_name, {})
        here |= dict(zip(assignment.uuids, assignment.indexes, strict=False))
    return stored


def _node(
    name: str,
    seen: SeenNode,
    enforcement: Enforcement,
    held: Holders,
    stored: Mapping[str, int],
    taken: Collection[str],
) -> InventoryNode:
    gpu_node = seen.gpu_node
    ready = gpu_node is not None and gpu_node.ready and bool(seen.node.ready) and may_take(seen, enforcement)
    return InventoryNode.model_construct(
        name=name,
        labels=dict(seen.node.labels),
        names=len(held.names.get(name, ())),
        ready=ready,
        schedulable=bool(seen.node.schedulable),
        gpus=[_gpu(gpu, held, taken) for gpu in _gpus(seen, stored)],
    )


def _gpus(seen: SeenNode, stored: Mapping[str, int]) -> Iterator[SeenGpu]:
    """Yield the GPUs of the report; while that does not say that all is well, also what it lacks of the stored plan."""
    gpu_node = seen.gpu_node
    yield from gpu_node.gpus if gpu_node is not None else ()
    if gpu_node is None or not gpu_node.ready:
        known = {gpu.uuid for gpu in gpu_node.gpus} if gpu_node is not None else set()
        indexes = {gpu.index for gpu in gpu_node.gpus} if gpu_node is not None else set()
        for uuid, index in stored.items():
            if uuid not in known and index not in indexes:
                yield SeenGpu(index, uuid)


def _gpu(gpu: SeenGpu, held: Holders, taken: Collection[str]) -> InventoryGpu:
    own = gpu.uuid in held.own  # what pods of the placement hold is no obstacle to it
    in_use = 0 if own else gpu.in_use
    return InventoryGpu.model_construct(
        index=gpu.index,
        uuid=gpu.uuid,
        healthy=gpu.healthy,
        mig_mode=gpu.mig_mode,
        link_group=gpu.link_group,
        shares=max(gpu.shares, 1),
        in_use=max(in_use, 1) if gpu.uuid in taken else in_use,
        reserved_by=held.others.get(gpu.uuid),
    )
