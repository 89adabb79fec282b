"""What the kubelet is shown of each resource, over time (decisions 28, 29, 46; kubelet contract 4, 4.1).

An id never leaves a list in one step: the kubelet crashes if it is just being allocated. The states of an id:

    (new) ──► served ◄──────► retiring ──► (left out)
      │          ▲               ▲
      └──► withheld ─────────────┘

served      the config has it: Healthy, unless its GPU or MIG device is sick
retiring    the config no longer has it: Unhealthy, until `linger` has passed and nobody can hold it
withheld    the config has it, but a retiring id of its GPU may be held: Unhealthy, or the GPU is given out twice

"Nobody can hold it" asks for a look at PodResources that began `settle` after the id became Unhealthy, because a
kubelet may have chosen the id just before; with no call of the resource open. Times are seconds of a monotonic clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from gpusharing.api import names
from gpusharing.core.devices import base_of, replica_of
from gpusharing.core.listsize import check_size
from gpusharing.core.reservations import is_place
from gpusharing.core.resources import Device, Resource
from gpusharing.core.serving import ServedConfig

State = Literal["served", "withheld", "retiring"]
# How long an id is listed as Unhealthy before it may be left out: 10 s for the kubelet (P13), which may hear of either
# change up to 0.2 s late. And how long a choice that it made before it heard may take to become an `Allocate`.
LINGER, SETTLE = 10.5, 1.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One id of a list, and the config that `Allocate` answers it by."""

    device: Device
    # those under which it was listed last: of a retiring id the old ones
    resource: Resource
    config: ServedConfig
    state: State = "served"
    # when the state began
    since: float = 0.0
    # why its GPU or MIG device is broken; empty = it is not
    sick: str = ""

    @property
    def healthy(self) -> bool:
        """Whether the kubelet may give it out."""
        return self.state == "served" and not self.sick


@dataclass(frozen=True, slots=True)
class Listing:
    """All lists: resource → id → entry, in the order in which they are sent."""

    lists: Mapping[str, Mapping[str, Entry]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def ended(self) -> tuple[str, ...]:
        """Return the resources whose last id has left: send the empty list, stop stream and server, then `without`."""
        return tuple(name for name, entries in self.lists.items() if not entries)

    def without(self, resource: str) -> "Listing":
        """Return the listing without a resource that has ended."""
        return Listing(MappingProxyType({name: ids for name, ids in self.lists.items() if name != resource}))


@dataclass(frozen=True, slots=True)
class Standing:
    """What `Allocate` has to know of one id."""

    state: Literal["served", "withheld", "retiring", "sick", "unknown"]
    # why it is sick
    reason: str = ""
    entry: Entry | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of who holds what, and the time."""

    held: Mapping[str, frozenset[str]] | None
    held_at: float
    calls_open: frozenset[str]
    now: float
    linger: float
    settle: float

    def may_be_held(self, name: str, entry: Entry) -> bool:
        """Whether a pod may have the retiring id, or be about to."""
        if self.held is None or name in self.calls_open or self.held_at < entry.since + self.settle:
            return True
        return entry.device.id in self.held.get(name, ())

    def may_leave(self, name: str, entry: Entry) -> bool:
        """Whether the retiring id may be left out (P13)."""
        return self.now >= entry.since + self.linger and not self.may_be_held(name, entry)


def advance(
    listing: Listing,
    wanted: Sequence[Resource],
    config: ServedConfig,
    *,
    sick: Mapping[str, str],
    held: Mapping[str, frozenset[str]] | None,
    calls_open: frozenset[str],
    now: float,
    held_at: float | None = None,
    linger: float = LINGER,
    settle: float = SETTLE,
) -> Listing:
    """Return the lists as they should be now; the same object if nothing changed.

    `wanted` is what the config makes of the hardware. `sick` maps the UUID of a GPU or MIG device, or a single id, to a
    sentence. `held` is resource → ids that pods hold, by PodResources and our own answers since; None = unreadable:
    then nothing is left out, and what is withheld stays so. `held_at` is when that look at PodResources began (None =
    now). `calls_open` are resources with a `GetPreferredAllocation` or `Allocate` that is not answered yet.
    """
    look = _Look(held, now if held_at is None else held_at, calls_open, now, linger, settle)
    config = _same_config(listing, config)
    targets = {resource.name: _same_resource(listing, resource) for resource in wanted}
    lists = dict(listing.lists)
    if not _settled(listing, targets, config):
        lists = _moved(listing, targets, config, look)
    lists = {name: _with_health(entries, sick) for name, entries in lists.items()}
    return listing if _same(listing.lists, lists) else Listing(MappingProxyType(lists))


def standing(listing: Listing, resource: str, device_id: str) -> Standing:
    """Return how `Allocate` has to take an id: sick and unknown ones it refuses (decision 29)."""
    entry = listing.lists.get(resource, {}).get(device_id)
    if entry is None:
        return Standing("unknown")
    return Standing("sick" if entry.sick else entry.state, entry.sick, entry)


def next_deadline(listing: Listing, now: float, *, linger: float = LINGER, settle: float = SETTLE) -> float | None:
    """Return when time alone may change the lists: look at PodResources then, and advance. None = never."""
    times = (
        entry.since + wait
        for entries in listing.lists.values()
        for entry in entries.values()
        if entry.state == "retiring"
        for wait in (settle, linger)
    )
    return min((time for time in times if time > now), default=None)


def linger_anew(listing: Listing, now: float) -> Listing:
    """Return the listing with every wait begun anew: plugin or kubelet was restarted (placement guide, 8.2).

    Ids that retire stay Unhealthy for another `linger`, and another look has to show that nobody holds them.
    """
    return Listing(MappingProxyType({name: _waiting_anew(entries, now) for name, entries in listing.lists.items()}))


def listed_resources(listing: Listing) -> tuple[Resource, ...]:
    """Return the resources whose ids are listed and not retiring."""
    found = []
    for entries in listing.lists.values():
        current = list(_current(entries))
        if current:
            found.append(replace(current[0].resource, devices=tuple(entry.device for entry in current)))
    return tuple(found)


def check_fit(listing: Listing, wanted: Sequence[Resource]) -> None:
    """Raise InvalidInput if the wanted ids, with those that then retire, make a list that is too long (decision 31)."""
    for resource in wanted:
        listed = listing.lists.get(resource.name, {})
        together = {entry.device.id: entry.device for entry in listed.values()}
        together.update((device.id, device) for device in resource.devices)
        check_size(resource.name, tuple(together.values()))


def _same_config(listing: Listing, config: ServedConfig) -> ServedConfig:
    """Return the object that is listed already, if it is equal: entries are then compared by identity."""
    listed = (entry.config for entries in listing.lists.values() for entry in _current(entries))
    known = next(listed, config)
    return known if known == config else config


def _same_resource(listing: Listing, resource: Resource) -> Resource:
    known = next((entry.resource for entry in _current(listing.lists.get(resource.name, {}))), resource)
    return known if known == resource else resource


def _settled(listing: Listing, targets: Mapping[str, Resource], config: ServedConfig) -> bool:
    """Whether the lists are those of the config already: the usual case, and with 60,000 ids worth a short cut."""
    return listing.lists.keys() == targets.keys() and all(
        len(entries) == len(targets[name].devices)
        and all(
            entry.state == "served" and entry.resource is targets[name] and entry.config is config
            for entry in entries.values()
        )
        for name, entries in listing.lists.items()
    )


def _moved(
    listing: Listing, targets: Mapping[str, Resource], config: ServedConfig, look: _Look
) -> dict[str, Mapping[str, Entry]]:
    """Return the lists with each id in the state that it should have now."""
    leaving = {name: _leaving(entries, targets.get(name), look.now) for name, entries in listing.lists.items()}
    blockers = _blockers(listing, leaving, targets, look)
    lists: dict[str, Mapping[str, Entry]] = {}
    for name in dict.fromkeys((*listing.lists, *targets)):
        old = listing.lists.get(name, {})
        serving = _serving(old, targets[name], config, blockers, look.now) if name in targets else {}
        staying = {
            device_id: entry for device_id, entry in leaving.get(name, {}).items() if not look.may_leave(name, entry)
        }
        lists[name] = MappingProxyType(serving | staying)
    return lists


def _waiting_anew(entries: Mapping[str, Entry], now: float) -> Mapping[str, Entry]:
    if not any(entry.state == "retiring" for entry in entries.values()):
        return entries
    return MappingProxyType(
        {id_: replace(entry, since=now) if entry.state == "retiring" else entry for id_, entry in entries.items()}
    )


def _current(entries: Mapping[str, Entry]) -> Iterator[Entry]:
    return (entry for entry in entries.values() if entry.state != "retiring")


def _leaving(entries: Mapping[str, Entry], target: Resource | None, now: float) -> dict[str, Entry]:
    """Return the ids that the config does not have, as retiring ones."""
    kept = {device.id for device in target.devices} if target else set()
    return {
        device_id: entry if entry.state == "retiring" else replace(entry, state="retiring", since=now)
        for device_id, entry in entries.items()
        if device_id not in kept
    }


def _blockers(
    listing: Listing, leaving: Mapping[str, Mapping[str, Entry]], targets: Mapping[str, Resource], look: _Look
) -> dict[str, set[str]]:
    """Return GPU → the spaces of its ids that pods may hold although the config does not have them."""
    blockers: dict[str, set[str]] = {}
    for name, entries in leaving.items():
        for device_id, entry in entries.items():
            if look.may_be_held(name, entry):
                blockers.setdefault(entry.device.gpu, set()).add(_space(name, device_id))
    for name, device_id, gpu in _unlisted(listing, targets, look.held or {}):
        blockers.setdefault(gpu, set()).add(_space(name, device_id))
    return blockers


def _unlisted(
    listing: Listing, targets: Mapping[str, Resource], held: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, str, str]]:
    """Yield resource, id and GPU of held ids on no list of ours: given out by a plugin before us (X10)."""
    gpu_of = {device.base: device.gpu for resource in targets.values() for device in resource.devices}
    gpu_of |= {gpu: gpu for gpu in gpu_of.values()}
    for name in sorted(held):
        known = {device.id for device in targets[name].devices} if name in targets else set()
        for device_id in sorted(held[name]):
            gpu = gpu_of.get(base_of(device_id))
            if gpu and device_id not in known and device_id not in listing.lists.get(name, {}):
                yield name, device_id, gpu


def _space(name: str, device_id: str) -> str:
    """Return what ids must share so that old and new ones may be out at once: both are `::n` of one resource.

    Names of one placement may be over one GPU, and the ledger sees to it that names of two never are.
    """
    if replica_of(device_id) is None:
        return ""
    return names.PLACE_DOMAIN if is_place(name) else name


def _serving(
    old: Mapping[str, Entry], target: Resource, config: ServedConfig, blockers: Mapping[str, set[str]], now: float
) -> dict[str, Entry]:
    """Return the ids that the config has. One that is served stays so; any other has to wait for its GPU's blockers."""
    entries: dict[str, Entry] = {}
    for device in target.devices:
        before = old.get(device.id)
        state: State = "served"
        if before is None or before.state != "served":
            mine = _space(target.name, device.id)
            blocked = any(other != mine or not mine for other in blockers.get(device.gpu, ()))
            state = "withheld" if blocked else "served"
        entries[device.id] = _listed(before, device, target, config, state, now)
    return entries


def _listed(
    before: Entry | None, device: Device, resource: Resource, config: ServedConfig, state: State, now: float
) -> Entry:
    if before is not None and before.state == state:
        if before.resource is resource and before.config is config:
            return before
        return replace(before, device=device, resource=resource, config=config)
    return Entry(device, resource, config, state, now)


def _with_health(entries: Mapping[str, Entry], sick: Mapping[str, str]) -> Mapping[str, Entry]:
    if not sick and not any(entry.sick for entry in entries.values()):
        return entries
    return MappingProxyType({device_id: _judged(entry, sick) for device_id, entry in entries.items()})


def _judged(entry: Entry, sick: Mapping[str, str]) -> Entry:
    device = entry.device
    reason = sick.get(device.gpu) or sick.get(device.base) or sick.get(device.id) or ""
    return entry if entry.sick == reason else replace(entry, sick=reason)


def _same(old: Mapping[str, Mapping[str, Entry]], new: Mapping[str, Mapping[str, Entry]]) -> bool:
    return list(old) == list(new) and all(_same_entries(old[name], entries) for name, entries in new.items())


def _same_entries(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> bool:
    if old is new:
        return True
    return len(old) == len(new) and all(a is b for a, b in zip(old.values(), new.values(), strict=True))
