"""All that the planner sees of a service. Kinds are not in it: renaming them changes nothing."""

from dataclasses import dataclass

from gpusharing.api.placement import PlacementSpec, Pool, Service


@dataclass(frozen=True, slots=True)
class Demand:
    """What one deployed service asks for."""

    name: str
    # its place among the declared services
    order: int
    # the name of its pool; empty = none, or none that there is
    pool: str
    # of its own, in all
    gpus_needed: int
    # whether it owns GPUs, or takes what is left
    owner: bool
    # of each of its GPUs; None = whole ones
    percent: int | None = None
    pins: tuple[int, ...] = ()
    uuid_pins: tuple[str, ...] = ()
    from_env: str = ""
    # the fewest that will do of what the others leave; None = it has a need of its own
    leftover: int | None = None
    share: bool = False
    share_with: str = ""
    exclusive: bool = False
    evenly: bool = False
    split: bool = False
    tail: bool = False
    per_instance: int = 1
    instances: int = 1
    tensor: int = 1
    port: int | None = None
    host_network: bool = False

    @property
    def pinned(self) -> bool:
        """Whether somebody named its GPUs by hand."""
        return bool(self.pins or self.uuid_pins or self.from_env)

    def shares(self, replicas: int) -> int:
        """Return what it takes of each of its GPUs, where a GPU is cut into so many shares."""
        return replicas if self.percent is None else -(-self.percent * replicas // 100)

    @property
    def need_text(self) -> str:
        """Return `policy 2`, or `llm 2 x 80%`."""
        part = "" if self.percent is None else f" x {self.percent}%"
        return f"{self.name} {self.gpus_needed}{part}"


def demands(spec: PlacementSpec) -> tuple[Demand, ...]:
    """Return what every deployed service asks for, in declaration order."""
    pools = {each.name: each for each in reversed(spec.pools)}
    only = spec.pools[0] if len(pools) == 1 else None
    deployed = [each for each in spec.services if each.deploy]
    return tuple(
        _demand(each, order, only if each.pool is None else pools.get(each.pool)) for order, each in enumerate(deployed)
    )


def _demand(service: Service, order: int, pool: Pool | None) -> Demand:
    shape = service.parallelism
    leftover = service.leftover if not (service.share or service.share_with) else None
    needed = gpus_needed(service, pool)
    words = (service.visible_devices or "").split(",") if service.visible_devices else []
    return Demand(
        name=service.name,
        order=order,
        pool=pool.name if pool else "",
        gpus_needed=needed,
        owner=needed > 0 or leftover is not None,
        percent=int(service.fraction.rstrip("%")) if service.fraction else None,
        pins=tuple(int(each) for each in words if each.isdigit()),
        uuid_pins=tuple(each for each in words if not each.isdigit()),
        from_env=service.visible_devices_from_env or "",
        leftover=leftover.min if leftover else None,
        share=service.share,
        share_with=service.share_with or "",
        exclusive=service.exclusive_nodes,
        evenly=service.distribute == "evenly",
        split=service.split == "instances",
        tail=service.span == "tail",
        per_instance=shape.per_instance if shape else 1,
        instances=shape.instances if shape else 1,
        tensor=shape.tensor if shape else 1,
        port=service.listens_on,
        host_network=service.host_network,
    )


def gpus_needed(service: Service, pool: Pool | None) -> int:
    """Return the GPUs that the service needs of its own; a list that is spread evenly counts on every node."""
    if service.share or service.share_with or service.leftover:
        return 0
    if service.visible_devices:
        nodes = pool.nodes if pool and service.distribute == "evenly" and isinstance(pool.nodes, int) else 1
        return nodes * len(service.visible_devices.split(","))
    said = asked_for(service)
    return said if said is not None else 1 if service.visible_devices_from_env else 0


def asked_for(service: Service) -> int | None:
    """Return what `parallelism` or `gpus` say; None = neither is there."""
    shape = service.parallelism
    return shape.per_instance * shape.instances if shape else service.gpus
