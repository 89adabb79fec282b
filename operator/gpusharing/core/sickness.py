"""Why devices are not given to pods although the config has them: broken, gone, or no longer what they were."""

from collections.abc import Mapping, Sequence

from gpusharing.core.devices import Gpu, Inventory
from gpusharing.core.ledger import Ledger, reservable
from gpusharing.core.listing import Listing
from gpusharing.core.resources import Resource
from gpusharing.core.serving import ServedConfig


def sick_devices(
    listing: Listing,
    wanted: Sequence[Resource],
    ledger: Ledger,
    inventory: Inventory,
    served: ServedConfig | None,
    broken: Mapping[str, str],
) -> dict[str, str]:
    """Return UUID or single id → why no pod gets it. `wanted` should be listed; `broken` is the driver's own word."""
    misfits = unreservable(ledger, inventory, served)
    return {**lost(listing, inventory), **gone(wanted, inventory), **misfits, **broken}


def all_sick(listing: Listing, why: str) -> dict[str, str]:
    """Return UUID → why no pod gets it, for every GPU that is listed: none of them has been seen."""
    return {entry.device.gpu: why for entries in listing.lists.values() for entry in entries.values()}


def lost(listing: Listing, inventory: Inventory) -> dict[str, str]:
    """Return GPU UUID → why its ids are sick, for the listed GPUs that the node no longer has."""
    present = {gpu.uuid for gpu in inventory.gpus}
    gpus = dict.fromkeys(entry.device.gpu for entries in listing.lists.values() for entry in entries.values())
    return {gpu: f"{gpu} is no longer there" for gpu in gpus if gpu not in present}


def gone(resources: Sequence[Resource], inventory: Inventory) -> dict[str, str]:
    """Return UUID → why it is sick, for whole GPUs and MIG devices that should be listed, and that the node has lost.

    A config that does not fit MIG's new state is refused, and what it made of the old one stays listed (decision 36);
    a GPU that is reserved stays so.
    """
    present = {gpu.uuid for gpu in inventory.gpus} | {mig.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
    bases = dict.fromkeys(
        device.base
        for each in resources
        for device in each.devices
        if device.base != device.gpu or each.replicas == 1  # with 60,000 shares of whole GPUs this counts
    )
    return {base: f"{base} is no longer there" for base in bases if base not in present}


def unreservable(ledger: Ledger, inventory: Inventory | None, served: ServedConfig | None) -> dict[str, str]:
    """Return GPU UUID → why, for the GPUs that are reserved and could not be any more as they are now.

    They stay reserved until the controller takes them back, for pods may have them; but no pod starts on one. None =
    GPUs or config are not known, so nothing is said against any.
    """
    reserved = [uuid for uuid, claim in ledger.claims.items() if claim.state == "reserved"]
    if not reserved or inventory is None or served is None:
        return {}
    gpus, fit = {gpu.uuid: gpu for gpu in inventory.gpus}, reservable(inventory, served)
    return {uuid: _misfit(uuid, gpus.get(uuid)) for uuid in reserved if uuid not in fit}


def _misfit(uuid: str, gpu: Gpu | None) -> str:
    if gpu is None:
        return f"{uuid} is no longer there"
    if gpu.mig_mode:
        return "a placement has it as a whole, and now it is in MIG mode"
    return "a placement has it, and now MPS shares the GPUs of the node"
