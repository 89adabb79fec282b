"""Services as what is to be placed: in pieces that each go onto one node, in the order of the guide's section 6.3."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.pools import Space


@dataclass(frozen=True, slots=True)
class Piece:
    """What of a service goes onto one node in one go."""

    # the service's declaration order, and which of its pieces this is
    service: int
    part: int
    gpus: int
    # shares of each GPU; as many as a GPU has = whole GPUs
    shares: int
    # a fraction of each GPU, however large
    cut: bool = False
    # these GPUs and no others, in this order
    pins: tuple[int, ...] = ()
    # the pins are an earlier plan's: they hold even if a GPU is sick or in use
    bound: bool = False
    # its GPUs are known only at run time, so nothing else may be on its node
    opaque: bool = False
    # it owns the whole node
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One service that needs GPUs of its own, and how it is placed."""

    demand: Demand
    # GPUs times shares of each of them; of one instance where these are placed one by one
    weight: int
    # what goes onto one node each; for whole nodes what is needed in all
    pieces: tuple[Piece, ...]
    # places of the nodes that the pieces are bound to; empty = not bound
    held: tuple[int, ...] = ()
    # the only node that has the GPUs pinned by UUID
    only: int | None = None
    # it takes whole empty nodes
    whole: bool = False
    # 0 = without a choice of node, 1 = the lead, 2 = the others
    group: int = 2

    @property
    def has_tail(self) -> bool:
        """Whether what does not fill a node may share one with others."""
        return self.whole and self.demand.tail and not self.demand.exclusive

    def rest(self, missing: int) -> Piece:
        """Return what the service has on a node with others, beside its whole nodes."""
        return replace(self.pieces[0], part=1, gpus=missing, whole=False)


def job_of(demand: Demand, space: Space, lead: str | None) -> Job:
    """Return how the service is placed when nothing of it is bound."""
    shares = demand.shares(space.replicas)
    whole = demand.exclusive or _larger_than_a_node(demand, space)
    only, pins = _pins(demand, space)
    one = Piece(
        demand.order,
        0,
        demand.gpus_needed,
        shares,
        cut=demand.percent is not None,
        pins=pins,
        opaque=bool(demand.from_env),
        whole=whole,
    )
    pieces = _pieces(one, demand, space)
    choice = 1 if demand.name == lead else 2
    return Job(
        demand,
        weight=(pieces[0].gpus if demand.split else demand.gpus_needed) * shares,
        pieces=pieces,
        only=only,
        whole=whole,
        group=0 if only is not None or demand.evenly else choice,
    )


def in_order(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return the jobs in the order in which they are placed."""
    return tuple(sorted(jobs, key=lambda job: (job.group, -job.weight, job.demand.order)))


def _pieces(one: Piece, demand: Demand, space: Space) -> tuple[Piece, ...]:
    if demand.split:
        return tuple(replace(one, part=part, gpus=demand.per_instance) for part in range(demand.instances))
    if demand.evenly:
        return tuple(replace(one, part=part, gpus=demand.gpus_needed // space.cap) for part in range(space.cap))
    return (one,)


def _larger_than_a_node(demand: Demand, space: Space) -> bool:
    spread = demand.evenly or demand.split or demand.pins or demand.uuid_pins
    return not spread and demand.gpus_needed > space.largest


def _pins(demand: Demand, space: Space) -> tuple[int | None, tuple[int, ...]]:
    """Return the node that has the GPUs pinned by UUID, and the pinned indexes in their order."""
    if not demand.uuid_pins:
        return None, demand.pins
    places = [space.gpus[uuid] for uuid in demand.uuid_pins]
    return places[0][0], tuple(index for _, index in places)
