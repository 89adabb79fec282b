"""All that the planner sees of a service. Kinds are not in it: renaming them changes nothing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What one deployed service asks for."""

    name: str
    # its place among the declared services
    order: int
    # the name of its pool; empty = none, or none that there is
    pool: str
    # of its own, in all
    gpus_needed: int
    # whether it owns GPUs, or takes what is left
    owner: bool
    # of each of its GPUs; None = whole ones
    percent: int | None = None
    pins: tuple[int, ...] = ()
    uuid_pins: tuple[str, ...] = ()
    from_env: str = ""
    # the fewest that will do of what the others leave; None = it has a need of its own
    leftover: int | None = None
    share: bool = False
    share_with: str = ""
    exclusive: bool = False
    evenly: bool = False
    split: bool = False
    tail: bool = False
    per_instance: int = 1
    instances: int = 1
    tensor: int = 1
    port: int | None = None
    host_network: bool = False

    @property
    def pinned(self) -> bool:
        """Whether somebody named its GPUs by hand."""
        return bool(self.pins or self.uuid_pins or self.from_env)

    def shares(self, replicas: int) -> int:
        """Return what it takes of each of its GPUs, where a GPU is cut into so many shares."""
        return replicas if self.percent is None else -(-self.percent * replicas // 100)

    @property
    def need_text(self) -> str:
        """Return `policy 2`, or `llm 2 x 80%`."""
        return (
            f"{self.name} {self.gpus_needed} x {self.percent}%" if self.fraction else f"{self.name} {self.gpus_needed}"
        )
