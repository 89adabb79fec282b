"""Scenarios by short words, as the file would say them."""

from typing import Any

from hypothesis import strategies as st
from tests.support.hardware import make_hardware

from gpusharing.api.problems import parse
from gpusharing.api.scenario import ScenarioFile
from gpusharing.core.devices import Inventory
from gpusharing.core.simulation.ideal import Repacking
from gpusharing.core.simulation.reading import scenario_of
from gpusharing.core.simulation.run import Outcome, Run
from gpusharing.core.simulation.scenario import Scenario

GPU, SMALL, LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}}
MIXED = {"flags": {"migStrategy": "mixed"}}
POLICIES: list[dict[str, str]] = [
    {"policy": "packed"},
    {"policy": "packed", "keepTogether": "preferred"},
    {"policy": "packed", "keepTogether": "required"},
    {"policy": "packed", "keepTogether": "preferred", "topology": "preferred"},
    {"policy": "distributed"},
    {"policy": "spread"},
    {"policy": "nvidia-packed"},
    {"policy": "nvidia-distributed"},
]


def make_scenario(
    *policies: dict[str, str],
    config: dict[str, Any] = SHARED,
    inventory: Inventory | None = None,
    nodes: int = 1,
    **fields: Any,
) -> Scenario:
    """Nodes of two GPUs with four shares each, unless said otherwise; `fields` are keys of the file."""
    data = {
        "duration": 10,
        "nodes": [{"inventory": {}, "config": config}] * nodes,
        "policies": list(policies) or [{"policy": "packed"}],
        **fields,
    }
    file, problems = parse(ScenarioFile, data)
    assert file, problems
    scenario, problems = scenario_of(file, "test", [inventory or make_hardware(2).build()] * nodes)
    assert scenario, problems
    return scenario


def mixed_node() -> Inventory:
    """Two GPUs, each with two small MIG devices and a large one."""
    profiles = ("1g.10gb", "1g.10gb", "3g.40gb")
    return make_hardware(2).mig(0, *profiles).mig(1, *profiles).build()


def make_run(scenario: Scenario, policy: int = 0, seed: int = 0) -> Run:
    return Run(scenario, scenario.policies[policy], seed, [Repacking(node) for node in scenario.nodes])


def outcome_of(scenario: Scenario, policy: int = 0, seed: int = 0) -> Outcome:
    run = make_run(scenario, policy, seed)
    for _ in run.play():
        pass
    return run.outcome


@st.composite
def scenarios(draw: st.DrawFn, *, by_chance: bool = True) -> Scenario:
    """Any policy on one or two nodes of either kind, with pods by events or, unless not wanted, by chance."""
    policy = draw(st.sampled_from(POLICIES))
    mig = draw(st.booleans())
    # resource → what one GPU has of it
    most = {SMALL: 2, LARGE: 1} if mig else {GPU: 4}
    workload = draw(st.sampled_from(["events", "poisson", "swing"][: 3 if by_chance else 1]))
    fields = _events(draw, most) if workload == "events" else _arrivals(draw, workload, most)
    return make_scenario(
        policy,
        config=MIXED if mig else SHARED,
        inventory=mixed_node() if mig else None,
        nodes=draw(st.integers(1, 2)),
        duration=60,
        **fields,
    )


def _arrivals(draw: st.DrawFn, process: str, most: dict[str, int]) -> dict[str, Any]:
    swing = {"amplitude": f"{draw(st.integers(0, 60))}%", "period": draw(st.integers(1, 60))}
    resource = draw(st.sampled_from(sorted(most)))
    sizes = draw(st.dictionaries(st.integers(1, most[resource]).map(str), st.integers(1, 9), min_size=1))
    return {
        "arrivals": {
            "process": process,
            "resource": resource,
            "mean": f"{draw(st.integers(1, 100))}%",
            "lifetime": draw(st.integers(2, 30)),
            "sizes": sizes,
            **(swing if process == "swing" else {}),
        }
    }


def _events(draw: st.DrawFn, most: dict[str, int]) -> dict[str, Any]:
    """Pods that come, and some of them that leave, in order of time."""
    moments = st.integers(0, 60)
    events = []
    for number in range(draw(st.integers(1, 12))):
        came, stays, resource = draw(moments), draw(st.none() | moments), draw(st.sampled_from(sorted(most)))
        pod = {"pod": f"p{number}", "resource": resource, "count": draw(st.integers(1, most[resource]))}
        events.append({"at": came, **pod})
        if stays is not None and came + stays <= 60:
            events.append({"at": came + stays, "leave": f"p{number}"})
    return {"events": sorted(events, key=lambda event: (event["at"], "leave" in event))}
