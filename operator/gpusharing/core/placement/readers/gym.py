"""NeMo Gym's submit file → the spec of a `GpuPlacement` (guide section 10.5; rules R1 to R18 of its section 3).

What the planner must not know is decided here: kinds of services, what spans several pools, what is not deployed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusharing.api.gymsubmit import GymCompute, GymNodePool, GymService, GymSubmit
from gpusharing.api.problems import Problem, parse, quoted

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
LITERAL, HOST, RUNTIME = "lit:", "host:", "runtime:"
DEFAULT_PORT = 8000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file asks for, as the spec of a GpuPlacement; and what was left out of it, one sentence each."""

    spec: Spec
    notices: tuple[str, ...]


def read(data: object, environment: Mapping[str, str]) -> tuple[Reading | None, list[Problem]]:
    """Return what the file asks for, or None and everything that is wrong with it.

    `environment` is that of the submitting host, from which values with the prefix `host:` are taken.
    """
    submit, problems = parse(GymSubmit, data)
    if submit is None:
        return None, [_resolved_first(problem) for problem in problems]
    (compute,) = submit.compute.values()
    job = _Job(compute, environment)
    services = [spec for name, service in submit.services.items() for spec in job.specs(name, service)]
    job.check_names(submit, [spec["name"] for spec in services])
    if job.problems:
        return None, job.problems
    spec: Spec = {"pools": [_pool(name, pool) for name, pool in job.pools.items()], "services": services}
    lead = _label(submit.driver.policy_model or "")
    # the driver may well talk to an endpoint that is not ours
    if lead and not any(each["name"] == lead and each.get("deploy") is False for each in services):
        spec["lead"] = lead
    return Reading(spec, tuple(job.notices)), []


def _resolved_first(problem: Problem) -> Problem:
    """Say what to do about an interpolation, which Gym resolves before it looks at its file."""
    if "${" not in problem.message:
        return problem
    return Problem(problem.path, problem.message, "write the value itself: interpolations are resolved by Gym only")


def _label(name: str) -> str:
    """Return the name as a DNS label: Gym's own samples have underscores."""
    return re.sub(r"[_.]", "-", name.lower())


def _pool(name: str, pool: GymNodePool) -> Spec:
    size = {} if pool.gpus_per_node is None else {"gpusPerNode": pool.gpus_per_node}
    return {"name": _label(name), "nodes": pool.nodes, **size}


@dataclass(slots=True)
class _Job:
    """A job while it is read: its pools, and what has been found wrong or left out so far."""

    compute: GymCompute
    environment: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def pools(self) -> dict[str, GymNodePool]:
        """The pools that have nodes; the driver is on the first one's first node."""
        pools = {name: pool for name, pool in self.compute.node_pools.items() if pool.nodes != 0}
        return pools or dict(self.compute.node_pools)

    def specs(self, name: str, service: GymService) -> Iterator[Spec]:
        """Yield what becomes of one service: none, one, or one for each pool or tier."""
        if service.base_url is not None:
            yield {"name": _label(name), "gpus": 0, "deploy": False, "pool": self._first()}  # R7
            return
        match service.type:
            case "vllm":
                yield from self._vllm(name, service)
            case "vllm_pd":
                yield from self._tiers(name, service)
            case "ray":
                yield from self._ray(name, service)
            case "router":
                yield self._without_gpus(name, service, kind="router")  # R5
            case _:
                yield self._without_gpus(name, service, kind="generic")  # R8

    def check_names(self, submit: GymSubmit, names: list[str]) -> None:
        """Note names that are no DNS label, and those that became equal."""
        for path, name in [
            *((f"services.{name}", name) for name in submit.services),
            *((f"compute.node_pools.{name}", name) for name in self.pools),
        ]:
            if not _LABEL.fullmatch(_label(name)):
                self._wrong(path, name, "a name of letters, digits, - and _")
        for name in dict.fromkeys(each for each in names if names.count(each) > 1):
            self._wrong("services", name, "names that differ in more than case, _ and .")

    def _vllm(self, name: str, service: GymService) -> Iterator[Spec]:
        path = f"services.{name}"
        pool, pin = self._pool_of(path, service), self._pin(path, service)
        if pool is None:
            if service.node_pool is None:  # R18
                self.notices.append(
                    f"service '{_label(name)}' names no node_pool of a job with several pools, so it spans all of "
                    "them; nothing is planned for it"
                )
            return
        spec = {**_vllm_spec(name, pool, service.port or DEFAULT_PORT, _shape(service)), **pin}
        if service.share_gpus:
            spec["share"] = True  # R4
        elif service.kv_role is not None:
            spec["exclusiveNodes"] = True
        elif _spread_evenly(service, self.pools[pool]):
            spec["distribute"] = "evenly"  # R9
        yield spec

    def _tiers(self, name: str, service: GymService) -> Iterator[Spec]:
        """Yield the two tiers of a disaggregated service, and the router that has its name."""
        port = service.port or DEFAULT_PORT
        for number, role in enumerate(("prefill", "decode"), start=1):
            tier, problems = parse(GymService, getattr(service, role) or {}, at=f"services.{name}.{role}")
            self.problems += map(_resolved_first, problems)
            if tier is None:
                continue
            pool = self._pool_of(f"services.{name}.{role}", tier)
            if pool is None:
                self._wrong(f"services.{name}.{role}.node_pool", None, f"one of {', '.join(self.pools)}")
                continue
            shape = _shape(tier)
            nodes = self.pools[pool].nodes
            if service.server_per_node and nodes != "auto":
                shape["instances"] = nodes
            spec = _vllm_spec(f"{name}-{role}", pool, tier.port or port + number, shape)
            yield {**spec, "exclusiveNodes": True}
        yield self._without_gpus(name, service, kind="router")

    def _ray(self, name: str, service: GymService) -> Iterator[Spec]:
        """Yield one service for each pool that the cluster spans: those it names, and the driver's (R17)."""
        for pool in service.node_pools:
            if pool not in self.pools:
                self._wrong(f"services.{name}.node_pools", pool, f"one of {', '.join(self.pools)}")
        pools = [pool for pool in self.pools if pool in {self._driver_pool(), *service.node_pools}]
        pin = self._pin(f"services.{name}", service)
        for pool in pools:
            own = _label(name if len(pools) == 1 else f"{name}-{pool}")
            spec: Spec = {"name": own, "kind": "ray", "pool": _label(pool)}
            if service.port is not None:
                spec["port"] = service.port
            if service.share_gpus:
                yield {**spec, "share": True, **pin}
            elif service.num_gpus == 0:
                yield {**spec, "gpus": 0}  # R6
            else:
                yield {**spec, **(pin or {"leftover": {"min": 1}})}  # R21, R22

    def _without_gpus(self, name: str, service: GymService, *, kind: str) -> Spec:
        pool = service.node_pool if service.node_pool in self.pools else None
        spec: Spec = {"name": _label(name), "kind": kind, "pool": _label(pool) if pool else self._first(), "gpus": 0}
        return spec if service.port is None else {**spec, "port": service.port}

    def _driver_pool(self) -> str:
        return next(iter(self.pools))

    def _first(self) -> str:
        return _label(self._driver_pool())

    def _pool_of(self, path: str, service: GymService) -> str | None:
        """Return the service's pool; None where it names none of several, or one that is not there (a problem)."""
        if service.node_pool is not None and service.node_pool not in self.compute.node_pools:
            self._wrong(f"{path}.node_pool", service.node_pool, f"one of {', '.join(self.compute.node_pools)}")
            return None
        if len(self.pools) == 1:  # R16: whatever it names, there it is
            return self._driver_pool()
        return service.node_pool if service.node_pool in self.pools else None

    def _pin(self, path: str, service: GymService) -> Spec:
        """Return the GPUs that the service's environment names by hand (R19, R25)."""
        written = service.env.get(VISIBLE_DEVICES)
        if written is None:
            return {}
        path = f"{path}.env.{VISIBLE_DEVICES}"
        prefix = next((each for each in (LITERAL, HOST, RUNTIME) if written.startswith(each)), "")
        value = written.removeprefix(prefix)
        if not prefix:
            self._wrong(path, written, f"a value with the prefix {LITERAL}, {HOST} or {RUNTIME}")
        elif prefix == LITERAL:
            return {"visibleDevices": value}
        elif not _VARIABLE.fullmatch(value):
            self._wrong(path, written, "the name of an environment variable behind the prefix")
        elif prefix == RUNTIME:
            return {"visibleDevicesFromEnv": value}
        elif value not in self.environment:
            self._wrong(path, written, f"{value} to be set where the file is read")
        else:
            return {"visibleDevices": self.environment[value]}
        return {}

    def _wrong(self, path: str, value: object, expected: str) -> None:
        self.problems.append(Problem(path, f"{quoted(value)}, expected {expected}"))


def _vllm_spec(name: str, pool: str, port: int, shape: dict[str, int]) -> Spec:
    return {"name": _label(name), "kind": "vllm", "pool": _label(pool), "port": port, "parallelism": shape}


def _shape(service: GymService) -> dict[str, int]:
    """Return tensor, pipeline and instances, without what is 1."""
    shape = {
        "tensor": service.tensor_parallel_size,
        "pipeline": service.pipeline_parallel_size,
        "instances": service.number_of_instances,
    }
    return {name: size for name, size in shape.items() if size > 1}


def _spread_evenly(service: GymService, pool: GymNodePool) -> bool:
    """Whether each node runs its share of the instances: several of both, and Ray Serve does not place them."""
    if pool.nodes == "auto" or pool.nodes < 2 or service.number_of_instances < 2 or service.use_ray_serve:
        return False
    per_instance = service.tensor_parallel_size * service.pipeline_parallel_size
    return pool.gpus_per_node is None or per_instance <= pool.gpus_per_node
