"""The nodes that a placement in a cluster may be planned on, from what the controller knows of them (guide, 5.5)."""

from gpusharing.core.desired_state import Assignment, Outcome


def reservable(assignment: Assignment) -> bool:
    """Whether placements may reserve GPUs of the node that this was decided about.

    The policy that owns it must allow it, and must not share by MPS, whose daemon holds the GPUs (guide, 8.5 and E15).
    """
    if assignment.outcome is not Outcome.OWNED or assignment.policy is None or assignment.policy.spec is None:
        return False
    spec = assignment.policy.spec
    return spec.allow_placements and (spec.sharing is None or spec.sharing.strategy != "mps")
