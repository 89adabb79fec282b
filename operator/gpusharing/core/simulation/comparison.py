"""All policies of a scenario, with all its seeds: the comparison that people read."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from gpusharing.api.scenarioreport import PolicyResult, ResourceResult, ScenarioReport, SeedValues
from gpusharing.core.simulation.ideal import Repacking
from gpusharing.core.simulation.run import Outcome, Run
from gpusharing.core.simulation.scenario import Policy, Scenario

DIGITS = 4


def simulate(scenario: Scenario, tell: Callable[[float], None] = lambda part: None) -> ScenarioReport:
    """Play the scenario for each policy and seed. `tell` hears which part is done, after each pod that comes."""
    repackings = [Repacking(node) for node in scenario.nodes]
    runs = [(policy, seed) for policy in scenario.policies for seed in scenario.seeds]
    outcomes: dict[str, list[Outcome]] = {policy.name: [] for policy in scenario.policies}
    for number, (policy, seed) in enumerate(runs):
        run = Run(scenario, policy, seed, repackings)
        for now in run.play():
            tell((number + now / scenario.duration) / len(runs))
        outcomes[policy.name].append(run.outcome)
    return ScenarioReport(
        scenario=scenario.name,
        gpus=sum(len(node.gpus) for node in scenario.nodes),
        resources={name: scenario.capacity(name) for name in scenario.resources},
        duration=scenario.duration,
        measured_from=scenario.measured_from,
        seeds=list(scenario.seeds),
        policies=[_result(policy, outcomes[policy.name], scenario) for policy in scenario.policies],
    )


def _result(policy: Policy, runs: Sequence[Outcome], scenario: Scenario) -> PolicyResult:
    parts = [run.free_gpus / run.ideal_free_gpus for run in runs if run.ideal_free_gpus]
    could = sum(run.could_stay_together for run in runs)
    split = sum(run.split_needlessly for run in runs)
    return PolicyResult(
        policy=policy.name,
        reference=policy.reference,
        free_gpus=_over_seeds(run.free_gpus for run in runs),
        ideal_free_gpus=_over_seeds(run.ideal_free_gpus for run in runs),
        of_ideal=_over_seeds(parts) if parts else None,
        could_stay_together=could,
        split_needlessly=split,
        resources=[
            ResourceResult(
                resource=name,
                stranded=_over_seeds(run.stranded[at] for run in runs),
                largest=_over_seeds(run.largest[at] for run in runs),
            )
            for at, name in enumerate(scenario.resources)
        ],
        pods=sum(run.came for run in runs),
        waited=sum(run.waited for run in runs),
        refused=sum(run.refused for run in runs),
    )


def _over_seeds(values: Iterable[float]) -> SeedValues:
    found = sorted(values)
    return SeedValues(
        median=round(median(found), DIGITS), lowest=round(found[0], DIGITS), highest=round(found[-1], DIGITS)
    )
