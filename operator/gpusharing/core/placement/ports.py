"""Step 6 of the checks: services that would listen on one port of one host."""

from collections.abc import Iterator, Mapping, Sequence

from gpusharing.api.placement import Enforcement
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.problems import Code, Problem


def port_problems(
    demands: Sequence[Demand], slots_of: Mapping[str, Sequence[str]], enforced_by: Enforcement
) -> Iterator[Problem]:
    """Yield one error for each service that listens where an earlier one does; `slots_of` says where services run."""
    on_host = [each for each in demands if each.port is not None and (each.host_network or enforced_by == "env")]
    for at, later in enumerate(on_host):
        for earlier in on_host[:at]:
            both = [slot for slot in slots_of.get(earlier.name, ()) if slot in slots_of.get(later.name, ())]
            if both and earlier.port == later.port:
                message = f"services '{earlier.name}' and '{later.name}' on {both[0]} both listen on port {later.port}"
                yield Problem(Code.PORT_CONFLICT, message, services=(earlier.name, later.name), pool=later.pool)
                break
