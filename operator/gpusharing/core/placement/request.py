"""What is asked of the planner: the spec, and what an earlier plan has bound."""

from dataclasses import dataclass
from typing import Literal

from gpusharing.api.placement import Enforcement, PlacementSpec

Compat = Literal["gym"]


@dataclass(frozen=True, slots=True)
class Bound:
    """An assignment of an earlier plan that still holds."""

    service: str
    node: str
    # empty for a pin that is known only at run time
    indexes: tuple[int, ...]
    # the slot that the node keeps; empty = any
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One placement to be planned."""

    spec: PlacementSpec
    bound: tuple[Bound, ...] = ()
    # gym: assign as the reference does, index for index (guide, section 3.6)
    compat: Compat | None = None
    namespace: str = "default"
    # what will keep the promise; None = as the spec says. The env and Slurm renderers plan for `env`: there services
    # share their host's network, and there are no resource names.
    enforcement: Enforcement | None = None

    @property
    def enforced_by(self) -> Enforcement:
        """Return what will keep the promise."""
        return self.enforcement or self.spec.enforcement
