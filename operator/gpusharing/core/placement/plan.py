"""What the planner returns: slots with the GPUs of each service on them, or everything that keeps it from a plan."""

from dataclasses import dataclass

from gpusharing.core.placement.problems import Code, Problem


@dataclass(frozen=True, slots=True)
class Assignment:
    """The GPUs of one service on one slot."""

    service: str
    # in the order in which they are rendered; empty where only `from_env` is known
    indexes: tuple[int, ...]
    # beside `indexes`, with an inventory that has them
    uuids: tuple[str, ...] = ()
    # 0, 1, ... over the service's slots; None = it has one slot only
    rank: int | None = None
    # shares taken of each GPU; None = whole GPUs
    shares: int | None = None
    # instances on this slot and the number of the first, for distribute: evenly and split: instances
    instances: int | None = None
    first_instance: int | None = None
    # the variable that holds the GPUs at run time
    from_env: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """A node's place in the plan."""

    # <pool>/<number>
    name: str
    pool: str
    number: int
    # the node's name; empty without an inventory
    node: str
    # indexes of every GPU that the pool may use there: what a service with share: true sees, and what --explain draws
    gpus: tuple[int, ...]
    # in declaration order, services with shareWith included
    assigned: tuple[Assignment, ...]
    # GPUs that are wholly free after the plan
    free: tuple[int, ...]
    # services for which a device line is written, in declaration order
    exported: tuple[str, ...]
    # GPUs that the node has, whatever their state; Slurm counts positions over all of them
    size: int

    def of(self, service: str) -> Assignment | None:
        """Return what the service has here, or None."""
        return next((each for each in self.assigned if each.service == service), None)


@dataclass(frozen=True, slots=True)
class Need:
    """What one owner needs, as messages write it."""

    service: str
    # `policy 2`, or `llm 2 x 80%`
    text: str


@dataclass(frozen=True, slots=True)
class Search:
    """How the number of nodes was found, for `--explain`."""

    # ffd or exact
    algorithm: str
    # every owner with a need, in declaration order
    needs: tuple[Need, ...]
    # in GPUs, `6` or `1.2`
    total: str
    # GPUs of the largest node
    node_size: int
    # nodes that first fit decreasing opened; services that it did not place
    ffd_nodes: int
    ffd_unplaced: tuple[str, ...] = ()
    # whether the exact search ran, the places it tried, and whether it met its limit
    searched: bool = False
    trials: int = 0
    limit_reached: bool = False
    # GPUs that services own and do not need, because they own whole nodes
    idle: int = 0


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What became of one pool."""

    name: str
    auto: bool
    # nothing is planned for it; the notices say why
    skipped: bool = False
    # one cumulative number
    nodes_resolved: int = 0
    # for nodes: auto only
    lower_bound: int | None = None
    proven_minimal: bool | None = None
    search: Search | None = None


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One deployed service: what it needs, where it is, and why there."""

    name: str
    pool: str
    gpus_needed: int
    # `planned`, `pinned`, `bound`, `leftover`, `shares judge's`, ...; for the lead with `, lead` behind it
    why: str
    # slots on which it has GPUs, by rank; else where it runs, if that is known
    slots: tuple[str, ...] = ()
    # where it listens; None = not known
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Every service has its GPUs."""

    plan_hash: str
    # None = there is no lead, or its pool was skipped
    lead_slot: str | None
    # services with share: true, in declaration order
    sees_all: tuple[str, ...]
    pools: tuple[PoolPlan, ...]
    slots: tuple[Slot, ...]
    # deployed services in declaration order
    services: tuple[ServicePlan, ...]
    warnings: tuple[Problem, ...] = ()
    notices: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no plan: everything that keeps it from being made."""

    errors: tuple[Problem, ...]
    # what became of the pools as far as they were looked at, for --explain
    pools: tuple[PoolPlan, ...] = ()

    @property
    def exit(self) -> int:
        """Return what `place` exits with: 2 for an invalid file, even where something does not fit as well; else 3."""
        return min(each.code.exit for each in self.errors)

    def has(self, code: Code) -> bool:
        """Whether one of the errors has this code."""
        return any(each.code == code for each in self.errors)


Outcome = Plan | Refusal
