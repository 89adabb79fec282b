"""Reservations against a kubelet that gives ids out whenever it may, and crashes of everything: no GPU has two owners.

The plugin's part is real: ledger, lists and what `Allocate` refuses, driven as `plugin.py` drives them. Some pods
only the driver sees, as plain init containers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.hardware import gpu_uuid, make_config, make_hardware

from gpusharing.core.devices import base_of
from gpusharing.core.errors import InvalidInput
from gpusharing.core.grant import listed_entries, refuse_claimed
from gpusharing.core.ledger import Facts, Ledger, facts_of
from gpusharing.core.listing import LINGER, Listing, advance, linger_anew, next_deadline
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.reservations import Reservation, Wanted, is_place
from gpusharing.core.resources import resources_of
from gpusharing.deviceplugin.ledger import LedgerKeeper

INVENTORY = make_hardware(3).build()
G0, G1, G2 = (gpu_uuid(n) for n in range(3))
CONFIGS = {"whole": make_config("whole").build(), "shares": make_config("shares").shared(2).build()}
RESOURCES = {name: resources_of(config, INVENTORY) for name, config in CONFIGS.items()}
ALICE, BOB, HALF, THIRD = (f"place.gpusharing.io/{it}.p.team" for it in ("alice", "bob", "half", "third"))


def alone(name: str, *gpus: str) -> Reservation:
    return Reservation(name, name, gpus)


def together(name: str, *gpus: str) -> Reservation:
    return Reservation(name, "team/p", gpus)


SPECS: dict[str, tuple[Reservation, ...] | None] = {
    "unknown": None,
    "nothing": (),
    "alice has 0": (alone(ALICE, G0),),
    "alice has 0 and 1": (alone(ALICE, G0, G1),),
    "alice has 1, bob 0": (alone(ALICE, G1), alone(BOB, G0)),
    "bob has all": (alone(BOB, G0, G1, G2),),
    "half has 0 and 1": (together(HALF, G0, G1),),
    "half and third share 0": (together(HALF, G0), together(THIRD, G0, G1)),
    "third has 0": (together(THIRD, G0),),
    "two owners of 0": (alone(ALICE, G0, G1), together(HALF, G0)),
}


def owner_of(resource: str) -> str:
    """Whose GPUs the ids of a resource are."""
    if not is_place(resource):
        return "shared"
    return "team/p" if resource in {HALF, THIRD} else resource


@dataclass(frozen=True)
class Holding:
    """A container's id: chosen by the kubelet, given out once our answer has come."""

    resource: str
    id: str
    # when `Allocate` reaches us, and when our answer has reached the kubelet
    asks: float
    shows: float

    @property
    def gpu(self) -> str:
        return base_of(self.id)


class Node(RuleBasedStateMachine):
    """Kubelet, plugin, disk and API server of one node. The kubelet sees lists 0.2 s late, and choices take 0.5 s."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.generation = 1
        self.spec: tuple[Reservation, ...] | None = None
        # on disk
        self.saved_ledger: Ledger | None = Ledger()
        self.saved_listing = Listing()
        self.disk_is_full = False
        # the kubelet
        self.sent: list[tuple[float, Mapping[str, frozenset[str]]]] = []
        self.choices: list[Holding] = []
        self.holdings: list[Holding] = []
        # pods that compute and are not shown, or soon not; and when the driver said what of processes on GPUs
        self.hidden: list[Holding] = []
        self.processes: tuple[float, frozenset[str]] | None = None
        self.look: tuple[float, frozenset[Holding], Mapping[str, frozenset[str]]] = (0.0, frozenset(), {})
        # what is to be proven: who may have had the GPU last, and since when nobody may get it from there
        self.last_owner: dict[str, str] = {}
        self.unhealthy_since: dict[str, float] = {}

    @initialize(config=st.sampled_from(list(CONFIGS)))
    def start(self, config: str) -> None:
        self.config = CONFIGS[config]
        self.start_plugin()

    # --- what happens

    @rule(spec=st.sampled_from(list(SPECS)))
    def the_controller_writes(self, spec: str) -> None:
        if SPECS[spec] != self.spec:
            self.spec, self.generation = SPECS[spec], self.generation + 1
        self.keeper.want(Wanted(self.generation, self.spec))
        self.advance()

    @rule(spec=st.sampled_from(list(SPECS)), which=st.integers(0, 50))
    def the_controller_writes_while_a_pod_starts(self, spec: str, which: int) -> None:
        self.a_pod_starts(which, 0.5)
        self.the_controller_writes(spec)

    @rule(config=st.sampled_from(list(CONFIGS)))
    def the_config_changes(self, config: str) -> None:
        self.config = CONFIGS[config]
        self.advance()

    @rule(spec=st.sampled_from(["alice has 0 and 1", "half and third share 0", "bob has all"]))
    def a_service_starts(self, spec: str) -> None:
        """All the way: reserved, waited for, and a pod on it."""
        self.the_controller_writes(spec)
        self.time_passes(25.0)
        self.a_pod_starts(0, 0.1, of_placements=True)
        self.time_passes(1.0)

    @rule(which=st.integers(0, 50), seconds=st.sampled_from([0.0, 0.1, 0.5]))
    def a_pod_starts(self, which: int, seconds: float, of_placements: bool = False) -> None:
        taken = {(one.resource, one.id) for one in (*self.holdings, *self.choices)}
        seen = {name: ids for name, ids in self.seen().items() if is_place(name) or not of_placements}
        free = sorted((name, one) for name, ids in seen.items() for one in ids if (name, one) not in taken)
        if free:
            name, chosen = free[which % len(free)]
            self.choices.append(Holding(name, chosen, self.now + seconds, self.now + seconds + 0.3))
            self.answer()

    @rule(which=st.integers(0, 50))
    def a_pod_ends(self, which: int) -> None:
        if self.holdings:
            del self.holdings[which % len(self.holdings)]

    @rule(which=st.integers(0, 50), spec=st.sampled_from(list(SPECS)))
    def the_kubelet_loses_sight_of_a_pod_and_the_controller_writes(self, which: int, spec: str) -> None:
        """The pod has computed for a while, and goes on."""
        if not self.holdings:
            self.a_service_starts("alice has 0 and 1")
        if self.holdings:
            pod = self.holdings[which % len(self.holdings)]
            self.hidden.append(pod)
            self.time_passes(2.1)
            self.holdings.remove(pod)
            self.the_controller_writes(spec)
            self.time_passes(25.0)

    @rule(which=st.integers(0, 50))
    def a_hidden_pod_ends(self, which: int) -> None:
        if self.hidden:
            del self.hidden[which % len(self.hidden)]

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 12.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            times = [end, self.now + 2.0, *(one.asks for one in self.choices)]
            deadline = next_deadline(self.listing, self.now)
            self.now = min(time for time in [*times, deadline or end] if time > self.now)
            self.answer()
            if self.now - self.look[0] >= 0.5:
                self.looks_again()
            self.advance()

    @rule()
    def looks_again(self) -> None:
        shown = frozenset(one for one in self.holdings if one.shows <= self.now)
        self.look = (self.now, shown, dict(self.seen()))
        self.advance()

    @rule()
    def the_disk_fills_or_empties(self) -> None:
        self.disk_is_full = not self.disk_is_full
        self.advance()

    @rule(api=st.booleans())
    def the_plugin_is_killed(self, api: bool) -> None:
        """Whatever the kubelet had chosen fails: the call has no answer."""
        self.crash()
        self.start_plugin()
        if api:
            self.the_api_answers()

    @rule(ledger=st.booleans(), checkpoint=st.booleans())
    def the_plugin_is_killed_and_files_are_lost(self, ledger: bool, checkpoint: bool) -> None:
        self.crash()
        if ledger:
            self.saved_ledger, self.hidden = None, []  # whose a GPU is that only the driver shows, nobody knows then
        if checkpoint:
            self.saved_listing = Listing()
        self.start_plugin()

    @rule()
    def the_api_answers(self) -> None:
        self.keeper.want(Wanted(self.generation, self.spec))
        self.advance()

    @rule(which=st.booleans())
    def the_kubelet_is_restarted(self, which: bool) -> None:
        """While it starts, it may say that nobody has anything: it has not read its checkpoint yet."""
        self.choices, self.sent = [], []
        self.streams_at = float("inf")
        self.now += 0.5
        if which:
            self.look = (self.now, frozenset(), {})
        self.advance()
        self.now += 0.5
        self.open_streams()

    # --- the plugin

    def crash(self) -> None:
        self.choices, self.sent = [], []
        self.now += 1.0
        self.look = (float("-inf"), frozenset(), {})

    def start_plugin(self) -> None:
        if self.saved_ledger is None:
            # Nobody knows what has to wait, and nothing need: no choice survived the crash, and who holds what is seen.
            self.unhealthy_since = dict.fromkeys((G0, G1, G2), float("-inf"))
        self.keeper = LedgerKeeper(self.save, self.saved_ledger, save_again=1.0)
        self.listing = linger_anew(self.saved_listing, self.now)
        self.changed_at = self.streams_at = self.now
        self.processes = None
        self.gave: dict[Holding, float] = {}
        self.advance()
        self.looks_again()

    def save(self, ledger: Ledger) -> str:
        if self.disk_is_full:
            return "no space"
        self.saved_ledger = ledger
        return ""

    def open_streams(self) -> None:
        self.changed_at = self.streams_at = self.now
        self.listing = linger_anew(self.listing, self.now)
        self.deliver()
        self.advance()

    def advance(self) -> None:
        at, shown, allocatable = self.look
        looked = at >= self.streams_at
        settled = at >= self.changed_at + 0.3 and self.now >= self.streams_at + LINGER
        confirmed = allocatable if settled else None
        held = self.held() if looked else None
        ledger, complete = self.keeper.ledger, self.keeper.is_complete
        self.keeper.advance(self.now, _pods(shown) if looked else None, lambda: self.facts(held, confirmed))
        if not self.keeper.is_moving:
            self.processes = None
        elif self.processes is None or self.now >= self.processes[0] + 2.0:
            self.processes = (self.now, frozenset(one.gpu for one in self.hidden))
        if complete and (self.keeper.wanted is None or self.keeper.wanted.reservations is None):
            assert self.keeper.ledger == ledger
        before = self.listing
        self.listing = advance(
            before,
            self.keeper.divide(RESOURCES[self.config.name], INVENTORY),
            self.config,
            sick={},
            held=held,
            held_at=at,
            calls_open=frozenset(one.resource for one in self.choices),
            now=self.now,
        )
        for name in self.listing.ended:
            self.listing = self.listing.without(name)
        if self.listing is not before:
            self.changed_at = max(self.changed_at, self.now)
            self.saved_listing = self.listing
            self.deliver()

    def facts(self, held: Mapping[str, frozenset[str]] | None, confirmed: Mapping[str, frozenset[str]] | None) -> Facts:
        computing = self.processes[1] if self.processes else None
        return facts_of(self.listing, INVENTORY, self.config, held, confirmed, computing)

    def held(self) -> dict[str, frozenset[str]]:
        """The last look, and what we have answered since, or a moment before."""
        at, shown, _ = self.look
        everything = shown | {one for one, given in self.gave.items() if given > at - 1.0}
        names = {one.resource for one in everything}
        return {name: frozenset(one.id for one in everything if one.resource == name) for name in names}

    # --- the kubelet

    def deliver(self) -> None:
        healthy = {
            name: frozenset(id_ for id_, entry in ids.items() if entry.healthy)
            for name, ids in self.listing.lists.items()
        }
        self.sent.append((self.now, healthy))
        self.note_owners(healthy)

    def seen(self) -> Mapping[str, frozenset[str]]:
        """The newest list that has arrived."""
        arrived = [lists for at, lists in self.sent if at <= self.now - 0.2]
        return arrived[-1] if arrived else {}

    def answer(self) -> None:
        """Answer each `Allocate` that has come."""
        for one in [one for one in self.choices if one.asks <= self.now]:
            self.choices.remove(one)
            try:
                entries = listed_entries(self.listing, one.resource, [one.id])
                refuse_claimed(one.resource, entries, self.keeper.ledger.claims.keys())
            except InvalidInput:
                continue
            self.holdings.append(one)
            self.gave[one] = self.now
        self.advance()

    # --- the laws

    @property
    def pods(self) -> list[Holding]:
        return [*self.holdings, *self.hidden]

    def note_owners(self, healthy: Mapping[str, frozenset[str]]) -> None:
        """Whoever gains a GPU does so after the one before could give it to nobody for 10 s, and nobody had it."""
        owners: dict[str, set[str]] = {}
        for name, ids in healthy.items():
            for device_id in ids:
                owners.setdefault(base_of(device_id), set()).add(owner_of(name))
        for gpu in (G0, G1, G2):
            now = owners.get(gpu, set())
            assert len(now) <= 1, (gpu, now)
            if not now:
                self.unhealthy_since.setdefault(gpu, self.now)
                continue
            [owner] = now
            if owner != self.last_owner.get(gpu, owner):
                assert self.now - self.unhealthy_since[gpu] > 9.999
                assert not any(one.gpu == gpu for one in self.pods)
            self.last_owner[gpu] = owner
            self.unhealthy_since.pop(gpu, None)

    @invariant()
    def nobody_has_a_gpu_that_another_owner_gives_out(self) -> None:
        for one in self.pods:
            for name, ids in self.seen().items():
                for device_id in ids:
                    assert base_of(device_id) != one.gpu or owner_of(name) == owner_of(one.resource)
            for other in self.pods:
                assert one.gpu != other.gpu or owner_of(one.resource) == owner_of(other.resource)

    @precondition(lambda self: hasattr(self, "keeper"))
    @invariant()
    def what_is_shown_was_written_before(self) -> None:
        if self.saved_ledger is not None and self.keeper.is_complete and not self.disk_is_full:
            assert self.keeper.ledger == self.saved_ledger

    def teardown(self) -> None:
        """Quiet: pods end, the disk is there, the API answers. Then each GPU belongs to whom the spec says."""
        if not hasattr(self, "keeper"):
            return
        self.holdings, self.hidden, self.choices, self.disk_is_full = [], [], [], False
        self.the_controller_writes("alice has 1, bob 0")
        self.time_passes(30.0)
        reserved = {gpu: (claim.state, claim.names) for gpu, claim in self.keeper.ledger.claims.items()}
        conflicts = self.keeper.ledger.conflicts
        want = {G1: ("reserved", (ALICE,)), G0: ("reserved", (BOB,))}
        assert reserved == {gpu: it for gpu, it in want.items() if it[1][0] not in conflicts}
        self.the_controller_writes("nothing")
        self.time_passes(30.0)
        assert self.keeper.ledger.claims == {}
        assert [name for name, ids in self.seen().items() if ids] == ["nvidia.com/gpu"]
        assert {base_of(device_id) for device_id in self.seen()["nvidia.com/gpu"]} == {G0, G1, G2}


def _pods(holdings: frozenset[Holding]) -> list[PodDevices]:
    return [PodDevices("team", "pod", str(n), one.resource, (one.id,)) for n, one in enumerate(holdings)]


TestNode = pytest.mark.obligation("P13")(Node.TestCase)
TestNode.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
