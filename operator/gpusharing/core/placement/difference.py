"""`place --check`: what a plan that was printed earlier says, and what the plan says now."""

from collections.abc import Iterator

from gpusharing.api.placementplan import SavedPlan

NOTHING = "-"


def differences(before: SavedPlan, now: SavedPlan) -> list[str]:
    """Return one line for each thing that changed, in the order of the plan; what is gone comes last."""
    was, is_now = dict(_facts(before)), dict(_facts(now))
    return [
        f"{key}: {was.get(key, NOTHING)}, now {is_now.get(key, NOTHING)}"
        for key in [*is_now, *(key for key in was if key not in is_now)]
        if was.get(key, NOTHING) != is_now.get(key, NOTHING)
    ]


def _facts(plan: SavedPlan) -> Iterator[tuple[str, str]]:
    """Yield what a reader would compare, each under a name of its own. What is free follows from the rest."""
    for name, pool in plan.pools.items():
        yield f"pool {name} nodes", str(pool.nodes_resolved)
    yield "lead slot", plan.lead_slot or NOTHING
    yield "sees all GPUs", ", ".join(plan.sees_all) or NOTHING
    for name, slot in plan.slots.items():
        if slot.node:
            yield f"{name} node", slot.node
        for service, assignment in slot.assigned.items():
            yield f"{name} {service}", str(assignment)
            yield f"{name} {service} exported", "yes" if service in slot.exported else "no"
