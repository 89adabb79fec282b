"""Where services run, and why there: what a plan says of each service besides its GPUs."""

from collections.abc import Sequence

from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.pieces import Piece
from gpusharing.core.placement.plan import Slot


def where(
    lead: str | None, demands: Sequence[Demand], slots: Sequence[Slot]
) -> tuple[str | None, dict[str, tuple[str, ...]]]:
    """Return the lead's slot, and the slots on which each service runs, by rank, as far as that is known.

    Services without GPUs run anywhere, but the lead runs on the first slot of its pool, and so does `share: true`.
    """
    ranked: dict[str, list[tuple[int, str]]] = {}
    firsts: dict[str, str] = {}
    for slot in slots:
        firsts.setdefault(slot.pool, slot.name)
        for assignment in slot.assigned:
            ranked.setdefault(assignment.service, []).append((assignment.rank or 0, slot.name))
    # the sort is stable: slots stay in order where nothing has a rank
    places = {
        name: tuple(slot for _, slot in sorted(there, key=lambda pair: pair[0])) for name, there in ranked.items()
    }
    lead_slot = None
    for demand in demands:
        name, first = demand.name, firsts.get(demand.pool)
        if name == lead:
            lead_slot = next(iter(places.get(name, ())), first) if demand.gpus_needed else first
        if name not in places:
            places[name] = (first,) if first and (demand.share or name == lead) else ()
    return lead_slot, places


def why(demand: Demand, own: Sequence[tuple[int, Piece]], skipped: bool) -> str:
    """Return in a word or two why the service has the GPUs that it has; `own` is what of it is on which node."""
    if demand.share:
        return "sees all GPUs"
    if demand.share_with:
        return f"shares with {demand.share_with}"
    if not demand.owner:
        return "needs no GPUs"
    if demand.leftover is not None and not skipped:
        return "leftover"
    if not own:
        return "not planned"
    if any(piece.bound for _, piece in own):
        return "bound"
    if demand.pinned:
        return "pinned"
    return "whole nodes" if any(piece.whole for _, piece in own) else "planned"
