"""Placements to be planned: short ways to write them, and Hypothesis strategies for them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.core.placement.plan import Plan, Refusal
from gpusharing.core.placement.planner import place
from gpusharing.core.placement.request import Bound, Request

Wire = dict[str, Any]


def pool(nodes: int | str = 1, gpus: int | None = 4, name: str = "gpu", **more: Any) -> Wire:
    """A pool as a file has it; `gpus` are those of each node."""
    return {"name": name, "nodes": nodes, **({"gpusPerNode": gpus} if gpus else {}), **more}


def service(name: str, gpus: int | None = None, **more: Any) -> Wire:
    """A service as a file has it."""
    return {"name": name, **({} if gpus is None else {"gpus": gpus}), **more}


def shaped(name: str, tensor: int = 1, instances: int = 1, **more: Any) -> Wire:
    """A service with a shape."""
    return {"name": name, "parallelism": {"tensor": tensor, "instances": instances}, **more}


def spec(pools: Wire | Sequence[Wire], *services: Wire, **more: Any) -> PlacementSpec:
    """A spec of one pool or several."""
    listed = [pools] if isinstance(pools, dict) else list(pools)
    return PlacementSpec.model_validate({"pools": listed, "services": list(services), **more})


_STATES: dict[str, Wire] = {
    "!": {"healthy": False},
    "*": {"inUse": 1},
    "-": {"migMode": True},
    "+": {"reservedBy": "team-b/other"},
}


def node(name: str, gpus: str = "0123", **more: Any) -> Wire:
    """A node of an inventory. Of each digit there is a GPU; `!` behind it = sick, `*` = in use, `-` = in MIG mode,
    `+` = reserved for another placement.
    """
    listed: list[Wire] = []
    for mark in gpus:
        if mark.isdigit():
            listed.append({"index": int(mark), "uuid": f"GPU-{name}{mark}"})
        else:
            listed[-1] |= _STATES[mark]
    return {"name": name, "gpus": listed, **more}


def inventory(*nodes: Wire) -> Inventory:
    """An inventory of these nodes."""
    return Inventory.model_validate({"nodes": list(nodes)})


def planned(wanted: PlacementSpec, known: Inventory | None = None, *bound: Bound, **more: Any) -> Plan:
    """The plan, which there must be."""
    outcome = place(Request(wanted, bound=bound, **more), known)
    assert isinstance(outcome, Plan), outcome.errors
    return outcome


def refused(wanted: PlacementSpec, known: Inventory | None = None, *bound: Bound, **more: Any) -> Refusal:
    """The refusal, which there must be."""
    outcome = place(Request(wanted, bound=bound, **more), known)
    assert isinstance(outcome, Refusal)
    return outcome


def messages(refusal: Refusal) -> list[str]:
    """Every error as `Code: message`."""
    return [f"{each.code}: {each.message}" for each in refusal.errors]


def said(plan: Plan) -> list[str]:
    """Every warning and notice as `Code: message`."""
    return [f"{each.code}: {each.message}" for each in (*plan.warnings, *plan.notices)]


def picture(plan: Plan) -> dict[str, str]:
    """The plan in one line per slot: `{"gpu/0": "judge 0 | policy 1,2"}`."""
    return {
        slot.name: " | ".join(f"{each.service} {_listed(each.indexes)}" for each in slot.assigned)
        for slot in plan.slots
    }


def _listed(indexes: Sequence[int]) -> str:
    return ",".join(map(str, indexes))


# --- random ones

NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
sizes = st.integers(1, 6)
shapes = st.fixed_dictionaries(
    {}, optional={"tensor": st.sampled_from([1, 2, 4]), "pipeline": st.integers(1, 2), "instances": st.integers(1, 4)}
)
fractions = st.sampled_from(["10%", "25%", "50%", "80%", "100%"])
# Needs that go together with each other, mostly.
needs: st.SearchStrategy[Wire] = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(1, 4)}),
    st.fixed_dictionaries({"gpus": sizes}, optional={"span": st.just("tail"), "exclusiveNodes": st.just(True)}),
    st.fixed_dictionaries({"parallelism": shapes}),
    st.fixed_dictionaries({"parallelism": shapes, "split": st.just("instances")}),
    st.fixed_dictionaries({"parallelism": shapes, "distribute": st.just("evenly")}),
    st.fixed_dictionaries({"gpus": st.integers(1, 2), "fraction": fractions}),
    st.fixed_dictionaries({"visibleDevices": st.sampled_from(["0", "1,0", "2", "3,1", "0,1,2"])}),
    st.fixed_dictionaries({"leftover": st.fixed_dictionaries({}, optional={"min": st.integers(1, 2)})}),
    st.sampled_from([{"gpus": 0}, {"share": True}, {"shareWith": "a"}, {"visibleDevicesFromEnv": "MINE"}]),
)
# Anything that has the right types, whether it makes sense or not.
odd_needs: st.SearchStrategy[Wire] = st.fixed_dictionaries(
    {},
    optional={
        "pool": st.sampled_from(["gpu", "aux", "none"]),
        "gpus": st.integers(0, 9),
        "parallelism": shapes,
        "leftover": st.just({"min": 1}),
        "visibleDevices": st.sampled_from(["0", "1,1", "99", "0,1,2,3,4", "GPU-n0", "GPU-n0,GPU-m1", "GPU-x"]),
        "visibleDevicesFromEnv": st.just("MINE"),
        "share": st.booleans(),
        "shareWith": st.sampled_from(NAMES),
        "fraction": fractions,
        "exclusiveNodes": st.booleans(),
        "distribute": st.just("evenly"),
        "span": st.just("tail"),
        "split": st.just("instances"),
        "deploy": st.booleans(),
        "port": st.just(8000),
        "hostNetwork": st.booleans(),
    },
)
pool_fields: st.SearchStrategy[Wire] = st.fixed_dictionaries(
    {
        "nodes": st.sampled_from([1, 2, 3, "auto"]),
        "gpusPerNode": st.sampled_from([4, 4, 8, 5]),
        "sharing": st.fixed_dictionaries(
            {"replicas": st.sampled_from([2, 4, 10]), "policy": st.sampled_from(["packed", "distributed"])}
        ),
    },
    optional={"reserved": st.lists(st.integers(0, 4), max_size=1)},
)
odd_pool_fields: st.SearchStrategy[Wire] = st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.sampled_from([1, 2, 256, "auto"]),
        "maxNodes": st.integers(1, 3),
        "gpusPerNode": st.integers(1, 8),
        "gpusByNode": st.lists(st.integers(1, 8), min_size=1, max_size=3),
        "nodeSelector": st.sampled_from([{}, {"matchLabels": {"team": "x"}}]),
        "reserved": st.lists(st.integers(0, 9), max_size=3),
        "sharing": st.just({"replicas": 4}),
    },
)
rules: st.SearchStrategy[Wire] = st.fixed_dictionaries(
    {},
    optional={
        "gpuOrder": st.sampled_from(["declared", "aligned"]),
        "algorithm": st.sampled_from(["exact", "ffd"]),
        "enforcement": st.sampled_from(["reserve", "env"]),
    },
)


@st.composite
def specs(draw: st.DrawFn) -> Wire:
    """A spec of one pool, as a file has it, in which nothing contradicts itself; it may still not fit."""
    pool = {"name": "gpu", **draw(pool_fields)}
    services: list[Wire] = []
    for name, want in zip(NAMES, draw(st.lists(needs, min_size=1, max_size=6)), strict=False):
        services.append({"name": name, **_sensible(want, pool, services)})
    led = {"lead": draw(st.sampled_from(services))["name"]} if draw(st.booleans()) else {}
    return {"pools": [pool], "services": services, **draw(rules), **led}


def _sensible(want: Wire, pool: Wire, before: Sequence[Wire]) -> Wire:
    """The want, or a plain one where it makes no sense in this pool behind these services."""
    if want.get("distribute"):
        shape = {**want["parallelism"], "instances": pool["nodes"]}
        return {**want, "parallelism": shape} if pool["nodes"] != "auto" else {"gpus": 1}
    opaque = "visibleDevicesFromEnv"
    contradicts = (
        ("leftover" in want and any("leftover" in each for each in before))
        or ("shareWith" in want and not (before and _owns(before[0])))
        or (before and (opaque in want or opaque in before[0]))
        or (not before and not _owns(want))
    )
    if before and opaque in before[0]:
        return {"gpus": 0}
    return {"gpus": 1} if contradicts else want


def _owns(want: Wire) -> bool:
    return not (want.get("share") or want.get("shareWith") or "leftover" in want or want.get("gpus") == 0)


@st.composite
def odd_specs(draw: st.DrawFn) -> Wire:
    """A spec of the right types, with anything in it."""
    names = st.sampled_from(["gpu", "aux"])
    pools = [{"name": draw(names), **each} for each in draw(st.lists(odd_pool_fields, min_size=1, max_size=3))]
    wanted = draw(st.lists(odd_needs, min_size=1, max_size=6))
    services = [{"name": draw(st.sampled_from(NAMES)), **want} for want in wanted]
    led = {"lead": draw(st.sampled_from(NAMES))} if draw(st.booleans()) else {}
    return {"pools": pools, "services": services, **draw(rules), **led}


gpu_states: st.SearchStrategy[Wire] = st.one_of(
    st.just({}),
    st.just({}),
    st.just({}),
    st.just({}),
    st.fixed_dictionaries({"shares": st.just(4), "inUse": st.integers(0, 4)}),
    st.sampled_from([{"healthy": False}, {"migMode": True}, {"reservedBy": "team-b/other"}]),
)


@st.composite
def inventories(draw: st.DrawFn) -> Wire:
    """Up to four nodes in any state."""
    nodes = []
    for name in draw(st.lists(st.sampled_from("mnop"), min_size=2, max_size=4, unique=True)):
        states = draw(st.lists(gpu_states, min_size=4, max_size=8))
        linked = draw(st.booleans())
        gpus = [
            {"index": index, "uuid": f"GPU-{name}{index}", **({"linkGroup": index // 2} if linked else {}), **state}
            for index, state in enumerate(states)
        ]
        more = draw(st.sampled_from([{}, {}, {}, {"ready": False}, {"schedulable": False}, {"names": 31}]))
        nodes.append({"name": name, "gpus": gpus, "labels": draw(st.sampled_from([{}, {"team": "x"}])), **more})
    return {"nodes": nodes}
