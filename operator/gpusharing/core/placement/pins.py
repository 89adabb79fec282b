"""Step 2 of the checks: pins, and instances that are to be spread evenly, of one service."""

from collections.abc import Iterator, Sequence

from gpusharing.api.placement import Pool, Service
from gpusharing.core.placement.demand import Demand, asked_for
from gpusharing.core.placement.pools import Space
from gpusharing.core.placement.problems import Code, Problem


def spread_problems(service: Service, demand: Demand, pool: Pool) -> Iterator[Problem]:
    """Yield what keeps instances from being spread evenly over the pool."""
    if not demand.evenly:
        return
    if pool.nodes == "auto":
        message = (
            f"service '{service.name}' is spread evenly, so pool '{pool.name}' needs a node count instead of "
            "nodes: auto"
        )
        yield _problem(Code.EVENLY_NEEDS_COUNT, message, demand)
    elif demand.instances % pool.nodes:
        message = (
            f"service '{service.name}' runs {demand.instances} instances evenly over {pool.nodes} nodes of pool "
            f"'{pool.name}', but {demand.instances} is not a multiple of {pool.nodes}"
        )
        yield _problem(Code.INSTANCES_NOT_DIVISIBLE, message, demand)


def list_problems(service: Service, demand: Demand, pool: Pool | None) -> Iterator[Problem]:
    """Yield what is wrong with the list of GPUs, wherever they are."""
    named = demand.pins or demand.uuid_pins
    if not named or not demand.owner:
        return
    listed = service.visible_devices
    if len(set(named)) < len(named):
        message = f"service '{service.name}' lists a GPU twice in visibleDevices ({listed})"
        yield _problem(Code.PIN_REPEATS, message, demand)
    shape = _shape(service, pool)
    if shape is not None and len(named) < shape:
        message = f"service '{service.name}' pins {len(named)} GPU(s) ({listed}) but its shape needs {shape}"
        yield _problem(Code.PIN_TOO_SMALL, message, demand)


def pin_problems(demand: Demand, pool: Pool, space: Space | None, others: Sequence[Demand]) -> Iterator[Problem]:
    """Yield what keeps the pin from being kept in this pool. `others` are the other owners of the pool."""
    if not demand.owner:
        return
    if demand.from_env and others:
        message = (
            f"service '{demand.name}' takes visibleDevices from a value known only at run time, so its GPUs cannot "
            f"be kept from the other services of pool '{pool.name}'; use an index list, share: true, or a pool of its "
            "own"
        )
        yield _problem(Code.OPAQUE_PIN, message, demand)
    if demand.uuid_pins:
        yield from _uuids(demand, pool, space)
    else:
        yield from _indexes(demand, pool, space)


def too_large(service: Service, demand: Demand, pool: Pool) -> Iterator[Problem]:
    """Yield the warning that a pin holds more GPUs than the service's shape uses."""
    named = demand.pins or demand.uuid_pins
    shape = _shape(service, pool)
    if demand.owner and named and shape is not None and len(named) > shape:
        message = (
            f"service '{service.name}' pins {len(named)} GPUs ({service.visible_devices}) but its shape needs {shape}; "
            f"{len(named) - shape} will idle"
        )
        yield _problem(Code.PIN_TOO_LARGE, message, demand)


def _shape(service: Service, pool: Pool | None) -> int | None:
    """Return what the shape needs where the pin is: on every node, if instances are spread evenly."""
    asked = asked_for(service)
    if asked is not None and service.distribute and pool is not None and isinstance(pool.nodes, int):
        return asked // pool.nodes
    return asked


def _problem(code: Code, message: str, demand: Demand) -> Problem:
    return Problem(code, message, services=(demand.name,), pool=demand.pool)


def _indexes(demand: Demand, pool: Pool, space: Space | None) -> Iterator[Problem]:
    for index in dict.fromkeys(demand.pins):
        if space is not None and space.nodes and index > space.last_index:
            message = (
                f"service '{demand.name}' pins GPU {index}, but nodes of pool '{pool.name}' have GPUs "
                f"0-{space.last_index}"
            )
            yield _problem(Code.PIN_OUT_OF_RANGE, message, demand)
        elif index in pool.reserved:
            yield _reserved(demand, index, pool)


def _uuids(demand: Demand, pool: Pool, space: Space | None) -> Iterator[Problem]:
    listed = ",".join(demand.uuid_pins)
    if space is None or not space.real:
        message = (
            f"service '{demand.name}' pins GPUs by UUID ({listed}), which needs an inventory to resolve; give "
            "--inventory or use an index list"
        )
        yield _problem(Code.PIN_UNRESOLVED, message, demand)
        return
    missing = [uuid for uuid in dict.fromkeys(demand.uuid_pins) if uuid not in space.gpus]
    found = [space.gpus[uuid] for uuid in dict.fromkeys(demand.uuid_pins) if uuid in space.gpus]
    if missing:
        message = f"service '{demand.name}' pins {','.join(missing)}, which no node of pool '{pool.name}' has"
        yield _problem(Code.PIN_UNRESOLVED, message, demand)
    elif len({at for at, _ in found}) > 1:
        yield _problem(
            Code.PIN_UNRESOLVED, f"service '{demand.name}' pins GPUs of more than one node ({listed})", demand
        )
    yield from (_reserved(demand, index, pool) for _, index in found if index in pool.reserved)


def _reserved(demand: Demand, index: int, pool: Pool) -> Problem:
    message = f"service '{demand.name}' pins GPU {index}, which pool '{pool.name}' keeps reserved"
    return _problem(Code.PIN_RESERVED, message, demand)
