"""NeMo Gym's submit file → the spec of a `GpuPlacement` (guide section 10.5; rules R1 to R18 of its section 3).

What the planner must not know is decided here: kinds of services, what spans several pools, what is not deployed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpusharing.api.gymsubmit import GymNodePool, GymService, GymSubmit
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
    job = _Job({name: pool for name, pool in compute.node_pools.items() if pool.nodes != 0}, environment)
    found = [each for name, service in submit.services.items() for each in job.specs(name, service)]
    services = [each for each in found if isinstance(each, dict)]
    wrong = [each for each in found if isinstance(each, Problem)]
    wrong += _wrong_names(submit, job.pools, [each["name"] for each in services])
    if wrong:
        return None, wrong
    spec: Spec = {"pools": [_pool(name, pool) for name, pool in job.pools.items()], "services": services}
    lead = submit.driver.policy_model
    deployed = {each["name"] for each in services if each.get("deploy", True)}
    # the driver may well talk to an endpoint that is not ours, or to a service that was left out
    if lead is not None and (lead not in submit.services or _label(lead) in deployed):
        spec["lead"] = _label(lead)
    return Reading(spec, tuple(each for each in found if isinstance(each, str))), []


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


def _wrong_names(submit: GymSubmit, pools: Mapping[str, GymNodePool], names: Sequence[str]) -> Iterator[Problem]:
    """Yield names that are no DNS label, and those that became equal."""
    written = [
        *((f"services.{name}", name) for name in submit.services),
        *((f"node_pools.{name}", name) for name in pools),
    ]
    for path, name in written:
        if not _LABEL.fullmatch(_label(name)):
            yield _wrong(path, name, "a name of letters, digits, - and _")
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield _wrong("services", name, "names that differ in more than case, _ and .")


# What becomes of a service: its spec, what is wrong with it, or a sentence that says why it is left out.
_Found = Spec | Problem | str


@dataclass(frozen=True, slots=True)
class _Job:
    """What all services of the file share."""

    # those with nodes; the driver is on the first one's first node
    pools: Mapping[str, GymNodePool]
    environment: Mapping[str, str]

    def specs(self, name: str, service: GymService) -> Iterator[_Found]:
        """Yield what becomes of one service: one spec, or one for each pool or tier."""
        if service.base_url is not None:
            yield {"name": _label(name), "gpus": 0, "deploy": False, "pool": _label(self._first)}  # R7
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

    def _vllm(self, name: str, service: GymService) -> Iterator[_Found]:
        path = f"services.{name}"
        pool, pin = self._pool_of(path, service), self._pin(path, service)
        if isinstance(pin, Problem):
            yield pin
        elif pool is None:
            yield (
                f"service '{_label(name)}' names no node_pool of a job with several pools, so it spans all of them; "
                "nothing is planned for it"
            )  # R18
        elif isinstance(pool, str):
            yield {
                **_vllm_spec(name, pool, service.port or DEFAULT_PORT, _shape(service)),
                **pin,
                **_terms(service, self.pools[pool]),
            }
        if isinstance(pool, Problem):
            yield pool

    def _tiers(self, name: str, service: GymService) -> Iterator[_Found]:
        """Yield the two tiers of a disaggregated service, and the router that has its name."""
        port = service.port or DEFAULT_PORT
        for number, role in enumerate(("prefill", "decode"), start=1):
            path = f"services.{name}.{role}"
            tier, problems = parse(GymService, getattr(service, role) or {}, at=path)
            yield from map(_resolved_first, problems)
            if tier is None:
                continue
            pool = self._pool_of(path, tier)
            if isinstance(pool, str):
                shape = _shape(tier, servers=self.pools[pool].nodes if service.server_per_node else 1)
                spec = _vllm_spec(f"{name}-{role}", pool, tier.port or port + number, shape)
                yield {**spec, "exclusiveNodes": True}
            else:
                yield pool or _wrong(f"{path}.node_pool", None, f"one of {', '.join(self.pools)}")
        yield self._without_gpus(name, service, kind="router")

    def _ray(self, name: str, service: GymService) -> Iterator[_Found]:
        """Yield one service for each pool that the cluster spans: those it names, and the driver's (R17)."""
        known = f"one of {', '.join(self.pools)}"
        yield from (
            _wrong(f"services.{name}.node_pools", pool, known) for pool in service.node_pools if pool not in self.pools
        )
        pin = self._pin(f"services.{name}", service)
        if isinstance(pin, Problem):
            yield pin
            return
        pools = [pool for pool in self.pools if pool in {self._first, *service.node_pools}]
        for pool in pools:
            own = _label(name if len(pools) == 1 else f"{name}-{pool}")
            port = {} if service.port is None else {"port": service.port}
            yield {"name": own, "kind": "ray", "pool": _label(pool), **port, **_ray_terms(service, pin)}

    def _without_gpus(self, name: str, service: GymService, *, kind: str) -> Spec:
        pool = service.node_pool if service.node_pool in self.pools else self._first
        spec: Spec = {"name": _label(name), "kind": kind, "pool": _label(pool or self._first), "gpus": 0}
        return spec if service.port is None else {**spec, "port": service.port}

    @property
    def _first(self) -> str:
        return next(iter(self.pools), "")

    def _pool_of(self, path: str, service: GymService) -> str | Problem | None:
        """Return the service's pool; None where it names none of several."""
        if len(self.pools) == 1:  # R16: whatever it names, there it is
            return self._first
        if service.node_pool is None or service.node_pool in self.pools:
            return service.node_pool
        return _wrong(f"{path}.node_pool", service.node_pool, f"one of {', '.join(self.pools)}")

    def _pin(self, path: str, service: GymService) -> Spec | Problem:
        """Return the GPUs that the service's environment names by hand (R19, R25); nothing if it names none."""
        written = service.env.get(VISIBLE_DEVICES)
        if written is None:
            return {}
        path = f"{path}.env.{VISIBLE_DEVICES}"
        prefix = next((each for each in (LITERAL, HOST, RUNTIME) if written.startswith(each)), "")
        value = written.removeprefix(prefix)
        if not prefix:
            return _wrong(path, written, f"a value with the prefix {LITERAL}, {HOST} or {RUNTIME}")
        if prefix == LITERAL:
            return {"visibleDevices": value}
        if not _VARIABLE.fullmatch(value):
            return _wrong(path, written, "the name of an environment variable behind the prefix")
        if prefix == RUNTIME:
            return {"visibleDevicesFromEnv": value}
        if value not in self.environment:
            return _wrong(path, written, f"{value} to be set where the file is read")
        return {"visibleDevices": self.environment[value]}


def _wrong(path: str, value: object, expected: str) -> Problem:
    return Problem(path, f"{quoted(value)}, expected {expected}")


def _vllm_spec(name: str, pool: str, port: int, shape: dict[str, int]) -> Spec:
    return {"name": _label(name), "kind": "vllm", "pool": _label(pool), "port": port, "parallelism": shape}


def _shape(service: GymService, *, servers: int | Literal["auto"] = 1) -> dict[str, int]:
    """Return tensor, pipeline and instances, without what is 1. `servers`: how many of them run side by side."""
    shape = {
        "tensor": service.tensor_parallel_size,
        "pipeline": service.pipeline_parallel_size,
        "instances": service.number_of_instances * (1 if servers == "auto" else servers),
    }
    return {name: size for name, size in shape.items() if size > 1}


def _terms(service: GymService, pool: GymNodePool) -> Spec:
    """Return on which terms a model server has its GPUs, or none."""
    if service.share_gpus:
        return {"share": True}  # R4
    if service.kv_role is not None:
        return {"exclusiveNodes": True}
    return {"distribute": "evenly"} if _spread_evenly(service, pool) else {}  # R9


def _ray_terms(service: GymService, pin: Spec) -> Spec:
    if service.share_gpus:
        return {"share": True, **pin}
    if service.num_gpus == 0:
        return {"gpus": 0}  # R6
    return pin or {"leftover": {"min": 1}}  # R21, R22


def _spread_evenly(service: GymService, pool: GymNodePool) -> bool:
    """Whether each node runs its share of the instances: several of both, and Ray Serve does not place them."""
    if pool.nodes == "auto" or pool.nodes < 2 or service.number_of_instances < 2 or service.use_ray_serve:
        return False
    per_instance = service.tensor_parallel_size * service.pipeline_parallel_size
    return pool.gpus_per_node is None or per_instance <= pool.gpus_per_node
