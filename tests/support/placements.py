"""Placements by their name in tests/vectors/placement.json: the request, and the plan that is expected of it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from gpusharing.api.placement import PlacementSpec
from gpusharing.core.placement.plan import Assignment, Plan, PoolPlan, ServicePlan, Slot
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.renderers import Job

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "placement.json"
Case = dict[str, Any]


@cache
def cases() -> dict[str, Case]:
    """Every case by its name."""
    return {case["name"]: case for case in json.loads(VECTORS.read_text())["cases"]}


def case(name: str) -> Case:
    """The one case whose name begins so."""
    (found,) = (each for each in cases() if each.startswith(name))
    return cases()[found]


def request_of(name: str) -> Case:
    """The spec of a case, as its file would have it."""
    request: Case = case(name)["input"]["request"]
    return request


@cache
def expected_job(name: str, **wanted: Any) -> Job:
    """The job of rendering the plan that a case expects; the planner has no part in it."""
    return job(case(name)["input"], case(name)["expect"], **wanted)


def job(given: Case, expected: Case, **wanted: Any) -> Job:
    """The job of rendering a plan, both in the words of a case."""
    return Job("rl-eval", "team-a", PlacementSpec.model_validate(given["request"]), _plan(given, expected), **wanted)


def known_at_run_time_only(**wanted: Any) -> Job:
    """A job in which the one service takes its GPUs from a variable."""
    request = {
        "pools": [{"name": "gpu", "nodes": 1, "gpusPerNode": 4}],
        "services": [{"name": "a", "gpus": 2, "visibleDevicesFromEnv": "MY_GPUS"}],
    }
    expected = {
        "pools": {"gpu": {"nodesResolved": 1}},
        "slots": {"gpu/0": {"assigned": {"a": {"fromEnv": "MY_GPUS"}}, "free": [], "exported": ["a"]}},
        "leadSlot": None,
        "seesAll": [],
        "warnings": [],
        "notices": [],
    }
    return job({"request": request}, expected, **wanted)


def _plan(given: Case, expected: Case) -> Plan:
    slots = tuple(_slot(name, slot, given) for name, slot in expected["slots"].items())
    return Plan(
        plan_hash="0" * 64,
        lead_slot=expected["leadSlot"],
        sees_all=tuple(expected["seesAll"]),
        pools=tuple(_pool(pool, expected["pools"][pool["name"]]) for pool in given["request"]["pools"]),
        slots=slots,
        services=tuple(_service(service, slots) for service in given["request"]["services"]),
        warnings=tuple(Problem(Code(each["code"]), each["message"]) for each in expected["warnings"]),
        notices=tuple(Problem(Code(each["code"]), each["message"]) for each in expected["notices"]),
    )


def _pool(pool: Case, expected: Case) -> PoolPlan:
    return PoolPlan(
        name=pool["name"],
        auto=pool.get("nodes") == "auto",
        skipped=expected.get("skipped", False),
        nodes_resolved=expected.get("nodesResolved", 0),
        lower_bound=expected.get("lowerBoundNodes"),
        proven_minimal=expected.get("provenMinimal"),
    )


def _slot(name: str, slot: Case, given: Case) -> Slot:
    pool_name, number = name.split("/")
    pool = next(pool for pool in given["request"]["pools"] if pool["name"] == pool_name)
    node = next(
        (node for node in given.get("inventory", {}).get("nodes", []) if node["name"] == slot.get("node")), None
    )
    known = {*slot["free"], *(index for each in slot["assigned"].values() for index in each.get("indexes", ()))}
    sizes = [len(node["gpus"])] if node else pool.get("gpusByNode") or [pool["gpusPerNode"]]
    size = min(size for size in sizes if size > max(known, default=0))
    uuids = {gpu["index"]: gpu["uuid"] for gpu in node["gpus"]} if node else {}
    return Slot(
        name=name,
        pool=pool_name,
        number=int(number),
        node=slot.get("node", ""),
        gpus=tuple(index for index in range(size) if index not in pool.get("reserved", [])),
        assigned=tuple(_assignment(service, each, uuids) for service, each in slot["assigned"].items()),
        free=tuple(slot["free"]),
        exported=tuple(slot["exported"]),
        size=size,
    )


def _assignment(service: str, given: Case, uuids: dict[int, str]) -> Assignment:
    indexes = tuple(given.get("indexes", ()))
    return Assignment(
        service=service,
        indexes=indexes,
        uuids=tuple(uuids[index] for index in indexes) if uuids else (),
        rank=given.get("rank"),
        shares=given.get("shares"),
        instances=given.get("instances"),
        first_instance=given.get("firstInstance"),
        from_env=given.get("fromEnv", ""),
    )


def _service(service: Case, slots: tuple[Slot, ...]) -> ServicePlan:
    placed = [slot for slot in slots if slot.of(service["name"])]
    indexes = [len(each.indexes) for slot in placed if (each := slot.of(service["name"]))]
    needed = service.get("gpus", sum(indexes) or 1)
    return ServicePlan(
        name=service["name"],
        pool=service.get("pool", ""),
        gpus_needed=needed,
        why="planned",
        slots=tuple(slot.name for slot in placed),
    )
