"""Everything that the plugin observes of its node and of itself, and what is wrong with it, worst first.

The first problem gives the condition `GpuSharingReady` its reason, all of them its message (decision 49). A problem
takes the condition away, or, as `UnknownKey` does (decision 62), leaves it True.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpusharing.api.reasons import Reason
from gpusharing.core.devices import Inventory
from gpusharing.core.fragmentation import Fragmentation
from gpusharing.core.listcounts import Row, rows
from gpusharing.core.listing import Listing
from gpusharing.core.occupancy import PodDevices, held_twice
from gpusharing.core.oneline import few, one_line
from gpusharing.core.reservationreport import Reserved
from gpusharing.core.reservations import is_place
from gpusharing.core.serving import ServedConfig
from gpusharing.core.staleresources import NONE, of_a_gpu_plugin

_WORDS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Observed:
    """What the plugin knows of its node and of itself."""

    inventory: Inventory = field(default_factory=Inventory)
    # why NVML cannot be asked; empty = it answers
    nvml_error: str = ""
    # UUID of a GPU or MIG device, or a single id → why it is broken
    sick: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    listing: Listing = field(default_factory=Listing)
    reservations: Reserved = field(default_factory=Reserved)
    # None = nothing is served: no config was ever good
    served: ServedConfig | None = None
    # the desired config, if its text is good
    wanted: ServedConfig | None = None
    # the node's config label; empty = none
    desired: str = ""
    last_good: str = ""
    # the policy that the desired config came from, as its record says
    policy: str = ""
    # why the desired config is refused, or what of it is not there; one sentence each, empty = neither
    config_error: str = ""
    config_missing: str = ""
    unknown_keys: tuple[str, ...] = ()
    unknown_resources: tuple[str, ...] = ()
    # by PodResources: who holds what, as it was last read
    pods: tuple[PodDevices, ...] = ()
    # by PodResources: resource → healthy ids that the kubelet has; None = not read since the lists last changed
    confirmed: Mapping[str, frozenset[str]] | None = None
    # why PodResources cannot be read; empty = it can
    pod_resources_error: str = ""
    # how scattered that is; None = not known
    fragmentation: Fragmentation | None = None
    # the last choice of the kubelet's that was not the preferred one and that is told of; empty = there was none
    overruled: str = ""
    # what is known of another device plugin on this host; empty = there is none
    not_alone: str = ""
    # resource → why the kubelet does not take it
    unregistered: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong on the node."""

    reason: Reason
    sentence: str
    # whether GpuSharingReady stays True with it
    harmless: bool = False


def problems(observed: Observed) -> tuple[Problem, ...]:
    """Return what is wrong, worst first: nothing or the wrong thing served, unsafe shares, missing ones, hints."""
    return tuple(problem for judge in _JUDGES for problem in judge(observed))


def named_sick(observed: Observed) -> dict[str, str]:
    """Return what is broken in words (`GPU 3 (GPU-…)`) → why; of a broken GPU the MIG devices are not named."""
    found: dict[str, str] = {}
    known: set[str] = set()
    for gpu in sorted(observed.inventory.gpus, key=lambda gpu: gpu.index):
        known |= {gpu.uuid, *(mig.uuid for mig in gpu.mig_devices)}
        if gpu.uuid in observed.sick:
            found[f"GPU {gpu.index} ({gpu.uuid})"] = observed.sick[gpu.uuid]
            continue
        for mig in gpu.mig_devices:
            if mig.uuid in observed.sick:
                found[f"{mig.profile} of GPU {gpu.index} ({mig.uuid})"] = observed.sick[mig.uuid]
    return found | {id_: why for id_, why in sorted(observed.sick.items()) if id_ not in known}


def stale_resources(capacity: Mapping[str, str], listing: Listing) -> tuple[str, ...]:
    """Return the resources of ours that the Node shows with 0 devices although nothing serves them (F51)."""
    return tuple(
        sorted(
            name
            for name, count in capacity.items()
            if count == NONE and of_a_gpu_plugin(name) and name not in listing.lists
        )
    )


# --- one function for each reason


def _nvml(observed: Observed) -> Iterator[Problem]:
    if observed.nvml_error:
        config = observed.served or observed.wanted
        tolerated = config is not None and not config.fail_on_init_error
        yield Problem(
            Reason.NVML_UNAVAILABLE,
            f"NVML cannot be asked for the GPUs: {_words(observed.nvml_error)}.",
            harmless=tolerated and not observed.listing.lists,  # a node that never served any may have none (36)
        )


def _invalid_config(observed: Observed) -> Iterator[Problem]:
    if observed.config_error:
        yield Problem(Reason.INVALID_CONFIG, f"{_words(observed.config_error)}; {_instead(observed)}.")


def _config_missing(observed: Observed) -> Iterator[Problem]:
    if observed.config_missing:
        yield Problem(Reason.CONFIG_MISSING, f"{_words(observed.config_missing)}; {_instead(observed)}.")


def _instead(observed: Observed) -> str:
    if observed.served is None:
        return "no config was ever good here, so nothing is registered"
    return f"config {observed.served.name!r} stays served" if observed.served.name else "what was served stays served"


def _unregistered(observed: Observed) -> Iterator[Problem]:
    if observed.unregistered:
        found = [f"{name} ({_words(why)})" for name, why in sorted(observed.unregistered.items())]
        yield Problem(Reason.NOT_REGISTERED, f"The kubelet does not take {few(found)}.")


def _held_twice(observed: Observed) -> Iterator[Problem]:
    found = [f"{twice.device} ({few(twice.holders)})" for twice in held_twice(observed.pods, observed.inventory)]
    if found:
        yield Problem(
            Reason.DEVICE_HELD_TWICE,
            f"The kubelet gave devices to two containers each: {few(found)}. hint: delete the pod that started last.",
        )


def _unhealthy(observed: Observed) -> Iterator[Problem]:
    found = [f"{name} ({_words(why)})" for name, why in named_sick(observed).items()]
    if found:
        yield Problem(Reason.GPU_UNHEALTHY, f"Not given to pods: {few(found)}.")


def _mismatch(observed: Observed) -> Iterator[Problem]:
    if observed.confirmed is None:
        return
    found = []
    for name, entries in observed.listing.lists.items():
        predicted = {device_id for device_id, entry in entries.items() if entry.healthy}
        advertised = observed.confirmed.get(name, frozenset())
        if len(advertised) != len(predicted):
            found.append(f"{name}: {len(advertised)} advertised, {len(predicted)} predicted")
        elif foreign := advertised - predicted:
            found.append(f"{name}: {len(foreign)} are not ours, so another plugin has registered the name")
    if found:
        yield Problem(
            Reason.CAPACITY_MISMATCH, f"The kubelet confirms other devices than the config implies: {few(found)}."
        )


def _retiring(observed: Observed) -> Iterator[Problem]:
    found = [_counted(row) for row in rows(_shared(observed)) if row.retiring or row.withheld]
    if found:
        yield Problem(Reason.DEVICES_RETIRING, f"Devices of an earlier config may still be held: {few(found)}.")


def _shared(observed: Observed) -> Listing:
    """Return the lists without GPUs that are not shared: that their ids retire is as it should be."""
    gpus = observed.reservations.gpus
    if not gpus:
        return observed.listing
    return Listing(
        {
            name: {id_: entry for id_, entry in entries.items() if entry.device.gpu not in gpus}
            for name, entries in observed.listing.lists.items()
            if not is_place(name)
        }
    )


def _counted(row: Row) -> str:
    return f"{row.name}: {row.retiring} retiring, {row.withheld} withheld"


def _unknown_resource(observed: Observed) -> Iterator[Problem]:
    if observed.unknown_resources:
        found = few([_words(name) for name in observed.unknown_resources])
        yield Problem(Reason.UNKNOWN_RESOURCE, f"The config shares what the node does not have: {found}.")


def _unknown_key(observed: Observed) -> Iterator[Problem]:
    if observed.unknown_keys:
        found = few([_words(key) for key in observed.unknown_keys])
        yield Problem(Reason.UNKNOWN_KEY, f"Keys of the config that nothing knows are ignored: {found}.", harmless=True)


_JUDGES = (
    _nvml,
    _invalid_config,
    _config_missing,
    _unregistered,
    _held_twice,
    _unhealthy,
    _mismatch,
    _retiring,
    _unknown_resource,
    _unknown_key,
)


def _words(text: str) -> str:
    """Return text of others as part of a sentence of ours."""
    return one_line(text, _WORDS_MAX).removesuffix(".")
