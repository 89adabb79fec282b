"""The layout of one node: which GPUs each piece gets (guide, section 6.6)."""

from collections.abc import Mapping, Sequence

from gpusharing.api.placement import FractionPolicy
from gpusharing.core.placement.pieces import Piece
from gpusharing.core.placement.pools import PoolNode, Space, indexes_of

# (service, part) -> the GPUs of the piece, in the order in which they are rendered
Layout = dict[tuple[int, int], tuple[int, ...]]


def lay_out(node: PoolNode, pieces: Sequence[Piece], space: Space) -> Layout | None:
    """Return the GPUs of every piece, or None where they do not all find room on the node."""
    own = sorted((each for each in pieces if not each.pins), key=lambda each: (each.service, each.part))
    if space.order == "aligned":
        own = _most_gpus_first(own)
    pinned = [each for each in pieces if each.pins]
    found = _one_pass(node, pinned, own, space, space.fractions)
    if found is None and any(each.cut for each in own):
        found = _one_pass(node, pinned, sorted(own, key=lambda each: each.cut), space, "packed")
    return found


def free_after(node: PoolNode, layout: Layout) -> tuple[int, ...]:
    """Return the GPUs that are wholly free beside the layout."""
    taken = {index for indexes in layout.values() for index in indexes}
    return tuple(index for index in indexes_of(node.free) if index not in taken)


def _most_gpus_first(own: Sequence[Piece]) -> list[Piece]:
    """Return the pieces by what their service has on this node; the sort is stable, so ties keep their order."""
    gpus: dict[int, int] = {}
    for each in own:
        gpus[each.service] = gpus.get(each.service, 0) + each.gpus
    return sorted(own, key=lambda each: -gpus[each.service])


def _one_pass(
    node: PoolNode, pinned: Sequence[Piece], own: Sequence[Piece], space: Space, fractions: FractionPolicy
) -> Layout | None:
    left = dict.fromkeys(indexes_of(node.free), space.replicas)
    layout: Layout = {}
    for piece in (*pinned, *own):
        if piece.opaque:
            layout[piece.service, piece.part] = ()
            continue
        if piece.pins or piece.whole:
            chosen = piece.pins or indexes_of(node.usable)
            if not piece.bound and any(left.get(index, 0) < piece.shares for index in chosen):
                return None
        elif piece.cut:
            chosen = _cut(piece, left, fractions, node)
        else:
            chosen = _whole(piece, left, space, node)
        if len(chosen) != piece.gpus and not piece.whole:
            return None
        for index in chosen:
            left[index] = left.get(index, 0) - piece.shares
        layout[piece.service, piece.part] = chosen
    return layout


def _cut(piece: Piece, left: Mapping[int, int], fractions: FractionPolicy, node: PoolNode) -> tuple[int, ...]:
    """Return distinct GPUs with enough shares left: the fullest first, or the emptiest."""
    enough = node.in_order([index for index, shares in left.items() if shares >= piece.shares])
    # the sort is stable, reversed or not: of GPUs that are as full as each other the first in order comes first
    ranked = sorted(enough, key=left.__getitem__, reverse=fractions != "packed")
    return tuple(sorted(ranked[: piece.gpus]))


def _whole(piece: Piece, left: Mapping[int, int], space: Space, node: PoolNode) -> tuple[int, ...]:
    """Return the lowest wholly free GPUs; for aligned those of the tightest link group that holds all of them."""
    free = node.in_order([index for index, shares in left.items() if shares == space.replicas])
    if space.order == "aligned" and node.groups:
        by_group: dict[int, list[int]] = {}
        for index in free:
            if index in node.groups:
                by_group.setdefault(node.groups[index], []).append(index)
        holding = [(len(members), group) for group, members in by_group.items() if len(members) >= piece.gpus]
        if holding:
            free = by_group[min(holding)[1]]
    return tuple(sorted(free[: piece.gpus]))
