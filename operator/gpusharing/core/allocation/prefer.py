"""`GetPreferredAllocation`: which free ids a container should get. Pure: the same state gives the same answer.

`Preferences` are made once per list of devices; `prefer` answers one request and never raises, whatever it is given.
"""

from dataclasses import dataclass

from gpusharing.api.sharing import Allocation
from gpusharing.core.allocation.buckets import Buckets, Table, gpus_of, table_of
from gpusharing.core.allocation.choose import Rule, rule_for
from gpusharing.core.allocation.links import Links, links_of
from gpusharing.core.allocation.request import AllocationRequest, Choice, Refusal
from gpusharing.core.allocation.together import evenly, fewest_gpus, most_linked
from gpusharing.core.devices import Inventory
from gpusharing.core.resources import Resource


@dataclass(frozen=True, slots=True)
class Preferences:
    """A resource's devices and the rule that serves them."""

    table: Table
    rule: Rule


def preferences(resource: Resource, inventory: Inventory, allocation: Allocation) -> Preferences:
    """Return what `prefer` needs. Make it anew when devices, links or allocation change: it takes milliseconds."""
    rule = rule_for(resource, allocation)
    needs_links = rule.linked or rule.policy.NAME == "aligned"
    links = links_of(gpus_of(resource.devices, inventory), inventory) if needs_links else Links()
    return Preferences(table_of(resource.devices, inventory, links), rule)


def prefer(request: AllocationRequest, preferences: Preferences) -> Choice:
    """Return the preferred ids, exactly `size` of them, or none and the reason."""
    buckets = Buckets(preferences.table, request)
    unknown = _unknown(request, buckets)
    if refusal := _refusal(request, buckets, preferences.rule):
        return Choice((), refusal, unknown)
    if not buckets.need:
        return Choice(buckets.must, "", unknown)
    chosen = _chosen(buckets, preferences.rule)
    return Choice((*buckets.must, *chosen), "", unknown) if chosen else Choice((), "split", unknown)


def _unknown(request: AllocationRequest, buckets: Buckets) -> tuple[str, ...]:
    """Return the ids that the resource does not have; where all that are offered may be chosen there are none."""
    if request.must_include or request.sick or buckets.room < len(buckets.available):
        return tuple(sorted(buckets.available.union(request.must_include).difference(buckets.table.gpu_of)))
    return ()


def _refusal(request: AllocationRequest, buckets: Buckets, rule: Rule) -> Refusal:
    if request.size <= 0:
        return "size"
    if buckets.need < 0 or (rule.policy.NAME == "aligned" and not buckets.available.issuperset(buckets.must)):
        return "must-include"
    return "insufficient" if buckets.room < buckets.need else ""


def gpus_to_use(buckets: Buckets, rule: Rule) -> list[int]:
    """Return the GPUs, by index, that the policy may choose from; none where the request must not be split."""
    if rule.keep_together == "none":
        return most_linked(buckets) if rule.linked else buckets.candidates()
    gpus = fewest_gpus(buckets, rule.policy.LOAD_SIGN, linked=rule.linked)
    return [] if rule.keep_together == "required" and len({*gpus, *buckets.touched()}) > 1 else gpus


def _chosen(buckets: Buckets, rule: Rule) -> list[str]:
    gpus = gpus_to_use(buckets, rule)
    if rule.linked and rule.keep_together != "none" and len(gpus) > 1:
        return evenly(buckets, gpus, rule.policy.LOAD_SIGN)
    return rule.policy.choose(buckets, gpus)
