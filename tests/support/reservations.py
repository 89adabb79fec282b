"""A node's reservations as its plugin answers them, without the seconds that a real one waits: a small pure model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpusharing.api.node import Reservation, ReservationReport


@dataclass
class ReservationDouble:
    """The ledger of one node. A test says which GPUs pods hold, and under which name."""

    # GPUs that pods hold of the shared resource
    shared: set[str] = field(default_factory=set)
    # resource name → GPUs that pods hold under it
    held: dict[str, set[str]] = field(default_factory=dict)
    # GPUs that the plugin is still withdrawing from the shared resource
    slow: set[str] = field(default_factory=set)
    # GPUs that a pod takes in the very moment in which they are to be withdrawn
    grabbed: set[str] = field(default_factory=set)
    # resource name → its GPUs; what the plugin has in its ledger
    ledger: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._conflicts: dict[str, tuple[int, ReservationReport]] = {}
        self._entries: dict[str, ReservationReport] = {}

    def answer(self, wanted: Sequence[Reservation] | None, generation: int) -> list[ReservationReport]:
        """The plugin's answer to a spec; None = it says nothing, so that the ledger stays."""
        if wanted is not None:
            names = {each.resource for each in wanted}
            released = {name: gpus for name, gpus in self.ledger.items() if name not in names and self._holds(name)}
            self.ledger = {}
            self._entries = {
                name: ReservationReport(
                    resource=name, gpus=list(gpus), state="Releasing", in_use=len(self.held.get(name, ()))
                )
                for name, gpus in released.items()
            }
            self.ledger |= released
            for each in wanted:
                self._entries[each.resource] = self._taken_in(each, generation)
        return [self._counted(self._entries[name]) for name in sorted(self._entries)]

    def _taken_in(self, each: Reservation, generation: int) -> ReservationReport:
        at, conflict = self._conflicts.get(each.resource, (-1, None))
        if conflict is not None and at == generation:
            return conflict
        self.shared |= self.grabbed.intersection(each.gpus)
        taken = sorted(self.shared.intersection(each.gpus))
        if taken:
            self.ledger.pop(each.resource, None)
            report = ReservationReport(resource=each.resource, gpus=each.gpus, state="Conflict", taken=taken[0])
            self._conflicts[each.resource] = (generation, report)
            return report
        self.ledger[each.resource] = tuple(each.gpus)
        return ReservationReport(resource=each.resource, gpus=each.gpus, state=self._state(each))

    def _state(self, each: Reservation) -> str:
        """Withdrawing as long as pods of another name hold one of the GPUs, else Active."""
        others = self._gpus(name for name in self.held if name != each.resource and name not in self._sharing(each))
        return "Withdrawing" if others.intersection(each.gpus) or self.slow.intersection(each.gpus) else "Active"

    def _sharing(self, each: Reservation) -> set[str]:
        """The other names that may stand over the same GPUs."""
        return (
            set()
            if each.exclusive
            else {name for name in self.held if name.split(".")[1:] == each.resource.split(".")[1:]}
        )

    def _gpus(self, names: Iterable[str]) -> set[str]:
        return {uuid for name in names for uuid in self.held[name]}

    def _holds(self, name: str) -> bool:
        return bool(self.held.get(name))

    def _counted(self, entry: ReservationReport) -> ReservationReport:
        return entry.model_copy(update={"in_use": len(self.held.get(entry.resource, ()))})
