"""When a change of config may be applied: at once after a quiet time, else later; the last one wins (decision 32)."""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")
SPACING, COALESCE = 30.0, 0.2


@dataclass(frozen=True)  # with slots `ChangePace[str]()` fails: typing sets an attribute (Python 3.11)
class ChangePace(Generic[T]):
    """What is applied, what waits, and until when. Times are seconds of a monotonic clock.

    After `spacing` seconds without a change the next one is due after `coalesce`, so that what is written in two steps
    is one change; one that comes sooner waits until then. A label that flaps a thousand times is thus a change each
    `spacing`, and what it ends with is applied (F21).
    """

    spacing: float = SPACING
    coalesce: float = COALESCE
    # what was taken last; None = nothing yet: the first is due at once
    current: T | None = None
    waiting: T | None = None
    # when the first of what waits was asked for
    since: float = 0.0
    # when a change was applied; None = none yet, what was there at the start is no change
    changed: float | None = None

    def ask(self, wanted: T, now: float) -> "ChangePace[T]":
        """Return the pace once something is wanted: it replaces what waits; what is there already needs no change."""
        if wanted == self.current:
            return replace(self, waiting=None)
        return replace(self, waiting=wanted, since=now if self.waiting is None else self.since)

    def due(self) -> float | None:
        """Return when what waits may be taken; None = nothing waits."""
        if self.waiting is None:
            return None
        if self.current is None:
            return self.since
        soonest = self.since + self.coalesce
        return soonest if self.changed is None else max(soonest, self.changed + self.spacing)

    def take(self) -> "ChangePace[T]":
        """Return the pace once what waited is looked at; it is `current` then."""
        return replace(self, current=self.waiting, waiting=None)

    def applied(self, now: float) -> "ChangePace[T]":
        """Return the pace once `current` changed what the kubelet sees; what was refused is not to be told so."""
        return replace(self, changed=now)
