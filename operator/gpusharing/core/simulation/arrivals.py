"""Which pods come when: those of the scenario's events, or by one of two processes.

`poisson` is the traffic of many who do not know of one another: pods come at a rate, whatever runs. `swing` is a demand
that is always met: whenever the pods that are there ask for less than the demand of the moment, the next one comes,
as if from a queue of jobs or by an autoscaler.
"""

import math
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from gpusharing.api.scenario import Arrivals, Event
from gpusharing.core.simulation.draws import Draws
from gpusharing.core.simulation.scenario import Scenario

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of one container that asks for ids of one resource."""

    name: str
    resource: str
    count: int
    # how long it runs once it has started
    lifetime: float = NEVER
    # when it leaves, started or not
    leaves: float = NEVER


class Source(Protocol):
    """Where pods come from."""

    def due(self, now: float, asked: int) -> float:
        """Return when the next pod comes if nothing else happens; `asked` is what all pods that are there ask for."""

    def take(self) -> Pod:
        """Return the pod that is due."""


def source_of(scenario: Scenario, seed: int) -> Source:
    """Return where the pods of a run come from; the same for every policy."""
    workload = scenario.workload
    if not isinstance(workload, Arrivals):
        return _Listed(workload, scenario.resource)
    resource = workload.resource or scenario.resource
    pods = _pods(workload, resource, Draws(seed, "pods"))
    if workload.process == "poisson":
        return _Poisson(pods, 1 / _rate(scenario, workload), Draws(seed, "arrivals"))
    return _Swing(pods, workload, scenario.capacity(resource))


def pods_expected(scenario: Scenario) -> float:
    """Return about how many pods come."""
    workload = scenario.workload
    if isinstance(workload, Arrivals):
        return _rate(scenario, workload) * scenario.duration
    return sum(event.pod is not None for event in workload)


def _rate(scenario: Scenario, arrivals: Arrivals) -> float:
    """Return how many pods come in a unit of time, so that those that run ask for `mean` of the resource."""
    ids = sum(int(size) * weight for size, weight in arrivals.sizes.items()) / sum(arrivals.sizes.values())
    return arrivals.mean * scenario.capacity(arrivals.resource or scenario.resource) / (ids * arrivals.lifetime)


def _pods(arrivals: Arrivals, resource: str, draws: Draws) -> Iterator[Pod]:
    """Yield pods without end."""
    sizes = [int(size) for size in arrivals.sizes]
    weights = list(accumulate(arrivals.sizes.values()))
    number = 0
    while True:
        size = sizes[bisect(weights, draws.uniform() * weights[-1])]
        yield Pod(f"pod-{number}", resource, size, draws.exponential(arrivals.lifetime))
        number += 1


class _Listed:
    """The events of the scenario."""

    def __init__(self, events: tuple[Event, ...], resource: str) -> None:
        leaves = {event.leave: event.at for event in events if event.leave}
        self._pods = [
            (event.at, Pod(event.pod, event.resource or resource, event.count, leaves=leaves.get(event.pod, NEVER)))
            for event in reversed(events)
            if event.pod and event.count
        ]

    def due(self, now: float, asked: int) -> float:
        return self._pods[-1][0] if self._pods else NEVER

    def take(self) -> Pod:
        return self._pods.pop()[1]


class _Poisson:
    """Pods at times without memory."""

    def __init__(self, pods: Iterator[Pod], between: float, draws: Draws) -> None:
        self._pods, self._between, self._draws = pods, between, draws
        self._due = draws.exponential(between)

    def due(self, now: float, asked: int) -> float:
        return self._due

    def take(self) -> Pod:
        self._due += self._draws.exponential(self._between)
        return next(self._pods)


class _Swing:
    """Pods as the demand has room for them."""

    def __init__(self, pods: Iterator[Pod], arrivals: Arrivals, capacity: int) -> None:
        self._pods, self._capacity = pods, capacity
        self._mean, self._amplitude = arrivals.mean, arrivals.amplitude or 0.0
        self._period = arrivals.period or 1.0
        self._next = next(pods)

    def due(self, now: float, asked: int) -> float:
        return now + self._until(now, (asked + self._next.count) / self._capacity)

    def take(self) -> Pod:
        pod, self._next = self._next, next(self._pods)
        return pod

    def _until(self, now: float, part: float) -> float:
        """Return how long it takes until so much of the resource is asked for."""
        height = part - self._mean
        if height <= -self._amplitude:
            return 0.0
        if height > self._amplitude:
            return NEVER
        turn = 2 * math.pi
        begin = math.asin(height / self._amplitude)
        phase = (turn * now / self._period - begin) % turn
        high_for = math.pi - 2 * begin
        return 0.0 if phase <= high_for else (turn - phase) / turn * self._period
