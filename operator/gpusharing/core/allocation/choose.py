"""Which rule serves a resource: the policy that users named, or aligned for whole GPUs."""

from dataclasses import dataclass

from gpusharing.api.sharing import Allocation, KeepTogether
from gpusharing.core.allocation.policies import POLICIES
from gpusharing.core.allocation.request import AllocationPolicy
from gpusharing.core.resources import Resource

ALIGNED, DEFAULT = "aligned", "distributed"


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy, and what else is said about the GPUs of a request."""

    policy: AllocationPolicy
    keep_together: KeepTogether = "none"
    # whether requests that span GPUs go to linked ones
    linked: bool = False


def rule_for(resource: Resource, allocation: Allocation) -> Rule:
    """Return the rule. What CEL refuses (decision 51) has no effect; a policy that is not known is `distributed`."""
    if resource.whole_gpus:
        return Rule(POLICIES[ALIGNED])
    policy = POLICIES.get(allocation.policy, POLICIES[DEFAULT])
    keep_together = "none" if policy.NAME == "spread" else allocation.keep_together
    linked = allocation.topology == "preferred" and (policy.NAME == "spread" or keep_together != "none")
    return Rule(policy, keep_together, linked)
