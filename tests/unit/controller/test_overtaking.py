"""Whatever overtakes whatever: in the end the cache is what the cluster is, and every decision is up to date.

A cluster on paper makes a random history. Each kind has a watch (in order, or with a gap and a relist), lists (asked
for, answered and read at three different times) and answers to writes; workers take keys in between.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import make_node, make_policy, make_record, make_report

from gpusharing.api import names
from gpusharing.controller.cache import KINDS, Cache, Kind
from gpusharing.controller.keys import Key
from gpusharing.core.records import record_object

Object = dict[str, Any]
WATCHED: tuple[Any, ...] = ("policy", "node", "report")
NAMES = ("a", "b")


def make_object(kind: Kind, name: str, variant: int, birth: int) -> Object:
    """One of a few objects of the kind; `birth` tells those of one name apart."""
    match kind:
        case "policy":
            policy = make_policy(f"policy-{name}").uid(f"{name}-{birth}").priority(variant % 2).sharing(2 + variant)
            obj = policy.selecting({"team": "x"} if variant == 3 else {}).generation(variant + 1).object()
        case "node":
            node = make_node(name).uid(f"{name}-{birth}").label("team", "xy"[variant % 2])
            obj = (node.config("some-config") if variant > 1 else node).object()
        case "report":
            obj = make_report(name).gpus(variant).object()
        case _:
            record = make_record(make_node(name).build(), make_policy(f"policy-{NAMES[variant % 2]}").sharing(4))
            obj = record_object(record, names.NAMESPACE)
    return obj


@dataclass
class Listing:
    """A list that is under way."""

    version: int = 0
    items: list[Object] | None = None
    begun: bool = False
    names: set[str] = field(default_factory=set)


class Play:
    """The cluster, the cache, and everything that is under way between them."""

    def __init__(self) -> None:
        self.version = 100
        self.births = 0
        self.world: dict[Kind, dict[str, Object]] = {kind: {} for kind in KINDS}
        self.watch: dict[Kind, list[tuple[str, Object]]] = {kind: [] for kind in KINDS}
        self.lists: dict[Kind, Listing] = {}
        self.answers: list[tuple[Kind, Object, int]] = []
        self.asked: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        self.cache = new_cache()
        self.keys: set[Key] = set()

    # --- what happens in the cluster

    def write(self, kind: Kind, name: str, variant: int) -> None:
        """Somebody creates or changes an object; where it was we, the answer is under way."""
        self.version += 1
        known = next((obj for obj in self.world[kind].values() if obj["metadata"].get("birth") == name), None)
        if known is None:
            self.births += 1
        birth = known["birth"] if known else self.births
        obj = make_object(kind, name, variant, birth)
        obj["metadata"] |= {"resourceVersion": str(self.version), "birth": name}
        obj["birth"] = birth
        self.world[kind][obj["metadata"]["name"]] = obj
        self.watch[kind].append(("MODIFIED" if known else "ADDED", obj))
        if kind in {"node", "record"}:
            self.answers.append((kind, obj, self.asked[kind]))

    def delete(self, kind: Kind, name: str, _: int) -> None:
        found = [key for key, obj in self.world[kind].items() if obj["metadata"]["birth"] == name]
        for key in found:
            self.version += 1
            obj = self.world[kind].pop(key)
            gone = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
            self.watch[kind].append(("DELETED", gone))

    # --- what reaches the controller

    def put(self, kind: Kind, obj: Object) -> None:
        puts: dict[Kind, Callable[[Object], set[Key]]] = {
            "policy": self.cache.put_policy,
            "node": self.cache.put_node,
            "report": self.cache.put_report,
            "record": self.cache.put_record,
        }
        self.keys |= puts[kind](obj)

    def see(self, kind: Kind, _: str = "", __: int = 0) -> None:
        """The next event of the watch arrives; records have none."""
        if kind in WATCHED and self.watch[kind]:
            type_, obj = self.watch[kind].pop(0)
            if type_ == "DELETED":
                self.keys |= self.cache.bury(kind, obj["metadata"])  # type: ignore[arg-type]
            else:
                self.put(kind, obj)

    def gap(self, kind: Kind, _: str, __: int) -> None:
        """The watch loses what is under way and lists anew, as Kopf does: what was deleted it never tells."""
        self.watch[kind] = [("LISTED", obj) for obj in self.world[kind].values()]

    def answer(self, _: Kind, __: str, number: int) -> None:
        """The answer to a write arrives, of several in any order."""
        if self.answers:
            kind, obj, _asked = self.answers.pop(number % len(self.answers))
            self.put(kind, obj)

    def read_list(self, kind: Kind, _: str = "", __: int = 0) -> None:
        """One more step of a list: asked for, made by the server, begun, read item by item, ended."""
        listing = self.lists.get(kind)
        if listing is None:
            self._ask(kind)
        elif listing.items is None:
            listing.version, listing.items = self.version, list(self.world[kind].values())
        elif not listing.begun:
            self.cache.seen[kind].start_list(listing.version)
            listing.begun = True
        elif listing.items:
            obj = listing.items.pop(0)
            listing.names.add(obj["metadata"]["name"])
            self.put(kind, obj)
        else:
            self._end(kind, listing)

    def _ask(self, kind: Kind) -> None:
        """Lists are minutes apart: an answer arrives before the second list after it."""
        self.asked[kind] += 1
        late = [one for one in self.answers if one[0] == kind and one[2] <= self.asked[kind] - 2]
        for one in late:
            self.answers.remove(one)
            self.put(kind, one[1])
        self.cache.seen[kind].ask_list()
        self.lists[kind] = Listing()

    def _end(self, kind: Kind, listing: Listing) -> None:
        for name in self.cache.seen[kind].missing(listing.names):
            match kind:
                case "policy":
                    self.keys |= self.cache.drop_policy(name)
                case "node":
                    self.keys |= self.cache.drop_node(name)
                case "report":
                    self.keys |= self.cache.drop_report(name)
                case _:
                    self.keys |= self.cache.drop_record(name.removeprefix(names.RECORD_PREFIX))
        del self.lists[kind]

    def work(self, _: Kind = "node", __: str = "", number: int = 0) -> None:
        """A worker takes a key."""
        if self.keys:
            key = sorted(self.keys)[number % len(self.keys)]
            self.keys.discard(key)
            if key[0] == "node":
                follow(self.cache, key[1])

    # --- the end

    def finish(self, *, by_lists: bool) -> None:
        """Everything that is under way arrives, the answers last; `by_lists` everything is listed once more."""
        for kind in KINDS:
            while self.watch[kind] and kind in WATCHED:
                self.see(kind)
            while kind in self.lists:
                self.read_list(kind)
        while self.answers:
            self.answer("node", "", 0)
        for kind in KINDS if by_lists else ():
            self.read_list(kind)
            while kind in self.lists:
                self.read_list(kind)
        while self.keys:
            self.work()


def new_cache() -> Cache:
    return Cache("per-node", sync_delay=timedelta(seconds=120), plugin_gone_after=30)


def follow(cache: Cache, node: str) -> None:
    """What a worker does with a node's key, but for the writes."""
    if node in cache.nodes:
        cache.evaluate(node, 0.0)
    else:
        cache.forget_state(node)


def facts(cache: Cache, kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """What the cache knows of the cluster."""
    known = {
        "policy": {name: (seen.policy.uid, seen.policy.spec) for name, seen in cache.policies.items()},
        "node": cache.nodes,
        "report": cache.reports,
        "record": cache.records,
    }
    return {kind: known[kind] for kind in kinds}


def decisions(cache: Cache) -> dict[str, Any]:
    """What follows from it."""
    states = {
        name: (state.assignment.outcome, state.owner, state.assignment.matched, state.assignment.tied)
        for name, state in cache.states.items()
    }
    members = {policy: nodes for policy, nodes in cache.members.nodes.items() if nodes}
    return {"states": states, "members": members}


def what_it_should_be(play: Play) -> Cache:
    """A cache that sees the cluster as it is, and nothing of how it became so."""
    fresh = Play()
    fresh.world, fresh.version = play.world, play.version
    fresh.finish(by_lists=True)
    return fresh.cache


STEPS = ("write", "write", "write", "delete", "see", "see", "see", "answer", "read_list", "read_list", "work")
step = st.tuples(st.sampled_from(STEPS), st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(0, 3))
step_or_gap = st.one_of(
    step, st.tuples(st.just("gap"), st.sampled_from(WATCHED), st.sampled_from(NAMES), st.integers(0, 3))
)


def played(steps: list[tuple[str, Any, str, int]], *, by_lists: bool) -> Play:
    play = Play()
    for method, kind, name, number in steps:
        getattr(play, method)(kind, name, number)
    play.finish(by_lists=by_lists)
    return play


@settings(max_examples=100)
@given(st.lists(step, min_size=30, max_size=100))
def test_with_whole_watches_the_cache_ends_as_the_cluster_is_without_any_list(
    steps: list[tuple[str, Any, str, int]],
) -> None:
    play = played(steps, by_lists=False)
    assert facts(play.cache, WATCHED) == facts(what_it_should_be(play), WATCHED)


@settings(max_examples=100)
@given(st.lists(step_or_gap, min_size=30, max_size=100))
def test_whatever_a_watch_lost_the_next_lists_and_their_keys_bring_facts_and_decisions_up_to_date(
    steps: list[tuple[str, Any, str, int]],
) -> None:
    play = played(steps, by_lists=True)
    want = what_it_should_be(play)
    assert facts(play.cache, KINDS) == facts(want, KINDS)
    assert decisions(play.cache) == decisions(want)
