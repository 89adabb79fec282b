"""The lists against a kubelet that takes ids whenever it may: whatever happens, nothing is given out twice."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.hardware import gpu_uuid, make_config, make_hardware

from gpusharing.api.node import ResourceReport
from gpusharing.core.advertise import predicted
from gpusharing.core.devices import base_of, replica_of
from gpusharing.core.inventoryreport import gpu_report
from gpusharing.core.listcounts import rows
from gpusharing.core.listing import Listing, advance, check_fit, next_deadline, standing
from gpusharing.core.resources import resources_of
from gpusharing.core.sickness import lost

GPU, SHARED, SMALL = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
A, B, C, D = (f"MIG-{letter * 4}" for letter in "abcd")
# Of the MIG devices of the first GPU these can be there together; all others lie over one another.
TOGETHER = [{A, B}, {A, D}]

CONFIGS = {
    "whole": make_config("whole"),
    "four shares": make_config("four").shared(4),
    "two shares": make_config("two").shared(2),
    "renamed": make_config("renamed").shared(3, renameByDefault=True),
    "mixed": make_config("mixed").mig("mixed"),
    "mixed, shared": make_config("mixed-shared").mig("mixed").shared({SMALL: 2, GPU: 2}),
    "mixed, otherwise edited": make_config("mixed-volumes").mig("mixed").lists("volume-mounts"),
}
HARDWARE = {
    "plain": make_hardware(2),
    "A and B": make_hardware(2).mig(0, "1g.10gb", "1g.10gb", uuids=(A, B)),
    "A and D": make_hardware(2).mig(0, "1g.10gb", "1g.10gb", uuids=(A, D)),
    "C": make_hardware(2).mig(0, "3g.40gb", uuids=(C,)),
    "one GPU lost": make_hardware(2).without(1),
    "none left": make_hardware(0),
}


@dataclass(frozen=True)
class Holding:
    """A container's id: chosen, and perhaps still being allocated."""

    resource: str
    id: str
    # when our answer comes
    answered: float

    @property
    def gpu(self) -> str:
        base = base_of(self.id)
        return gpu_uuid(0) if base.startswith("MIG-") else base


def clash(one: Holding, other: Holding) -> bool:
    """Whether two containers are on the same part of a GPU without having been meant to share it."""
    if one.gpu != other.gpu:
        return False
    if one.resource == other.resource and None not in (replica_of(one.id), replica_of(other.id)):
        return False
    bases = {base_of(one.id), base_of(other.id)}
    return bases not in TOGETHER


class Kubelet(RuleBasedStateMachine):
    """Sees a list 0.3 s late, chooses any healthy free id of it, and shows holders once we have answered."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.listing = Listing()
        self.seen: Mapping[str, set[str]] = {}
        self.sent: list[tuple[float, Mapping[str, set[str]]]] = []
        self.holdings: list[Holding] = []
        self.sick: dict[str, str] = {}
        self.readable = True
        self.look: tuple[float, frozenset[Holding]] = (0.0, frozenset())
        self.unhealthy_since: dict[tuple[str, str], float] = {}

    # --- what happens

    @initialize(config=st.sampled_from(list(CONFIGS)), hardware=st.sampled_from(list(HARDWARE)))
    def start(self, config: str, hardware: str) -> None:
        self.config, self.hardware = config, hardware
        self.advance()

    @rule(config=st.sampled_from(list(CONFIGS)))
    def config_changes(self, config: str) -> None:
        self.config = config
        self.advance()

    @rule(config=st.sampled_from(list(CONFIGS)), which=st.integers(0, 50), seconds=st.sampled_from([0.0, 0.5, 2.0]))
    def config_changes_just_before_a_pod_starts(self, config: str, which: int, seconds: float) -> None:
        """The kubelet has not seen the new list yet, and whoever looks at PodResources sees nobody."""
        self.config = config
        self.looks_again()
        self.a_pod_starts(which, seconds)
        self.time_passes(0.3)

    @rule(hardware=st.sampled_from(list(HARDWARE)))
    def hardware_changes(self, hardware: str) -> None:
        self.hardware = hardware
        self.advance()

    @rule(uuid=st.sampled_from([gpu_uuid(0), gpu_uuid(1), A, f"{gpu_uuid(0)}::1"]))
    def breaks_or_heals(self, uuid: str) -> None:
        if self.sick.pop(uuid, None) is None:
            self.sick[uuid] = "XID 79"
        self.advance()

    @rule(which=st.integers(0, 50), seconds=st.sampled_from([0.0, 0.1, 1.5, 4.0]))
    def a_pod_starts(self, which: int, seconds: float) -> None:
        taken = {(holding.resource, holding.id) for holding in self.holdings}
        free = sorted((name, one) for name, ids in self.seen.items() for one in ids if (name, one) not in taken)
        if free:
            name, chosen = free[which % len(free)]
            # it was chosen while healthy: the answer is an answer, or a refusal that names a broken device
            assert standing(self.listing, name, chosen).state != "unknown"
            self.holdings.append(Holding(name, chosen, self.now + seconds))
            self.advance()

    @rule(which=st.integers(0, 50))
    def a_pod_ends(self, which: int) -> None:
        if self.holdings:
            del self.holdings[which % len(self.holdings)]

    @rule()
    def pod_resources_break_or_heal(self) -> None:
        self.readable = not self.readable
        self.advance()

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 2.0, 5.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := next_deadline(self.listing, self.now)) is not None and deadline <= end:
            self.now = deadline
            self.looks_again()
        self.now = end
        self.advance()

    @rule()
    def looks_again(self) -> None:
        answered = frozenset(holding for holding in self.holdings if holding.answered <= self.now)
        self.look = (self.now, answered)
        self.advance()

    # --- the plugin, as a shell drives it

    def advance(self) -> None:
        inventory, config = HARDWARE[self.hardware].build(), CONFIGS[self.config].build()
        wanted = resources_of(config, inventory)
        check_fit(self.listing, wanted)
        before = self.listing
        self.listing = advance(
            before,
            wanted,
            config,
            sick=self.sick | lost(before, inventory),
            held=self.held(),
            held_at=self.look[0],
            calls_open=frozenset(holding.resource for holding in self.holdings if holding.answered > self.now),
            now=self.now,
        )
        self.nothing_left_too_early(before)
        for name in self.listing.ended:
            self.listing = self.listing.without(name)
        self.deliver()

    def held(self) -> dict[str, frozenset[str]] | None:
        """The last look, and what we have answered since; a pod that ended is still in an old look."""
        if not self.readable:
            return None
        at, looked = self.look
        ours = {holding for holding in self.holdings if at < holding.answered <= self.now}
        everything = looked | ours
        return {name: frozenset(one.id for one in everything if one.resource == name) for name in _names(everything)}

    def deliver(self) -> None:
        healthy = {
            name: {one for one, entry in ids.items() if entry.healthy} for name, ids in self.listing.lists.items()
        }
        self.sent.append((self.now, healthy))
        while len(self.sent) > 1 and self.sent[1][0] <= self.now - 0.3:
            self.sent.pop(0)
        self.seen = self.sent[0][1]
        for name, ids in self.listing.lists.items():
            for one, entry in ids.items():
                if entry.healthy:
                    self.unhealthy_since.pop((name, one), None)
                else:
                    self.unhealthy_since.setdefault((name, one), self.now)

    # --- the laws

    def nothing_left_too_early(self, before: Listing) -> None:
        """P13: Unhealthy for 10 s first, with nobody on it and no call open."""
        for name, ids in before.lists.items():
            for one in ids.keys() - self.listing.lists.get(name, {}).keys():
                assert self.now - self.unhealthy_since[name, one] > 9.999  # seconds are floats
                assert self.readable
                assert not any(holding.resource == name and holding.answered > self.now for holding in self.holdings)

    @invariant()
    def an_id_that_somebody_has_is_listed(self) -> None:
        for holding in self.holdings:
            assert standing(self.listing, holding.resource, holding.id).state != "unknown"

    @invariant()
    def nothing_is_given_out_twice(self) -> None:
        for index, one in enumerate(self.holdings):
            for other in self.holdings[index + 1 :]:
                assert not clash(one, other), (one, other)

    @invariant()
    def an_id_of_a_broken_device_is_unhealthy(self) -> None:
        for ids in self.listing.lists.values():
            for one, entry in ids.items():
                if entry.device.gpu in self.sick or entry.device.base in self.sick or one in self.sick:
                    assert not entry.healthy
                    assert entry.sick

    @invariant()
    def counts_add_up(self) -> None:
        for row in rows(self.listing):
            entries = self.listing.lists[row.name].values()
            sick = sum(entry.state == "served" and bool(entry.sick) for entry in entries)
            assert row.devices == row.healthy + row.withheld + row.retiring + sick
            assert row.predicted == row.healthy

    @precondition(lambda self: hasattr(self, "config"))
    @invariant()
    def the_controller_predicts_what_the_plugin_does(self) -> None:
        """Decision 28: from the inventory and the reported counts, as far as those cannot be known from it."""
        reported = {
            row.name: ResourceReport(
                name=row.name,
                devices=row.devices,
                healthy=row.healthy,
                withheld=row.withheld,
                retiring=row.retiring,
            )
            for row in rows(self.listing)
        }
        gpus = [gpu_report(gpu, gpu.uuid not in self.sick) for gpu in HARDWARE[self.hardware].build().gpus]
        predictions = predicted(CONFIGS[self.config].build().config, gpus, reported)
        assert predictions == {row.name: row.predicted for row in rows(self.listing) if row.name in predictions}
        assert not any(row.predicted for row in rows(self.listing) if row.name not in predictions)

    def teardown(self) -> None:
        """Quiet: pods end, PodResources answer, everything heals. Then the lists are what the config says."""
        if not hasattr(self, "config"):
            return
        self.now += 5
        self.holdings, self.readable, self.sick = [], True, {}
        self.looks_again()
        self.time_passes(12.0)
        inventory, config = HARDWARE[self.hardware].build(), CONFIGS[self.config].build()
        wanted = resources_of(config, inventory)
        assert {name: list(ids) for name, ids in self.listing.lists.items()} == {
            resource.name: [device.id for device in resource.devices] for resource in wanted
        }
        assert all(entry.healthy for ids in self.listing.lists.values() for entry in ids.values())
        assert [(row.devices, row.predicted) for row in rows(self.listing)] == [
            (len(self.listing.lists[name]), len(self.listing.lists[name])) for name in self.listing.lists
        ]
        assert next_deadline(self.listing, self.now) is None
        settled = self.listing
        self.now += 1000
        self.advance()
        assert self.listing is settled


def _names(holdings: frozenset[Holding]) -> list[str]:
    return sorted({holding.resource for holding in holdings})


TestKubelet = pytest.mark.obligation("P13")(pytest.mark.fault("F22")(Kubelet.TestCase))
TestKubelet.settings = settings(deadline=None, max_examples=40, stateful_step_count=35)
