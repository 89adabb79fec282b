"""Which rule serves a resource."""

import pytest
from tests.support.allocation import allocation, shares

from gpusharing.core.allocation.choose import rule_for
from gpusharing.core.resources import Device, Resource

WHOLE = Resource("nvidia.com/gpu", (Device("A", "A", "A"), Device("B", "B", "B")))
MIG = Resource("nvidia.com/mig-1g.10gb", (Device("M", "M", "A"),))


def test_whole_gpus_are_aligned_whatever_users_say() -> None:
    rule = rule_for(WHOLE, allocation("packed", "required", "preferred"))
    assert (rule.policy.NAME, rule.keep_together, rule.linked) == ("aligned", "none", False)


@pytest.mark.parametrize("resource", [MIG, shares({"A": 2})], ids=["mig", "shares"])
@pytest.mark.parametrize("policy", ["packed", "distributed", "spread"])
def test_everything_else_is_as_users_say(resource: Resource, policy: str) -> None:
    assert policy == rule_for(resource, allocation(policy)).policy.NAME


@pytest.mark.parametrize(
    ("said", "keep_together", "linked"),
    [
        (("packed", "preferred", "preferred"), "preferred", True),
        (("distributed", "required", "none"), "required", False),
        (("spread", "none", "preferred"), "none", True),
        (("spread", "required", "none"), "none", False),
        (("packed", "none", "preferred"), "none", False),
    ],
    ids=str,
)
def test_what_the_api_refuses_has_no_effect(said: tuple[str, str, str], keep_together: str, linked: bool) -> None:
    rule = rule_for(MIG, allocation(*said))
    assert (rule.keep_together, rule.linked) == (keep_together, linked)
