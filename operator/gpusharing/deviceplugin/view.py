"""What the kubelet's calls get to see of one resource: everything from memory (P10)."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set

from gpusharing.core.allocation.buckets import other_load
from gpusharing.core.allocation.prefer import Preferences, prefer, preferences
from gpusharing.core.allocation.request import AllocationRequest, Choice, Load
from gpusharing.core.devices import Inventory
from gpusharing.core.edits import Edits
from gpusharing.core.grant import grant
from gpusharing.core.host import HostFacts
from gpusharing.core.kubeletchoice import Offer, Verdict, judge, overruled_sentence
from gpusharing.core.listing import Entry, Listing
from gpusharing.core.resources import Device

Entries = Mapping[str, Entry]


class View:
    """One resource. The plugin keeps it up to date with `show`; the kubelet's calls read it."""

    def __init__(
        self,
        name: str,
        *,
        gave: Callable[[str, Sequence[str]], None],
        overruled: Callable[[str], None],
        answered: Callable[[], None],
    ) -> None:
        """`gave` hears of each answered `Allocate`, `answered` when no call is open.

        `overruled` hears a sentence of each choice of the kubelet's that was not the preferred one.
        """
        self._name = name
        self._gave = gave
        self._overruled = overruled
        self._answered = answered
        self._listing = Listing()
        self._inventory = Inventory()
        self._host = HostFacts()
        self._held: frozenset[str] = frozenset()
        self._claimed: Set[str] = frozenset()
        self._loads: Mapping[str, Load] = {}
        self._listed: tuple[tuple[Device, bool], ...] = ()
        self._sick: frozenset[str] = frozenset()
        # an entry of those that are served, and the table that was made of its resource
        self._current: Entry | None = None
        self._preferences: Preferences | None = None
        self._calls = 0

    @property
    def name(self) -> str:
        """Return the resource's name."""
        return self._name

    @property
    def is_answering(self) -> bool:
        """Whether a call of the kubelet is open."""
        return self._calls > 0

    def show(
        self,
        listing: Listing,
        inventory: Inventory,
        host: HostFacts,
        held: Mapping[str, frozenset[str]],
        claimed: Set[str] = frozenset(),
    ) -> bool:
        """Take in how things are now. Returns whether the list is another one.

        `held` is resource → ids; `claimed` are the GPUs that are not shared.
        """
        before, entries = self._entries(), listing.lists.get(self._name, {})
        changed = entries is not before
        if changed:
            self._listed = tuple((entry.device, entry.healthy) for entry in entries.values())
            self._sick = frozenset(device_id for device_id, entry in entries.items() if entry.sick)
        # retiring ids are offered to nobody
        current = next((entry for entry in entries.values() if entry.state != "retiring"), None)
        if inventory is not self._inventory or not _same_config(current, self._current):
            self._preferences = preferences(current.resource, inventory, current.config.allocation) if current else None
        self._listing, self._inventory, self._host, self._current = listing, inventory, host, current
        self._held, self._claimed = held.get(self._name, frozenset()), claimed
        if self._preferences is not None:
            everything = (device_id for ids in held.values() for device_id in ids)
            self._loads = other_load(self._preferences.table, everything, inventory)
        return changed

    def _entries(self) -> Entries:
        return self._listing.lists.get(self._name, {})

    # --- for the kubelet's calls

    def listed(self) -> Sequence[tuple[Device, bool]]:
        """Return the list with whether each is healthy; the same object while nothing changed."""
        return self._listed

    def opened(self) -> None:
        """Take note that a call is being answered."""
        self._calls += 1

    def closed(self) -> None:
        """Take note that it was answered."""
        self._calls -= 1
        if not self._calls:
            self._answered()

    @property
    def policy(self) -> str:
        """Return the name of the allocation policy; `none` where nothing of the resource is served."""
        return self._preferences.rule.policy.NAME if self._preferences else "none"

    async def prefer(self, available: Collection[str], must_include: Sequence[str], size: int) -> Choice:
        """Return the ids that are best; none where there is no choice to be made."""
        if self._preferences is None:
            return Choice()
        request = AllocationRequest(
            available,
            size,
            must_include,
            sick=self._sick,
            sick_and_held=self._sick & self._held,
            other_load=self._loads,
        )
        return prefer(request, self._preferences)

    def judge(self, offer: Offer, ids: Sequence[str]) -> Verdict:
        """Return how the ids of an `Allocate` compare with the preference before it, and tell if it was not taken."""
        verdict = judge(offer, ids, self._entries())
        if verdict.overruled:
            self._overruled(overruled_sentence(self._name, offer, ids))
        return verdict

    async def allocate(self, ids: Sequence[str]) -> Edits:
        """Return what a container with these ids gets. Raises InvalidInput with a sentence for the pod's owner."""
        edits = grant(
            self._listing,
            self._name,
            ids,
            self._inventory,
            self._host,
            free=self._free(),
            claimed=self._claimed,
        )
        self._gave(self._name, ids)
        return edits

    def _free(self) -> Mapping[str, int]:
        """Return GPU UUID → healthy ids of this resource that nobody holds, for a refusal's sentence."""
        free: dict[str, int] = {}
        for device_id, entry in self._entries().items():
            free[entry.device.gpu] = free.get(entry.device.gpu, 0) + (entry.healthy and device_id not in self._held)
        return free


def _same_config(one: Entry | None, other: Entry | None) -> bool:
    """Whether both were made of the same resource and config; entries share these objects."""
    if one is None or other is None:
        return one is other
    return one.resource is other.resource and one.config is other.config
