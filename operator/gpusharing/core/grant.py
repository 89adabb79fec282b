"""Whether `Allocate` may answer, and by which config. A refusal fails the pod; its sentence is what the user reads."""

from collections.abc import Mapping, Sequence, Set

from gpusharing.api.problems import quoted
from gpusharing.core.devices import Inventory, replica_of
from gpusharing.core.edits import Edits, edits_for
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts
from gpusharing.core.listing import Entry, Listing, standing
from gpusharing.core.reservations import is_place
from gpusharing.core.resources import Resource
from gpusharing.core.serving import ServedConfig

_ANEW = "delete the pod if no controller does, so that it is made anew"


def grant(
    listing: Listing,
    resource: str,
    ids: Sequence[str],
    inventory: Inventory,
    host: HostFacts,
    *,
    free: Mapping[str, int],
    claimed: Set[str] = frozenset(),
) -> Edits:
    """Return what a container with these ids gets. Raises InvalidInput, one sentence and a hint, if it gets nothing.

    Retiring and withheld ids are answered, by the config under which they were listed (decision 29). Not so those of
    `claimed` GPUs, which are not shared, and those of placements: there only what is Healthy is (placement guide, 8.2).
    `free` is GPU UUID → free shares of the resource, for the sentence of `keepTogether: required`.
    """
    entries = listed_entries(listing, resource, ids)
    refuse_claimed(resource, entries, claimed)
    # A retiring id was chosen under its old config, and so were the ids beside it.
    chosen = next((entry for entry in entries if entry.state == "retiring"), entries[0])
    refuse_more_than_one(chosen.config, chosen.resource, ids)
    refuse_split(chosen.config, chosen.resource, entries, inventory, free)
    return edits_for(chosen.config, chosen.resource, ids, inventory, host)


def listed_entries(listing: Listing, resource: str, ids: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of the ids. Raises InvalidInput if there are none, or if one is unknown or sick."""
    if not ids:
        raise InvalidInput(f"{resource}: a request without any id", hint="this is a bug of the kubelet: report it")
    entries = []
    for device_id in ids:
        found = standing(listing, resource, device_id)
        if found.entry is None:
            raise InvalidInput(
                f"{resource} has no device {quoted(device_id)}", hint=f"the node's config has changed: {_ANEW}"
            )
        if found.state == "sick":
            raise InvalidInput(f"{resource}: {device_id} is unhealthy: {found.reason}", hint=_ANEW)
        entries.append(found.entry)
    return tuple(entries)


def refuse_claimed(resource: str, entries: Sequence[Entry], claimed: Set[str]) -> None:
    """Raise InvalidInput for an id that is leaving this resource's list because its GPU has, or had, another owner."""
    for entry in entries:
        if entry.state != "served" and (is_place(resource) or entry.device.gpu in claimed):
            raise InvalidInput(
                f"{resource}: {entry.device.id} cannot be had any more: its GPU is being reserved, or released",
                hint=_ANEW,
            )


def refuse_more_than_one(config: ServedConfig, resource: Resource, ids: Sequence[str]) -> None:
    """Raise InvalidInput for several shares under `failRequestsGreaterThanOne`; unset it is true for MPS only."""
    if config.shared is None or len(ids) < 2 or all(replica_of(device_id) is None for device_id in ids):
        return
    if is_place(resource.name):  # one id for each GPU, whatever follows its UUID
        return
    fails = config.shared.fail_requests_greater_than_one
    if config.mps is not None if fails is None else fails:
        raise InvalidInput(
            f"{resource.name}: {len(ids)} shares requested, and failRequestsGreaterThanOne allows 1 per container",
            hint=f"request {resource.name}: 1; more shares would not give the container more of the GPU",
        )


def refuse_split(
    config: ServedConfig,
    resource: Resource,
    entries: Sequence[Entry],
    inventory: Inventory,
    free: Mapping[str, int],
) -> None:
    """Raise InvalidInput for ids on several GPUs under `keepTogether: required`; whole GPUs ignore it (decision 53)."""
    gpus = {entry.device.gpu for entry in entries}
    if config.allocation.keep_together != "required" or resource.whole_gpus or len(gpus) < 2:
        return
    shares = ", ".join(f"GPU {gpu.index}: {free.get(gpu.uuid, 0)}" for gpu in inventory.gpus)
    raise InvalidInput(
        f"{resource.name}: no GPU has {len(entries)} free shares, and keepTogether is required (free: {shares})",
        hint="request fewer shares, wait for some to be freed, or set keepTogether: preferred",
    )
