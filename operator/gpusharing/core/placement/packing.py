"""Which pieces are on which node so far: what both algorithms build, and can take back."""

from collections.abc import Iterator

from gpusharing.core.placement.pieces import Job, Piece
from gpusharing.core.placement.pools import PoolNode, Space, mask_of
from gpusharing.core.placement.rooms import CLOSED, NO_ROOM, Rooms


class Packing:
    """A partial plan of one pool. At most `cap` nodes are opened."""

    def __init__(self, space: Space, rooms: Rooms, cap: int) -> None:
        self.space, self.rooms, self.cap = space, rooms, cap
        # places of nodes in the order in which they were opened; what state they are in; shares that are left of them
        self.opened: list[int] = []
        self.states: list[int] = []
        self.left: list[int] = []
        # which of the opened nodes each node is; -1 = none
        self._position = [-1] * len(space.nodes)
        # what was put where, and the state before; NO_ROOM = that opened the node
        self._journal: list[tuple[int, Piece, int]] = []

    # --- what is there

    def pieces(self) -> dict[int, list[Piece]]:
        """Return what is on each node, nodes in the order in which they were opened."""
        there: dict[int, list[Piece]] = {at: [] for at in self.opened}
        for at, piece, _ in self._journal:
            there[at].append(piece)
        return there

    def by_service(self) -> dict[int, list[tuple[int, Piece]]]:
        """Return the pieces of each service, by its declaration order, with the node that each is on."""
        own: dict[int, list[tuple[int, Piece]]] = {}
        for at, piece, _ in self._journal:
            own.setdefault(piece.service, []).append((at, piece))
        return own

    def unopened(self) -> Iterator[int]:
        """Yield the nodes that could still be opened, in node order; of nodes in equal state only the first."""
        if len(self.opened) >= self.cap:
            return
        firsts = (next((at for at in alike if self._position[at] < 0), None) for alike in self.rooms.alike)
        yield from sorted(at for at in firsts if at is not None)

    def reachable(self) -> list[int]:
        """Return the nodes that a piece may go to: opened ones, in the order of opening, before unopened ones."""
        return [*self.opened, *self.unopened()]

    def state(self, at: int) -> int:
        """Return the state that the node is in."""
        position = self._position[at]
        return self.rooms.fresh[at] if position < 0 else self.states[position]

    def _may_use(self, at: int) -> bool:
        """Whether the node is open, or may still be opened."""
        return self._position[at] >= 0 or len(self.opened) < self.cap

    # --- put, and take back

    def put(self, at: int, piece: Piece, state: int) -> None:
        """Put the piece on the node, which is then in this state."""
        position = self._position[at]
        if position < 0:
            self._position[at] = len(self.opened)
            self.opened.append(at)
            self.states.append(state)
            self.left.append(self.rooms.left[state])
            self._journal.append((at, piece, NO_ROOM))
        else:
            self._journal.append((at, piece, self.states[position]))
            self.states[position] = state
            self.left[position] = self.rooms.left[state]

    def mark(self) -> int:
        """Return how far the plan has come, for `back_to`."""
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        """Take back everything that was put after the mark."""
        while len(self._journal) > mark:
            at, _, state = self._journal.pop()
            position = self._position[at]
            if state == NO_ROOM:
                self._position[at] = -1
                self.opened.pop()
                self.states.pop()
                self.left.pop()
            else:
                self.states[position] = state
                self.left[position] = self.rooms.left[state]

    # --- services without a choice of node

    def put_held(self, job: Job) -> bool:
        """Put every piece on the node that it is bound to. Returns whether that is possible."""
        for at, piece in zip(job.held, job.pieces, strict=True):
            if not self._may_use(at):
                return False
            self.put(at, piece, self.state(at))
        return True

    def put_at(self, job: Job, at: int) -> bool:
        """Put the one piece on the one node that has its GPUs. Returns whether there is room."""
        (piece,) = job.pieces
        after = self.rooms.after(self.state(at), self.rooms.shape(piece))
        if after == NO_ROOM or not self._may_use(at):
            return False
        self.put(at, piece, after)
        return True

    def put_evenly(self, job: Job) -> bool:
        """Put one piece on every node; where there are more nodes, on the first where it fits, opened ones first."""
        shape = self.rooms.shape(job.pieces[0])
        pieces = list(reversed(job.pieces))
        others = (at for at, position in enumerate(self._position) if position < 0)
        for at in [*self.opened, *others]:
            after = self.rooms.after(self.state(at), shape)
            if pieces and after != NO_ROOM and self._may_use(at):
                self.put(at, pieces.pop(), after)
        return not pieces

    def put_whole(self, job: Job) -> int:
        """Give the service whole empty nodes, in node order. Returns how many GPUs it still needs.

        With `span: tail` a node that it does not fill ends that; else all of them are given until the need is covered.
        """
        (piece,) = job.pieces
        missing = piece.gpus
        for node in self.space.nodes:
            gpus = node.usable.bit_count()
            if missing <= 0 or len(self.opened) >= self.cap:
                break
            if self._position[node.at] >= 0 or not self._may_own(job, node):
                continue
            if job.has_tail and gpus > missing:
                break
            self.put(node.at, piece, CLOSED)
            missing -= gpus
        return max(0, missing)

    def _may_own(self, job: Job, node: PoolNode) -> bool:
        """Whether the service may have the node for itself."""
        pins = mask_of(job.pieces[0].pins)
        return node.quiet and node.usable > 0 and not pins & ~node.usable and job.only in {None, node.at}
