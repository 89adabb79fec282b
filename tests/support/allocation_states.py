"""Nodes in any state, as Hypothesis draws them, and what decision 53 says of them, word for word."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from random import Random

from hypothesis import strategies as st
from tests.support.allocation import NVLINK, PCIE, allocation, gpu, mig

from gpusharing.core.allocation.links import is_linked, pair_score
from gpusharing.core.allocation.prefer import Preferences, preferences
from gpusharing.core.allocation.request import AllocationRequest, load
from gpusharing.core.devices import Inventory, Link
from gpusharing.core.resources import Device, Resource

FREE, HELD, SICK, SICK_AND_HELD = "free", "held", "sick", "sick and held"
STATES = (FREE, FREE, FREE, HELD, HELD, SICK, SICK_AND_HELD)
LINKS = (NVLINK, NVLINK, PCIE, Link(10), Link(30, switched=True), None)


@dataclass(frozen=True)
class State:
    """A node, and what is true of each id."""

    inventory: Inventory
    resource: Resource
    states: dict[str, str]
    required: tuple[str, ...]
    other_load: dict[str, int]
    size: int

    def request(self) -> AllocationRequest:
        return AllocationRequest(
            available=self.with_state(FREE),
            size=self.size,
            must_include=self.required,
            sick=frozenset(self.with_state(SICK, SICK_AND_HELD)),
            sick_and_held=frozenset(self.with_state(SICK_AND_HELD)),
            other_load={uuid: load(ids=count) for uuid, count in self.other_load.items()},
        )

    def with_state(self, *states: str) -> list[str]:
        return [each for each, state in self.states.items() if state in states]

    def preferences(self, policy: str, keep_together: str = "none", topology: str = "none") -> Preferences:
        return preferences(self.resource, self.inventory, allocation(policy, keep_together, topology))

    def size_within_reach(self) -> bool:
        return len(self.required) < self.size <= len(self.with_state(FREE))


@st.composite
def states(draw: st.DrawFn, kind: str = "", *, sick: bool = True, max_gpus: int = 4) -> State:
    """A node with shares of GPUs, MIG devices, shares of MIG devices, or whole GPUs.

    Its size and kind are drawn; chance fills it, by a drawn seed: a draw for each id would take most of a test.
    """
    kind = kind or draw(st.sampled_from(("shares", "mig", "shared mig", "whole")))
    count = draw(st.integers(1, max_gpus if kind != "whole" else 2 * max_gpus))
    known = draw(st.sampled_from((STATES, STATES, (FREE, HELD)) if sick else ((FREE,), (FREE, FREE, FREE, HELD))))
    chance = Random(draw(st.integers(0, 1 << 20)))
    uuids = [f"GPU-{at}" for at in range(count)]
    migs = {uuid: chance.choices((1, 2, 3), k=chance.randint(1, 3)) if "mig" in kind else [] for uuid in uuids}
    links = {(one, two): chance.choice(LINKS) for one, two in combinations(uuids, 2)}
    inventory = Inventory(
        gpus=tuple(
            gpu(at, uuid, *(mig(f"MIG-{at}-{number}", number, slices) for number, slices in enumerate(migs[uuid])))
            for at, uuid in enumerate(uuids)
        ),
        links={pair: link for pair, link in links.items() if link is not None},
    )
    shared = kind in {"shares", "shared mig"}
    devices = [
        Device(f"{base}::{replica}" if shared else base, base, it.uuid)
        for it in inventory.gpus
        for base in ([device.uuid for device in it.mig_devices] or [it.uuid])
        for replica in range(chance.randint(1, 4) if shared else 1)
    ]
    of_ids = {device.id: chance.choice(known) for device in devices}
    free = [each for each, state in of_ids.items() if state == FREE]
    required = chance.sample(free, min(len(free), chance.randint(0, 3)))
    resource = Resource("nvidia.com/gpu", tuple(devices), replicas=2 if shared else 1)
    others = {uuid: chance.randint(0, 3) for uuid in chance.choices(uuids, k=chance.randint(0, 2))}
    return State(inventory, resource, of_ids, tuple(required), others, draw(st.integers(1, max(1, len(free)))))


class WordForWord:
    """Decision 53, tried out: every id and every set of GPUs is looked at each time."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.device = {device.id: device for device in state.resource.devices}
        self.position = {device.id: at for at, device in enumerate(state.resource.devices)}
        self.index = {it.uuid: it.index for it in state.inventory.gpus}
        self.slices = {it.uuid: it.gpu_slices for each in state.inventory.gpus for it in each.mig_devices}
        self.idle = set(state.with_state(FREE, SICK)) - set(state.required)
        self.candidates = [each for each in state.with_state(FREE) if each not in state.required]
        self.need = state.size - len(state.required)
        self.sick = {self.device[each].gpu for each in state.with_state(SICK, SICK_AND_HELD)}
        self.required_on = {self.device[each].gpu for each in state.required}

    def load(self, uuid: str, chosen: Sequence[str] = ()) -> tuple[int, int]:
        """GPU slices of MIG instances in use, ids in use."""
        in_use = [it for it in self.device.values() if it.gpu == uuid and (it.id not in self.idle or it.id in chosen)]
        slices = sum(self.slices.get(base, 0) for base in {it.base for it in in_use})
        return slices, len(in_use) + self.state.other_load.get(uuid, 0)

    def instance_load(self, base: str, chosen: Sequence[str]) -> int:
        return sum(it.base == base and (it.id not in self.idle or it.id in chosen) for it in self.device.values())

    def free(self, uuid: str) -> int:
        return sum(self.device[each].gpu == uuid for each in self.candidates)

    def share_by_share(self, policy: str, gpus: Sequence[str] | None = None) -> list[str]:
        sign = -1 if policy == "packed" else 1
        chosen: list[str] = []

        def key(device_id: str) -> tuple[object, ...]:
            it = self.device[device_id]
            picked = sum(self.device[each].gpu == it.gpu for each in chosen)
            mine = picked + sum(self.device[each].gpu == it.gpu for each in self.state.required)
            slices, ids = self.load(it.gpu, chosen)
            of_gpu = {
                "spread": (mine, slices, ids),
            }.get(policy, (sign * slices, sign * ids, picked))
            inside = (sign * self.instance_load(it.base, chosen), self.position[device_id])
            return (it.gpu in self.sick, *of_gpu, -self.free(it.gpu), self.index[it.gpu], *inside)

        for _ in range(self.need):
            left = [
                each
                for each in self.candidates
                if each not in chosen and (gpus is None or self.device[each].gpu in gpus)
            ]
            chosen.append(min(left, key=key))
        return [*self._required(), *chosen]

    def _required(self) -> list[str]:
        return sorted(self.state.required, key=lambda each: self.position[each])

    def fewest_gpus(self, policy: str, *, linked: bool) -> list[str]:
        """The best set of GPUs; those of the required ids are always among them if they are healthy and have room."""
        sign = -1 if policy == "packed" else 1
        with_room = sorted({self.device[each].gpu for each in self.candidates}, key=self.index.__getitem__)

        def key(found: Iterable[str]) -> tuple[object, ...]:
            gpus = tuple(found)
            touched = sorted({*gpus, *self.required_on}, key=self.index.__getitem__)
            loads = [self.load(uuid) for uuid in gpus]
            free = sum(map(self.free, gpus))
            return (
                any(uuid in self.sick for uuid in gpus),
                len(touched),
                *(self._topology(touched, gpus) if linked else ()),
                sign * sum(slices for slices, _ in loads),
                sign * sum(ids for _, ids in loads),
                free if policy == "packed" else -free,
                [self.index[uuid] for uuid in gpus],
            )

        healthy = [uuid for uuid in with_room if uuid not in self.sick]
        usable = healthy if sum(map(self.free, healthy)) >= self.need else with_room
        always = {uuid for uuid in usable if uuid in self.required_on}
        sets = chain.from_iterable(combinations(usable, count) for count in range(len(usable) + 1))
        return list(min((one for one in sets if always <= set(one) and self._fits(one)), key=key))

    def _fits(self, gpus: Sequence[str]) -> bool:
        return sum(map(self.free, gpus)) >= self.need

    def _topology(self, touched: Sequence[str], gpus: Sequence[str]) -> tuple[int, int, int]:
        links = [self._link(one, two) for one, two in combinations(touched, 2)]
        unlinked = sum(not is_linked(link) for link in links)
        return unlinked, self.unevenness(touched, gpus), -sum(map(pair_score, links))

    def _link(self, one: str, two: str) -> Link | None:
        return self.state.inventory.links.get((one, two))

    def unevenness(self, touched: Sequence[str], gpus: Sequence[str]) -> int:
        """The least difference between parts that any division over the GPUs can have."""
        required = {uuid: sum(self.device[each].gpu == uuid for each in self.state.required) for uuid in touched}

        def divided(left: Sequence[str], need: int, parts: dict[str, int]) -> int:
            if not left:
                return max(parts.values()) - min(parts.values()) if not need else 1_000
            first, *rest = left
            return min(
                divided(rest, need - count, {**parts, first: required[first] + count})
                for count in range(min(need, self.free(first)) + 1)
            )

        return divided(gpus, self.need, dict(required))

    def most_linked(self) -> list[str]:
        """The GPUs for `spread` with topology: preferred."""
        with_room = sorted({self.device[each].gpu for each in self.candidates}, key=self.index.__getitem__)

        def key(found: Iterable[str]) -> tuple[object, ...]:
            gpus = tuple(found)
            touched = sorted({*gpus, *self.required_on}, key=self.index.__getitem__)
            links = [self._link(one, two) for one, two in combinations(touched, 2)]
            loads = [self.load(uuid) for uuid in gpus]
            return (
                sum(uuid in self.sick for uuid in gpus),
                sum(uuid in self.required_on for uuid in gpus),
                sum(not is_linked(link) for link in links),
                -sum(map(pair_score, links)),
                sum(slices for slices, _ in loads),
                sum(ids for _, ids in loads),
                [self.index[uuid] for uuid in gpus],
            )

        return list(min(combinations(with_room, min(self.need, len(with_room))), key=key))

    def aligned(self, size: int) -> list[str]:
        """Whole GPUs: of all partitions the first one with the most points, and its best set; one GPU by its index."""
        uuids = [it.uuid for it in self.state.inventory.gpus]
        free = [at for at, uuid in enumerate(uuids) if uuid in self.state.with_state(FREE)]
        required = {uuids.index(each) for each in self.state.required}

        def points(*sets: Sequence[int]) -> int:
            return sum(pair_score(self._link(uuids[i], uuids[j])) for one in sets for i, j in combinations(one, 2))

        def answers(sets: Sequence[Sequence[int]]) -> list[Sequence[int]]:
            return [one for one in sets if len(one) == size and required <= set(one)]

        if size == 1:
            return [uuids[at] for at in sorted(required) or free[:1]]
        best = max(filter(answers, _partitions(free, size)), key=lambda sets: points(*sets))
        return [uuids[at] for at in max(answers(best), key=points)]


def _partitions(places: Sequence[int], size: int) -> list[list[tuple[int, ...]]]:
    """All of them in lexicographic order; what is left over is a set that is filled up with higher places."""
    over = len(places) % size
    found = [
        [(places[0], *others), *rest]
        for length in ({over, size} - {0} if len(places) > over else {over} - {0})
        for others in combinations(places[1:], length - 1)
        for rest in _partitions([each for each in places[1:] if each not in others], size)
    ]
    return sorted(found, key=lambda sets: [one + (99,) * (size - len(one)) for one in sets]) or [[]]


def counted(
    state: State, ids: Sequence[str], of: Callable[[Device], str] = lambda device: device.gpu
) -> dict[str, int]:
    """How many of the ids each GPU gives."""
    gpus = {device.id: of(device) for device in state.resource.devices}
    found: dict[str, int] = {}
    for each in ids:
        found[gpus[each]] = found.get(gpus[each], 0) + 1
    return found
