"""Which devices are sick, and when they are well again (decision 45, contract 7.5, 12.2, 12.6).

XIDs and bad probes make a device sick at once. It heals after some good probes in a row; after an XID that needs a
reset only once the GPU was gone for a while, or NVML as a whole was; after flapping only once a time-out is over.
Taking in what is known already returns the same value, so a storm of events changes nothing (F13).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gpusharing.api.xids import APPLICATION_XIDS, RESET_XIDS, describe
from gpusharing.core.devices import Inventory, base_of

_EVERYTHING = frozenset({"all", "xids"})
# A probe that comes a little early, by the granularity of timers, counts all the same.
_EARLY = 0.9


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """An XID. Without both instance ids it concerns the whole GPU; without a UUID, NVML could not say which GPU."""

    gpu: str
    xid: int
    gi: int | None = None
    ci: int | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """What asking one GPU gave."""

    # empty = it answered
    reason: str = ""
    # it is not there: lost, or not enumerated
    gone: bool = False


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """What the admin wants to be checked, and how patiently. Times in seconds."""

    enabled: bool = True
    ignored: frozenset[int] = APPLICATION_XIDS
    # good probes in a row, and the time from one to the next, before a device is well again
    probes: int = 3
    spacing: float = 10.0
    # so many changes within the window hold a device sick
    flaps: int = 3
    flap_window: float = 600.0
    flap_hold: float = 1800.0


def read_health_checks(disable: str, enable: str) -> tuple[HealthChecks, tuple[str, ...]]:
    """Read `DP_DISABLE_HEALTHCHECKS` and `DP_ENABLE_HEALTHCHECKS`; also returns a note per malformed value."""
    off, off_xids, off_notes = _words("DP_DISABLE_HEALTHCHECKS", disable)
    on, on_xids, on_notes = _words("DP_ENABLE_HEALTHCHECKS", enable)
    ignored = frozenset() if on else (APPLICATION_XIDS | off_xids) - on_xids
    return HealthChecks(enabled=on or not off, ignored=ignored), off_notes + on_notes


def _words(variable: str, text: str) -> tuple[bool, frozenset[int], tuple[str, ...]]:
    """Return whether the list names everything, which XIDs it names, and what in it is neither."""
    words = [word for part in text.split(",") if (word := part.strip().lower())]
    numbers = frozenset(int(word) for word in words if _is_number(word))
    notes = tuple(
        f"{variable}: {word[:40]!r} is skipped: it is neither a number nor all or xids"
        for word in words
        if not _is_number(word) and word not in _EVERYTHING
    )
    return any(word in _EVERYTHING for word in words), numbers, notes


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 19


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one id: a GPU's or a MIG device's UUID, or a share (simulated inventories)."""

    # why it is sick; empty = well
    reason: str = ""
    # only a reset helps, and none was seen yet
    awaits_reset: bool = False
    # good probes since it was last seen sick, and when the last of them was counted
    good: int = 0
    good_at: float = 0.0
    # when it became sick or well, within the flap window
    changes: tuple[float, ...] = ()
    held_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a node's devices. Ids without a record are well."""

    records: Mapping[str, Record] = field(default_factory=lambda: MappingProxyType({}))

    def after_event(self, event: GpuEvent, inventory: Inventory, checks: HealthChecks, now: float) -> "Health":
        """Return the health after an XID."""
        if not checks.enabled or event.xid in checks.ignored:
            return self
        # a reset of a GPU that nobody could name would never be seen
        awaits_reset = event.xid in RESET_XIDS and bool(event.gpu)
        reason = describe(event.xid) + ("; heals only after a reset" if awaits_reset else "")
        hit = list(_hit_by(event, inventory))
        return self._with({id_: _sick(self._of(id_), reason, awaits_reset, checks, now) for id_ in hit})

    def after_probe(
        self, probes: Mapping[str, Probe], inventory: Inventory, checks: HealthChecks, now: float
    ) -> "Health":
        """Return the health after every GPU was asked. A GPU that has no answer was not there to be asked."""
        if not checks.enabled:
            return Health()
        return self._after({**{gpu.uuid: _MISSING for gpu in inventory.gpus}, **probes}, inventory, checks, now)

    def after_failure(self, reason: str, inventory: Inventory, checks: HealthChecks, now: float) -> "Health":
        """Return the health after NVML as a whole did not answer: it will have been initialised anew when it does."""
        if not checks.enabled:
            return Health()
        return self._after({gpu.uuid: Probe(reason, gone=True) for gpu in inventory.gpus}, inventory, checks, now)

    def sick(self, inventory: Inventory) -> Mapping[str, str]:
        """Return why ids are sick. A sick GPU makes every MIG device on it sick."""
        reasons = {id_: record.reason for id_, record in self.records.items() if record.reason}
        for gpu in inventory.gpus:
            if gpu.uuid in reasons:
                reasons |= {device.uuid: reasons[gpu.uuid] for device in gpu.mig_devices}
        return reasons

    def _of(self, id_: str) -> Record:
        return self.records.get(id_, _WELL)

    def _with(self, changed: Mapping[str, Record]) -> "Health":
        """Return the health with these records, or itself where nothing differs."""
        if all(self._of(id_) == record for id_, record in changed.items()):
            return self
        return Health(MappingProxyType({**self.records, **changed}))

    def _after(self, probes: Mapping[str, Probe], inventory: Inventory, checks: HealthChecks, now: float) -> "Health":
        """Apply the probes, those of GPUs also to what is sick on them; forget ids that are no more."""
        gpu_of = {gpu.uuid: gpu.uuid for gpu in inventory.gpus}
        gpu_of |= {device.uuid: gpu.uuid for gpu in inventory.gpus for device in gpu.mig_devices}
        known = {id_: record for id_, record in self.records.items() if base_of(id_) in gpu_of}
        health = self if len(known) == len(self.records) else Health(MappingProxyType(known))
        # a MIG device does not fall sick a second time, of its GPU: `sick` says so for it
        asked = {id_: probes[gpu_of[base_of(id_)]] for id_, record in known.items() if record.reason}
        asked |= {id_: probe for id_, probe in probes.items() if base_of(id_) in gpu_of}
        return health._with({id_: _probed(health._of(id_), probe, checks, now) for id_, probe in asked.items()})


_WELL = Record()
_MISSING = Probe("NVML does not see the GPU", gone=True)


def _hit_by(event: GpuEvent, inventory: Inventory) -> Iterator[str]:
    """Yield the ids that an event concerns (contract 12.2)."""
    for gpu in inventory.gpus:
        if event.gpu not in {gpu.uuid, ""}:
            continue
        if event.gi is None or event.ci is None:
            yield gpu.uuid
        else:
            yield from (device.uuid for device in gpu.mig_devices if (device.gi, device.ci) == (event.gi, event.ci))


def _probed(record: Record, probe: Probe, checks: HealthChecks, now: float) -> Record:
    if not probe.reason:
        return _good(record, checks, now)
    seen = _sick(record, probe.reason, False, checks, now)
    return replace(seen, reason=probe.reason, awaits_reset=False) if probe.gone else seen


def _sick(record: Record, reason: str, awaits_reset: bool, checks: HealthChecks, now: float) -> Record:
    """Return the record of an id that was seen sick just now. The first reason stands until a graver one comes."""
    if record.reason:
        worse = awaits_reset and not record.awaits_reset
        return replace(
            record,
            reason=reason if worse else record.reason,
            awaits_reset=awaits_reset or record.awaits_reset,
            good=0,
            good_at=0.0,
        )
    changes = (*_recent(record, checks, now), now)
    held_until = now + checks.flap_hold if len(changes) >= checks.flaps else record.held_until
    return Record(reason, awaits_reset, changes=changes, held_until=held_until)


def _good(record: Record, checks: HealthChecks, now: float) -> Record:
    """Return the record of an id after a good probe: counted if enough time has passed since the last that was."""
    if not record.reason or record.awaits_reset:
        return record
    if record.good and now - record.good_at < checks.spacing * _EARLY:
        return record
    record = replace(record, good=min(record.good + 1, checks.probes), good_at=now)
    return _healed(record, checks, now) if record.good == checks.probes and now >= record.held_until else record


def _healed(record: Record, checks: HealthChecks, now: float) -> Record:
    """Return the record of an id that is well again, unless that would be one change too many."""
    changes = (*_recent(record, checks, now), now)
    if len(changes) >= checks.flaps:
        return replace(record, held_until=now + checks.flap_hold)
    return Record(changes=changes, held_until=record.held_until)


def _recent(record: Record, checks: HealthChecks, now: float) -> tuple[float, ...]:
    return tuple(at for at in record.changes if now - at < checks.flap_window)
