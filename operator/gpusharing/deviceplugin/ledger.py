"""Keeps the ledger: follows what the API server wants reserved, and writes every step down before it is shown.

    spec of the GpuNode ─┐
    lists, pods ─────────┼─► advance ─► file, fsynced ─► the lists that follow from it
    what was there ──────┘

Without a ledger, at the first start or where it was lost, only what pods hold under names of placements is listed until
the API server has said what is reserved: any other GPU may be somebody's (placement guide, 8.2).
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from types import MappingProxyType

from gpusharing.core.devices import Inventory
from gpusharing.core.ledger import (
    Facts,
    Ledger,
    advance_ledger,
    is_moving,
    rebuilt,
    reserved_part,
    shared_gpus,
    shared_part,
    still_reserved,
)
from gpusharing.core.listing import Listing
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.reservationreport import Confirmed, Reserved, confirmed_names, reservation_reports
from gpusharing.core.reservations import Wanted, is_place
from gpusharing.core.resources import Resource
from gpusharing.core.staleresources import NONE
from gpusharing.observability.logs import logger

log = logger(__name__)


class LedgerKeeper:
    """The ledger of this node. Everything returns at once, but for the disk."""

    def __init__(
        self, save: Callable[[Ledger], str], restored: Ledger | None = None, *, save_again: float = 10.0
    ) -> None:
        """`save` returns why it could not; then nothing changes, and it is tried again after `save_again` seconds."""
        self._save = save
        self._save_again = save_again
        self._try_from = float("-inf")
        self._shown: frozenset[str] = frozenset()
        self._confirmed: Confirmed = MappingProxyType({})
        self.restore(restored)
        # what the API server wants; None = it has not said yet
        self.wanted: Wanted | None = None
        # why the ledger cannot be saved; empty = it can
        self.problem = ""

    @classmethod
    def idle(cls) -> "LedgerKeeper":
        """Return one that keeps nothing: with a config file alone there are no reservations."""
        return cls(lambda ledger: "", Ledger())

    def restore(self, saved: Ledger | None) -> None:
        """Take in what the file says; None = there is none that can be read, and it is not known what is reserved."""
        # what the file says
        self._saved = saved
        self.ledger = saved or Ledger()
        # whether GPUs that the ledger does not name are known to be shared
        self.is_complete = saved is not None

    def want(self, wanted: Wanted) -> bool:
        """Take in what the API server says is to be reserved. Returns whether that is new."""
        before, self.wanted = self.wanted, wanted
        return wanted != before

    def see_node(self, capacity: Mapping[str, str]) -> bool:
        """Take in resource → quantity as the Node shows it. Returns whether names of placements are others."""
        before = self._shown
        self._shown = frozenset(name for name, count in capacity.items() if is_place(name) and count != NONE)
        return self._shown != before

    def only_on_the_node(self, listing: Listing) -> frozenset[str]:
        """Return the names that the Node shows with devices, and that have none: listed empty until it shows 0.

        A kubelet that does not know such a name would start a pod with it, without any GPU (F9).
        """
        return frozenset(name for name in self._shown if not listing.lists.get(name))

    def advance(self, now: float, pods: Sequence[PodDevices] | None, facts: Callable[[], Facts]) -> None:
        """Bring the ledger up to date. `pods` is what the kubelet says they hold; None = unreadable."""
        if not self.is_complete and not self._complete(pods):
            return
        wanted = self.wanted or Wanted()
        concerned = bool(self.ledger.claims or wanted.reservations)
        after = advance_ledger(self.ledger, wanted, facts() if concerned else Facts())
        if after != self._saved and now >= self._try_from:
            self._take(after, now)

    @property
    def is_moving(self) -> bool:
        """Whether a GPU changes its owner, or is about to."""
        return self.is_complete and is_moving(self.ledger, self.wanted or Wanted())

    def is_due(self, now: float) -> bool:
        """Whether a step that could not be saved is to be tried again."""
        return bool(self.problem) and now >= self._try_from

    def report(
        self,
        listing: Listing,
        held: Mapping[str, Collection[str]],
        streams: Collection[str],
        allocatable: Mapping[str, Collection[str]] | None,
        misfits: Set[str],
    ) -> Reserved:
        """Return what there is to report; the arguments are those of `confirmed_names` and `reservation_reports`."""
        self._confirmed = confirmed_names(self._confirmed, listing, streams, allocatable, misfits)
        rows = reservation_reports(self.ledger, self.wanted or Wanted(), listing, held, self._confirmed)
        generation = self.ledger.generation if self.wanted is None else self.wanted.generation
        return Reserved(generation, rows, frozenset(self.ledger.claims), self.problem)

    def shared(self, inventory: Inventory | None) -> Inventory | None:
        """Return the GPUs that are shared; None = it is not known which there are."""
        return None if inventory is None else shared_gpus(self.ledger, inventory)

    def divide(self, resources: Sequence[Resource], inventory: Inventory | None) -> tuple[Resource, ...]:
        """Return what is to be listed, if `resources` is what the config makes of all GPUs.

        `inventory` None = config or GPUs are not known: `resources` is what was listed before the restart.
        """
        shared = tuple(each for each in resources if not is_place(each.name)) if self.is_complete else ()
        if inventory is None:
            return (*shared_part(self.ledger, shared), *still_reserved(self.ledger, resources))
        return (*shared_part(self.ledger, shared), *reserved_part(self.ledger, inventory))

    def _complete(self, pods: Sequence[PodDevices] | None) -> bool:
        """Make a ledger of what pods hold; return whether that, with what is wanted, is all there is to know."""
        if pods is not None:
            self.ledger = rebuilt(pods)
        if self.wanted is None or (pods is None and self.wanted.reservations):
            return False
        self.is_complete = True
        log.info("reservations known", held=sorted({name for it in self.ledger.claims.values() for name in it.names}))
        return True

    def _take(self, ledger: Ledger, now: float) -> None:
        problem = self._save(ledger)
        if problem and problem != self.problem:
            log.warning("reservations wait", why=problem)
        self.problem = problem
        if problem:
            self._try_from = now + self._save_again
            return
        self._say(ledger)
        self.ledger = self._saved = ledger

    def _say(self, ledger: Ledger) -> None:
        before = self.ledger.claims
        for gpu in dict.fromkeys((*before, *ledger.claims)):
            was, now = before.get(gpu), ledger.claims.get(gpu)
            if was != now:
                names = list(now.names if now else was.names if was else ())
                log.info("reservation", gpu=gpu, state=now.state if now else "shared", names=names)
        for name in ledger.conflicts.keys() - self.ledger.conflicts.keys():
            log.warning("reservation refused: the GPU is taken", resource=name, gpu=ledger.conflicts[name])
