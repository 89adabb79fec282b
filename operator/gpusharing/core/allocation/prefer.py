"""`GetPreferredAllocation`: which free ids a container should get. Pure: the same state gives the same answer.

`Preferences` are made once per list of devices; `prefer` answers one request and never raises, whatever it is given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpusharing.api.sharing import Allocation
from gpusharing.core.allocation.buckets import Buckets, Table, gpus_of, table_of
from gpusharing.core.allocation.choose import Rule, rule_for
from gpusharing.core.allocation.links import Links, links_of
from gpusharing.core.allocation.request import AllocationRequest, Choice
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
    table = preferences.table
    available = set(request.available)
    flags = bytearray(map(available.__contains__, table.ids))
    required = _known(request.must_include, table) if request.must_include else ()
    unknown = _unknown(request, table) if flags.count(1) != len(available) or request.must_include else ()
    if request.size <= 0:
        return Choice((), "size", unknown)
    if required and not _may_include(required, request, preferences.rule, flags):
        return Choice((), "must-include", unknown)
    must = tuple([table.ids[place] for place in required])
    if request.size == len(must):
        return Choice(must, "", unknown)
    buckets = Buckets(table, request, flags, required)
    if sum(buckets.free) < buckets.need:
        return Choice((), "insufficient", unknown)
    chosen = _chosen(buckets, preferences.rule)
    return Choice((*must, *chosen), "", unknown) if chosen else Choice((), "split", unknown)


def buckets_of(request: AllocationRequest, table: Table) -> Buckets:
    """Return the GPUs as the request finds them, for explanations."""
    flags = bytearray(map(set(request.available).__contains__, table.ids))
    return Buckets(table, request, flags, _known(request.must_include, table))


def _known(ids: Iterable[str], table: Table) -> tuple[int, ...]:
    return tuple(sorted({table.places[each] for each in ids if each in table.places}))


def _unknown(request: AllocationRequest, table: Table) -> tuple[str, ...]:
    return tuple(sorted({*request.available, *request.must_include}.difference(table.places)))


def _may_include(required: Sequence[int], request: AllocationRequest, rule: Rule, flags: bytearray) -> bool:
    """Whether there is room for the must-include ids; whole GPUs must be available too (decision 53)."""
    if len(required) > request.size:
        return False
    return rule.policy.NAME != "aligned" or all(flags[place] for place in required)


def gpus_to_use(buckets: Buckets, rule: Rule) -> list[int]:
    """Return the GPUs, by index, that the policy may choose from; none where the request must not be split."""
    if rule.keep_together == "none":
        return most_linked(buckets) if rule.linked else buckets.candidates()
    gpus = fewest_gpus(buckets, rule.policy.LOAD_SIGN, linked=rule.linked)
    touched = {gpu for gpu, required in enumerate(buckets.required) if required}
    return [] if rule.keep_together == "required" and len(touched.union(gpus)) > 1 else gpus


def _chosen(buckets: Buckets, rule: Rule) -> list[str]:
    gpus = gpus_to_use(buckets, rule)
    if rule.linked and rule.keep_together != "none" and len(gpus) > 1:
        return evenly(buckets, gpus, rule.policy.LOAD_SIGN)
    return rule.policy.choose(buckets, gpus)
