"""One run: a policy, a seed, and what the nodes were like on average over time.

The scheduler compares numbers alone (kubelet contract 5): a pod goes to a node with enough free ids, of several to the
one with the fewest pods, then the first. Without one it waits; whenever a pod has left, those that wait are tried
again, the oldest first, so that a smaller one may pass a larger one. A pod that a plugin refuses has failed; its
controller makes it anew, and it waits like the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from gpusharing.core.simulation.arrivals import NEVER, Pod, source_of
from gpusharing.core.simulation.draws import Draws
from gpusharing.core.simulation.ideal import Repacking
from gpusharing.core.simulation.kubelet import Admission, Kubelet
from gpusharing.core.simulation.levels import Levels
from gpusharing.core.simulation.scenario import Policy, Scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. Means are over time, and all else is counted, from `Scenario.measured_from` on."""

    policy: str
    seed: int
    free_gpus: float
    ideal_free_gpus: float
    # ids that are free on GPUs in use, and the largest request that one GPU can hold, by resource
    stranded: tuple[float, ...]
    largest: tuple[float, ...]
    # pods with several ids that one GPU could have held; those of them that are on several GPUs
    could_stay_together: int
    split_needlessly: int
    # pods that came; that did not start at once; that a plugin refused
    came: int
    waited: int
    refused: int


class Run:
    """Scheduler, nodes and clock. `play` it once."""

    def __init__(self, scenario: Scenario, policy: Policy, seed: int, repackings: Sequence[Repacking]) -> None:
        draws = Draws(seed, "ties")
        self._scenario, self._policy, self._seed = scenario, policy, seed
        self.nodes = [Kubelet(node, policy, draws, each) for node, each in zip(scenario.nodes, repackings, strict=True)]
        self._source = source_of(scenario, seed)
        # by name; those that wait in the order in which they came
        self.running: dict[str, Kubelet] = {}
        self.waiting: dict[str, Pod] = {}
        # ids that all of them ask for
        self._asked = 0
        self._leaving: list[tuple[float, int, Pod]] = []
        self._number = count()
        self._now = 0.0
        self._levels = Levels(scenario.resources, self.nodes)
        self._came = self._could_stay_together = self._split = 0
        self._waited: set[str] = set()
        self._refused: set[str] = set()

    def play(self) -> Iterator[float]:
        """Play to the end, and yield the time after each pod that came; `outcome` then has the result."""
        while (due := self._source.due(self._now, self._asked)) <= self._scenario.duration or self._leaving:
            leaving = self._leaving[0][0] if self._leaving else NEVER
            if leaving <= due:  # one that leaves at that very moment makes room first
                self._pass_time(leaving)
                self._leave(heappop(self._leaving)[-1])
            else:
                self._pass_time(due)
                self._come(self._source.take())
                yield self._now
        self._pass_time(self._scenario.duration)

    @property
    def outcome(self) -> Outcome:
        """Return what it came to."""
        means = self._levels.means
        return Outcome(
            policy=self._policy.name,
            seed=self._seed,
            free_gpus=means.free_gpus,
            ideal_free_gpus=means.ideal_free_gpus,
            stranded=means.stranded,
            largest=means.largest,
            could_stay_together=self._could_stay_together,
            split_needlessly=self._split,
            came=self._came,
            waited=len(self._waited),
            refused=len(self._refused),
        )

    def _pass_time(self, moment: float) -> None:
        since = max(self._now, self._scenario.measured_from)
        if moment > since:
            self._levels.hold(moment - since)
        self._now = moment

    @property
    def _measures(self) -> bool:
        return self._now >= self._scenario.measured_from

    def _come(self, pod: Pod) -> None:
        self._came += self._measures
        self._asked += pod.count
        if pod.leaves < self._scenario.duration:
            heappush(self._leaving, (pod.leaves, next(self._number), pod))
        if not self._start(pod):
            self.waiting[pod.name] = pod
            if self._measures:
                self._waited.add(pod.name)

    def _leave(self, pod: Pod) -> None:
        self._asked -= pod.count
        node = self.running.pop(pod.name, None)
        if node is None:
            del self.waiting[pod.name]
            return
        node.release(pod)
        self._levels.changed(node)
        for started in [each.name for each in self.waiting.values() if self._start(each)]:
            del self.waiting[started]

    def _start(self, pod: Pod) -> bool:
        """Bring the pod to a node that has enough free ids; False = there is none, or the plugin refuses."""
        able = [node for node in self.nodes if node.free(pod.resource) >= pod.count]
        if not able:
            return False
        node = min(able, key=lambda each: each.pods)
        admission = node.admit(pod)
        if not admission.ids:
            if self._measures:
                self._refused.add(pod.name)
            return False
        self.running[pod.name] = node
        self._levels.changed(node)
        self._count(pod, admission)
        if self._now + pod.lifetime < self._scenario.duration:
            heappush(self._leaving, (self._now + pod.lifetime, next(self._number), pod))
        return True

    def _count(self, pod: Pod, admission: Admission) -> None:
        if self._measures and pod.count > 1 and admission.one_gpu_could_hold:
            self._could_stay_together += 1
            self._split += admission.split
