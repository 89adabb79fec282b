"""How fast to put back what something else keeps changing (decision 13)."""

from dataclasses import dataclass

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 300.0
QUIET_SECONDS = 600.0
CONTESTED_FROM = 3


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs of one node's label, in seconds of a monotonic clock."""

    count: int = 0
    last: float = 0.0
    manager: str = ""

    def wait(self, now: float) -> float:
        """Return the seconds until the next repair may be made: 0, then 1, 2, 4 … 300 after the one before."""
        if self.count == 0 or now - self.last >= QUIET_SECONDS:
            return 0.0
        spacing = min(LONGEST_SECONDS, FIRST_SECONDS * float(1 << min(self.count - 1, 20)))
        return max(0.0, self.last + spacing - now)

    def made(self, now: float, manager: str) -> "Repairs":
        """Return the history after one more repair; ten quiet minutes forget what was before."""
        quiet = self.count and now - self.last >= QUIET_SECONDS
        return Repairs(1 if quiet else self.count + 1, now, manager)

    def contested(self, now: float) -> bool:
        """Whether something fights back: a third repair within the quiet time."""
        return self.count >= CONTESTED_FROM and now - self.last < QUIET_SECONDS

    def quiet_in(self, now: float) -> float:
        """Return the seconds until the quiet time is over, if nothing changes the label again."""
        return max(0.0, self.last + QUIET_SECONDS - now)
