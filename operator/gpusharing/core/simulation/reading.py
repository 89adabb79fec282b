"""From a scenario's file to its values, or to everything that is wrong with it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.api.policy import SPREAD_MESSAGE, TOPOLOGY_MESSAGE
from gpusharing.api.problems import PROBLEMS_MAX, Problem, nearest, quoted
from gpusharing.api.scenario import PODS_MAX, Arrivals, Event, ScenarioFile, ScenarioPolicy
from gpusharing.api.sharing import Allocation
from gpusharing.core.acceptance import Accepted, ConfigText, fit
from gpusharing.core.checks.pluginconfig import check_content
from gpusharing.core.devices import Inventory
from gpusharing.core.effective import serve
from gpusharing.core.errors import InvalidInput
from gpusharing.core.grant import refuse_more_than_one
from gpusharing.core.listing import Listing
from gpusharing.core.resources import Resource
from gpusharing.core.simulation.arrivals import pods_expected
from gpusharing.core.simulation.scenario import Node, Policy, Scenario

# Any that has CDI: no container is started, so it makes no difference.
_RUNTIME = "containerd://2.1.4"
_REFERENCE = "nvidia-"
# Of pods that came, to find the one that was probably meant: with all of 30,000 that takes seconds.
_NAMES_COMPARED = 1_000


def scenario_of(
    file: ScenarioFile, name: str, inventories: Sequence[Inventory]
) -> tuple[Scenario | None, list[Problem]]:
    """Return the scenario, or everything that is wrong with it. `inventories` has one for each node."""
    problems = [*_wrong_policies(file.policies), *_allocation_in_configs(file)]
    nodes = []
    for at, (entry, inventory) in enumerate(zip(file.nodes, inventories, strict=True)):
        try:
            nodes.append(_node(f"node-{at}", entry.config, inventory))
        except InvalidInput as error:
            problems.append(Problem(f"nodes[{at}].config", error.message, error.hint))
    if len(nodes) < len(file.nodes):
        return None, problems
    scenario = Scenario(
        name,
        tuple(file.seed),
        file.duration,
        tuple(nodes),
        tuple(map(_policy, file.policies)),
        file.arrivals or tuple(file.events or ()),
    )
    problems += islice(_wrong_workload(file, scenario), PROBLEMS_MAX)
    return (None, problems) if problems else (scenario, [])


# --- nodes and policies


def wrong_configs(data: Any) -> Iterator[Problem]:
    """Yield what NVIDIA's plugin, and so ours, refuses in the configs of a scenario as it was read."""
    nodes = data.get("nodes") if isinstance(data, Mapping) else None
    for at, node in enumerate(nodes if isinstance(nodes, Sequence) else ()):
        for problem in check_content(node.get("config")) if isinstance(node, Mapping) else ():
            if problem.severity == "error":
                message = problem.message.replace(", the plugin exits", "")
                path = f"nodes[{at}].config.{problem.path}" if problem.path else f"nodes[{at}].config"
                yield replace(problem, path=path, message=message)


def _node(name: str, config: PluginConfig, inventory: Inventory) -> Node:
    """Return the node. Raises InvalidInput where its plugin would serve something else, or nothing."""
    served, _ = serve(config, name, runtime=_RUNTIME)
    fitted = fit(Accepted(ConfigText(name), served), inventory, Listing())
    if fitted.unknown_resources:
        there = ", ".join(resource.name for resource in fitted.resources)
        raise InvalidInput(
            f"sharing names {', '.join(fitted.unknown_resources)}, of which the node has none",
            hint=f"it has {there}" if there else "it has nothing that is served",
        )
    return Node(name, inventory, served, fitted.resources)


def _policy(said: ScenarioPolicy) -> Policy:
    reference = said.policy.startswith(_REFERENCE)
    also = {"keepTogether": said.keep_together, "topology": said.topology}
    words = [said.policy, *(f"{key}: {word}" for key, word in also.items() if word != "none")]
    allocation = Allocation.model_validate({"policy": said.policy.removeprefix(_REFERENCE), **also})
    return Policy(", ".join(words), allocation, reference)


def _wrong_policies(policies: Sequence[ScenarioPolicy]) -> Iterator[Problem]:
    for at, said in enumerate(policies):
        path, together = f"policies[{at}]", said.keep_together != "none"
        if said.policy.startswith(_REFERENCE):
            if together or said.topology != "none":
                message = "NVIDIA's plugin has neither keepTogether nor topology"
                yield Problem(f"{path}.policy", message, f"leave them out, or name {_policy(said).allocation.policy}")
        elif said.policy == "spread" and together:
            yield Problem(f"{path}.keepTogether", SPREAD_MESSAGE)
        elif said.topology != "none" and not together and said.policy != "spread":
            yield Problem(f"{path}.topology", TOPOLOGY_MESSAGE)
        if said in policies[:at]:
            yield Problem(path, f"{quoted(_policy(said).name)} stands twice", "name each once")


def _allocation_in_configs(file: ScenarioFile) -> Iterator[Problem]:
    for at, node in enumerate(file.nodes):
        flags, path = node.config.flags, f"nodes[{at}].config"
        if node.config.gpusharing:
            yield Problem(f"{path}.gpusharing", "how devices are chosen", "say it under policies")
        if flags and flags.plugin and flags.plugin.shared_devices_allocation_policy:
            key = f"{path}.flags.plugin.sharedDevicesAllocationPolicy"
            yield Problem(key, "how devices are chosen", "say it under policies")


# --- what comes when


def _wrong_workload(file: ScenarioFile, scenario: Scenario) -> Iterator[Problem]:
    if (file.arrivals is None) == (file.events is None):
        message = "both arrivals and events" if file.arrivals else "neither arrivals nor events"
        yield Problem("", message, "arrivals: pods that come by chance; events: a list of those that come and leave")
    elif file.arrivals is not None:
        yield from _wrong_arrivals(file.arrivals, scenario)
    else:
        yield from _wrong_events(file.events or (), scenario)


def _wrong_arrivals(arrivals: Arrivals, scenario: Scenario) -> Iterator[Problem]:
    for key, value in (("amplitude", arrivals.amplitude), ("period", arrivals.period)):
        if arrivals.process == "swing" and value is None:
            yield Problem(f"arrivals.{key}", "missing", f"process: swing needs {key}")
        if arrivals.process == "poisson" and value is not None:
            yield Problem(f"arrivals.{key}", "has no effect", "process: poisson does not swing: leave it out")
    unusable = list(_wrong_resource("arrivals", arrivals.resource, scenario))
    yield from unusable
    if unusable:
        return
    for size in arrivals.sizes:
        yield from _never_runs("arrivals.sizes", arrivals.resource, int(size), scenario)
    if (expected := pods_expected(scenario)) > PODS_MAX:
        hint = "shorten duration, or let pods run longer"
        yield Problem("duration", f"about {expected:,.0f} pods would come, more than {PODS_MAX:,}", hint)


def _wrong_events(events: Sequence[Event], scenario: Scenario) -> Iterator[Problem]:
    came: set[str] = set()
    left: set[str] = set()
    before = 0.0
    for at, event in enumerate(events):
        path = f"events[{at}]"
        yield from _wrong_time(event, before, path, scenario)
        before = max(before, event.at)
        if event.pod is not None and event.leave is None:
            yield from _wrong_pod(event, came, path, scenario)
            came.add(event.pod)
        elif event.leave is not None and event.pod is None:
            yield from _wrong_leave(event, event.leave, came, left, path)
            left.add(event.leave)
        else:
            yield Problem(
                path, "neither a pod that comes nor one that leaves", "either {at, pod, count} or {at, leave}"
            )


def _wrong_time(event: Event, before: float, path: str, scenario: Scenario) -> Iterator[Problem]:
    if event.at < before:
        yield Problem(f"{path}.at", f"{event.at:g}, but {before:g} stands before it", "events stand in order of time")
    if event.at > scenario.duration:
        yield Problem(f"{path}.at", f"{event.at:g} is after the end", f"duration is {scenario.duration:g}")


def _wrong_pod(event: Event, came: set[str], path: str, scenario: Scenario) -> Iterator[Problem]:
    if event.pod in came:
        yield Problem(f"{path}.pod", f"{quoted(event.pod)} came before", "give each pod its own name")
    if event.count is None:
        yield Problem(f"{path}.count", "missing", "count is required of a pod that comes")
    unusable = list(_wrong_resource(path, event.resource, scenario))
    yield from unusable
    if not unusable and event.count is not None:
        yield from _never_runs(f"{path}.count", event.resource, event.count, scenario)


def _wrong_leave(event: Event, pod: str, came: set[str], left: set[str], path: str) -> Iterator[Problem]:
    if pod not in came:
        meant = nearest(pod, sorted(came)[:_NAMES_COMPARED])
        hint = f"did you mean {meant}?" if meant else "a pod comes before it leaves"
        yield Problem(f"{path}.leave", f"no pod {quoted(pod)} came before", hint)
    if pod in left:
        yield Problem(f"{path}.leave", f"{quoted(pod)} has left before", "a pod leaves once")
    if event.count is not None or event.resource:
        key = "resource" if event.resource else "count"
        yield Problem(f"{path}.{key}", "has no effect", "a pod leaves with all that it has")


def _wrong_resource(path: str, resource: str, scenario: Scenario) -> Iterator[Problem]:
    known = scenario.resources
    if not resource and len(known) != 1:
        message = "missing" if known else "the nodes have nothing to give"
        yield Problem(f"{path}.resource", message, f"one of {', '.join(known)}" if known else "see their configs")
    elif resource and resource not in known:
        meant = nearest(resource, known)
        hint = f"did you mean {meant}?" if meant else f"one of {', '.join(known)}"
        yield Problem(f"{path}.resource", f"no node has {quoted(resource)}", hint)


def _never_runs(path: str, resource: str, count: int, scenario: Scenario) -> Iterator[Problem]:
    """Yield why no node takes a pod of so many ids, even an empty one."""
    name = resource or scenario.resource
    offers = [(node, it) for node in scenario.nodes for it in node.resources if it.name == name]
    most = max(len(it.devices) for _, it in offers)
    if count > most:
        yield Problem(path, f"{count} fits on no node", f"the largest has {most} {name}")
        return
    if refusals := [refusal for node, it in offers if (refusal := _refusal(node, it, count))]:
        yield Problem(path, f"{count}: {refusals[0].message}", refusals[0].hint)
    of_a_gpu = max(max(Counter(device.gpu for device in it.devices).values()) for _, it in offers)
    required = [each.name for each in scenario.policies if each.allocation.keep_together == "required"]
    if count > of_a_gpu and required and not all(it.whole_gpus for _, it in offers):
        hint = f"the largest has {of_a_gpu} {name}; leave the policy out, or ask for less"
        yield Problem(path, f"{count} fits on no GPU, so that {quoted(required[0])} refuses it always", hint)


def _refusal(node: Node, resource: Resource, count: int) -> InvalidInput | None:
    """Return why the plugin refuses any so many ids (`failRequestsGreaterThanOne`)."""
    try:
        refuse_more_than_one(node.config, resource, [device.id for device in resource.devices[:count]])
    except InvalidInput as refusal:
        return refusal
    return None
