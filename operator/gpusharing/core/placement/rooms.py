"""What still fits on a node beside what is there: trial layouts, each made once.

A state of a node is a number, and so is a shape of a piece; what a shape makes of a state is looked up after the first
time. Nodes in equal state answer alike. Whole GPUs need no layout to know whether they fit, only counting.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpusharing.core.placement.layout import lay_out
from gpusharing.core.placement.pieces import Piece
from gpusharing.core.placement.pools import PoolNode, Space, mask_of

# The state of a node that takes nothing more: one service owns it.
CLOSED = 0
NO_ROOM = -1


@dataclass(frozen=True, slots=True)
class _Counted:
    """A node without fractions: GPUs that are not pinned, and how many of them are spoken for."""

    free: int
    spoken_for: int


@dataclass(frozen=True, slots=True)
class _Laid:
    """A node with fractions: which node it is like, and the shapes on it."""

    like: int
    shapes: tuple[int, ...]


class Rooms:
    """The states that the nodes of one pool can be in."""

    def __init__(self, space: Space, pieces: Sequence[Piece], held: Mapping[int, Sequence[Piece]]) -> None:
        every = [*pieces, *(piece for there in held.values() for piece in there)]
        self._space, self._held = space, held
        self._cut = any(each.cut for each in every)
        self._pinned = any(each.pins for each in every)
        self._shapes: dict[Piece, int] = {}
        self._pieces: list[Piece] = []
        self._states: dict[Hashable, int] = {None: CLOSED}
        self._values: list[_Counted | _Laid | None] = [None]
        # what each shape is known to make of each state
        self.known: list[dict[int, int]] = [{}]
        self._likes: dict[Hashable, int] = {}
        self._nodes: list[PoolNode] = []
        # shares that nothing has taken, by state
        self.left: list[int] = [0]
        # the state of each node as it stands, with what is bound there
        self.fresh: tuple[int, ...] = tuple(map(self._fresh, space.nodes))
        alike: dict[int, list[int]] = {}
        for at, state in enumerate(self.fresh):
            alike.setdefault(state, []).append(at)
        # places of the nodes by that state, each in node order
        self.alike: tuple[list[int], ...] = tuple(alike.values())

    @property
    def only_counts(self) -> bool:
        """Whether nobody asks for particular GPUs or for parts of them, so that one is as good as another."""
        return not self._cut and not self._pinned

    def shape(self, piece: Piece) -> int:
        """Return the number of the piece's shape: pieces of one shape fit alike."""
        like = replace(piece, part=0) if self._cut else Piece(0, 0, piece.gpus, piece.shares, pins=piece.pins)
        if like not in self._shapes:
            self._shapes[like] = len(self._pieces)
            self._pieces.append(like)
        return self._shapes[like]

    def after(self, state: int, shape: int) -> int:
        """Return the state that a piece of the shape makes of this one, or NO_ROOM."""
        known = self.known[state]
        if shape not in known:
            known[shape] = self._try(state, shape)
        return known[shape]

    def _try(self, state: int, shape: int) -> int:
        value, piece = self._values[state], self._pieces[shape]
        left = self.left[state] - piece.gpus * piece.shares
        if value is None or left < 0:
            return NO_ROOM
        grown = self._count(value, piece) if isinstance(value, _Counted) else self._lay(value, shape)
        return NO_ROOM if grown is None else self._number(grown, left)

    def _count(self, value: _Counted, piece: Piece) -> _Counted | None:
        if not piece.pins:
            value = _Counted(value.free, value.spoken_for + piece.gpus)
        elif (pins := mask_of(piece.pins)) & ~value.free:
            return None
        else:
            value = _Counted(value.free & ~pins, value.spoken_for)
        return self._plain(value) if value.free.bit_count() >= value.spoken_for else None

    def _plain(self, value: _Counted) -> _Counted:
        """Forget which GPUs are left where nobody asks for particular ones: more nodes are then in equal state."""
        return value if self._pinned else _Counted((1 << value.free.bit_count() - value.spoken_for) - 1, 0)

    def _lay(self, value: _Laid, shape: int) -> _Laid | None:
        shapes = tuple(sorted((*value.shapes, shape)))
        node = self._nodes[value.like]
        pieces = [*self._held.get(node.at, ()), *(self._pieces[each] for each in shapes)]
        return _Laid(value.like, shapes) if lay_out(node, pieces, self._space) is not None else None

    def _fresh(self, node: PoolNode) -> int:
        held = self._held.get(node.at, ())
        if any(each.whole or each.opaque for each in held):
            return CLOSED
        free = node.free & ~mask_of([index for each in held if not each.cut for index in each.pins])
        taken = sum((node.free >> index & 1) * each.shares for each in held if each.cut for index in each.pins)
        left = free.bit_count() * self._space.replicas - taken
        if not self._cut:
            return self._number(self._plain(_Counted(free, 0)), left)
        like = (node.free, tuple(node.groups.items()), tuple(held))
        if like not in self._likes:
            self._likes[like] = len(self._nodes)
            self._nodes.append(node)
        return self._number(_Laid(self._likes[like], ()), left)

    def _number(self, value: _Counted | _Laid, left: int) -> int:
        if value not in self._states:
            self._states[value] = len(self._values)
            self._values.append(value)
            self.known.append({})
            self.left.append(left)
        return self._states[value]
