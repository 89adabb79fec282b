"""The nodes of a pool: those of the inventory, or synthetic ones as the pool describes them (guide, section 6.2)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpusharing.api.placement import FractionPolicy, GpuOrder, Inventory, InventoryNode, Pool
from gpusharing.core.matching import Selector

DEFAULT_MAX_NODES = 8


@dataclass(frozen=True, slots=True)
class PoolNode:
    """One node, as the pool may use it. Sets of GPUs are bit masks over their indexes."""

    # its place in node order
    at: int
    # empty without an inventory
    name: str
    # without `reserved` and MIG-mode ones, whatever their momentary state; sorted
    indexes: tuple[int, ...]
    # of these, the healthy ones
    usable: int
    # of these, the ones nobody uses; none of a node that takes nothing new
    free: int
    # whether it takes something new; otherwise it only keeps what is bound to it
    takes_more: bool
    # every GPU of the node, MIG mode and `reserved` included, is free
    untouched: bool
    # no GPU of it is in use, or reserved for others
    quiet: bool
    # its GPUs, whatever they are
    present: int
    # index -> link group; empty = not known
    groups: Mapping[int, int] = field(default_factory=dict)
    uuids: Mapping[int, str] = field(default_factory=dict)
    # index -> shares that the shared resource offers, and how many of them are in use
    shares: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    # resource names that other placements have there
    names: int = 0
    # GPUs that are taken after all others, if they are free: a service gives them up only where they are needed
    last: int = 0

    def in_order(self, indexes: Iterable[int]) -> list[int]:
        """Return the GPUs in the order in which they are taken: the lowest first."""
        lowest = sorted(indexes)
        return sorted(lowest, key=lambda index: self.last >> index & 1) if self.last else lowest

    @property
    def count(self) -> int:
        """Return how many GPUs it has, whatever they are."""
        return self.present.bit_count()

    @property
    def size(self) -> int:
        """Return how many GPUs the pool may ever use there."""
        return len(self.indexes)


@dataclass(frozen=True, slots=True)
class Space:
    """The nodes of one pool and the rules for using them."""

    pool: str
    nodes: tuple[PoolNode, ...]
    auto: bool
    # how many may be opened
    cap: int
    # whether the nodes are an inventory's
    real: bool
    # shares of each GPU
    replicas: int
    fractions: FractionPolicy
    order: GpuOrder
    # GPUs of the largest node: what needs more is larger than a node
    largest: int
    # the highest index that a GPU of the pool has; -1 = there is none
    last_index: int
    # by UUID, as far as they are known: the node's place, and the index there
    gpus: Mapping[str, tuple[int, int]]

    @property
    def candidates(self) -> int:
        """Return how many nodes take something new."""
        return sum(node.takes_more for node in self.nodes)


def indexes_of(mask: int) -> tuple[int, ...]:
    """Return the members of a bit mask, the lowest first."""
    return tuple(at for at in range(mask.bit_length()) if mask >> at & 1)


def mask_of(indexes: Collection[int]) -> int:
    """Return the bit mask of the indexes."""
    mask = 0
    for each in indexes:
        mask |= 1 << each
    return mask


def space(
    pool: Pool,
    order: GpuOrder,
    inventory: Inventory | None,
    *,
    used: Collection[str] = (),
    kept: Collection[str] = (),
) -> Space | None:
    """Return the pool's nodes; None = neither the pool nor an inventory says what they have.

    `used` are nodes of earlier pools of the placement, `kept` those that services of this pool are bound to.
    """
    auto = pool.nodes == "auto"
    cap = (pool.max_nodes or DEFAULT_MAX_NODES) if pool.nodes == "auto" else pool.nodes
    if inventory is not None:
        nodes = _of_inventory(pool, inventory, used, kept)
    elif sizes := _sizes(pool, cap):
        nodes = tuple(_synthetic(pool, at, size) for at, size in enumerate(sizes))
    else:
        return None
    return Space(
        pool=pool.name,
        nodes=nodes,
        auto=auto,
        cap=cap,
        real=inventory is not None,
        replicas=pool.sharing.replicas,
        fractions=pool.sharing.policy,
        order=order,
        largest=max((len(each.indexes) for each in nodes), default=0),
        last_index=max((each.present.bit_length() for each in nodes), default=0) - 1,
        gpus={uuid: (each.at, index) for each in nodes for index, uuid in each.uuids.items()},
    )


def _sizes(pool: Pool, count: int) -> Sequence[int]:
    """Return the GPUs of every node as the pool says it."""
    return pool.gpus_by_node or ([pool.gpus_per_node] * count if pool.gpus_per_node else ())


def _synthetic(pool: Pool, at: int, size: int) -> PoolNode:
    present = mask_of(range(size))
    free = present & ~mask_of(pool.reserved)
    return PoolNode(
        at=at,
        name="",
        indexes=indexes_of(free),
        usable=free,
        free=free,
        takes_more=True,
        untouched=free == present,
        quiet=True,
        present=present,
    )


def _of_inventory(
    pool: Pool, inventory: Inventory, used: Collection[str], kept: Collection[str]
) -> tuple[PoolNode, ...]:
    """Return the nodes by name."""
    selector = Selector.of(pool.node_selector) if pool.node_selector else Selector()
    matching = [each for each in inventory.nodes if each.name not in used and selector.matches(each.labels)]
    there = [each for each in matching if _takes_more(each) or each.name in kept]
    return tuple(_read(pool, at, node) for at, node in enumerate(sorted(there, key=lambda each: each.name)))


def _takes_more(node: InventoryNode) -> bool:
    return node.ready and node.schedulable


def _read(pool: Pool, at: int, node: InventoryNode) -> PoolNode:
    gpus = sorted(node.gpus, key=lambda gpu: gpu.index)
    ours = [gpu for gpu in gpus if gpu.index not in pool.reserved and not gpu.mig_mode]
    usable = [gpu for gpu in ours if gpu.healthy]
    free = [gpu for gpu in usable if not gpu.in_use and gpu.reserved_by is None]
    others = [gpu for gpu in gpus if gpu.index not in pool.reserved and (gpu.in_use or gpu.reserved_by is not None)]
    takes_more = _takes_more(node)
    return PoolNode(
        at=at,
        name=node.name,
        indexes=tuple(gpu.index for gpu in ours),
        usable=mask_of([gpu.index for gpu in usable]),
        free=mask_of([gpu.index for gpu in free]) if takes_more else 0,
        takes_more=takes_more,
        untouched=len(free) == len(gpus),
        quiet=takes_more and not others,
        present=mask_of([gpu.index for gpu in gpus]),
        groups={gpu.index: gpu.link_group for gpu in ours if gpu.link_group is not None},
        uuids={gpu.index: gpu.uuid for gpu in gpus if gpu.uuid},
        shares={gpu.index: (gpu.shares, gpu.in_use) for gpu in ours},
        names=node.names,
    )
