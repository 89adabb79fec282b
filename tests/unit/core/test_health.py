"""Who is sick, why, and when it is over: the state machine on a clock of its own."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.api.xids import APPLICATION_XIDS, RESET_XIDS
from gpusharing.core.devices import Gpu, Inventory, MigDevice, share_id
from gpusharing.core.health import GpuEvent, Health, HealthChecks, Probe, read_health_checks

CHECKS = HealthChecks()
GPUS = ("GPU-0", "GPU-1")
MIGS = tuple(f"MIG-{n}" for n in range(7))
XID, RESET_XID = 63, 48
assert XID not in RESET_XIDS


def inventory(*uuids: str, mig: tuple[str, ...] = MIGS) -> Inventory:
    """The first GPU has seven MIG devices: GI 7 to 13, CI 0."""
    children = tuple(MigDevice(uuid, index, "1g.10gb", gi=7 + index, ci=0) for index, uuid in enumerate(mig))
    return Inventory(
        tuple(
            Gpu(i, uuid, "A100", minor=i, mig_mode=not i, mig_devices=() if i else children)
            for i, uuid in enumerate(uuids or GPUS)
        )
    )


NODE = inventory()
GOOD = {uuid: Probe() for uuid in GPUS}
LOST = {**GOOD, "GPU-1": Probe("GPU is lost", gone=True)}


class Patient:
    """The node's health through time."""

    def __init__(self, checks: HealthChecks = CHECKS) -> None:
        self.health, self.checks, self.now, self.node = Health(), checks, 1000.0, NODE

    def event(self, gpu: str = "GPU-1", xid: int = XID, gi: int | None = None, ci: int | None = None) -> None:
        self.health = self.health.after_event(GpuEvent(gpu, xid, gi, ci), self.node, self.checks, self.now)

    def probe(self, probes: dict[str, Probe] | None = None, *, after: float = 10.0) -> set[str]:
        self.now += after
        self.health = self.health.after_probe(GOOD if probes is None else probes, self.node, self.checks, self.now)
        return self.sick

    def fail(self, *, after: float = 10.0) -> set[str]:
        self.now += after
        self.health = self.health.after_failure("NVML does not answer", self.node, self.checks, self.now)
        return self.sick

    def time_to_heal(self, *, every: float = 10.0) -> float:
        began = self.now
        while self.probe(after=every):
            assert self.now < began + 10_000, "it never heals"
        return self.now - began

    @property
    def sick(self) -> set[str]:
        return set(self.health.sick(self.node))


@pytest.fixture
def patient() -> Patient:
    return Patient()


class TestWhatAnEventHits:
    @pytest.mark.fault("F15")
    @pytest.mark.parametrize("index", range(7))
    def test_one_with_both_ids_hits_exactly_the_mig_device_of_those_ids(self, patient: Patient, index: int) -> None:
        patient.event("GPU-0", gi=7 + index, ci=0)
        assert patient.sick == {MIGS[index]}

    @pytest.mark.fault("F15")
    @pytest.mark.parametrize(("gi", "ci"), [(None, None), (7, None), (None, 0)])
    def test_one_without_both_ids_hits_everything_on_the_gpu(
        self, patient: Patient, gi: int | None, ci: int | None
    ) -> None:
        patient.event("GPU-0", gi=gi, ci=ci)
        assert patient.sick == {"GPU-0", *MIGS}

    @pytest.mark.parametrize(("gi", "ci"), [(7, 1), (99, 0)])
    def test_one_of_an_instance_that_is_not_there_hits_nothing(self, patient: Patient, gi: int, ci: int) -> None:
        patient.event("GPU-0", gi=gi, ci=ci)
        assert patient.sick == set()

    def test_one_of_a_gpu_that_is_not_there_hits_nothing(self, patient: Patient) -> None:
        patient.event("GPU-9")
        assert patient.health == Health()

    def test_one_whose_gpu_nobody_could_name_hits_them_all_and_heals_without_a_reset(self, patient: Patient) -> None:
        patient.event("", xid=RESET_XID)
        assert patient.sick == {*GPUS, *MIGS}
        assert [bool(patient.probe()) for _ in range(3)] == [True, True, False]

    @pytest.mark.fault("F12")
    def test_a_lost_gpu_takes_nobody_with_it(self, patient: Patient) -> None:
        assert patient.probe(LOST) == {"GPU-1"}

    @pytest.mark.fault("F12")
    def test_a_gpu_that_probes_do_not_find_is_sick(self, patient: Patient) -> None:
        assert patient.probe({"GPU-0": Probe()}) == {"GPU-1"}

    @pytest.mark.fault("F10")
    def test_without_nvml_everything_is_sick_and_the_reason_is_said(self, patient: Patient) -> None:
        assert patient.fail() == {*GPUS, *MIGS}
        assert set(patient.health.sick(NODE).values()) == {"NVML does not answer"}


class TestReasons:
    def test_they_name_the_xid_and_what_helps(self, patient: Patient) -> None:
        patient.event(xid=XID)
        patient.event("GPU-0", xid=RESET_XID)
        got = patient.health.sick(NODE)
        assert got["GPU-1"] == "XID 63"
        assert got["MIG-3"] == "XID 48 (double-bit ECC error); heals only after a reset"

    def test_the_first_stands_until_a_graver_one_comes(self, patient: Patient) -> None:
        for xid, want in [(63, "XID 63"), (74, "XID 63"), (RESET_XID, "XID 48"), (95, "XID 48"), (63, "XID 48")]:
            patient.event(xid=xid)
            assert patient.health.sick(NODE)["GPU-1"].startswith(want)
        patient.probe({**GOOD, "GPU-1": Probe("timeout")})
        assert patient.health.sick(NODE)["GPU-1"].startswith("XID 48")
        patient.probe(LOST)
        assert patient.health.sick(NODE)["GPU-1"] == "GPU is lost"


class TestHealing:
    @pytest.mark.fault("F16")
    def test_three_good_probes_ten_seconds_apart_heal(self, patient: Patient) -> None:
        patient.event()
        assert [patient.probe(after=wait) for wait in (1, 10, 10)] == [{"GPU-1"}, {"GPU-1"}, set()]

    @pytest.mark.fault("F16")
    def test_probes_that_come_faster_count_once_in_ten_seconds(self, patient: Patient) -> None:
        patient.event()
        assert patient.time_to_heal(every=2.5) == pytest.approx(2.5 + 2 * 10)

    def test_a_bad_probe_begins_the_count_anew(self, patient: Patient) -> None:
        patient.event()
        patient.probe()
        patient.probe()
        patient.probe({**GOOD, "GPU-1": Probe("timeout")})
        assert [bool(patient.probe()) for _ in range(3)] == [True, True, False]

    def test_another_xid_begins_the_count_anew(self, patient: Patient) -> None:
        patient.event()
        patient.probe()
        patient.probe()
        patient.event()
        assert [bool(patient.probe()) for _ in range(3)] == [True, True, False]

    @pytest.mark.fault("F16")
    @pytest.mark.parametrize("xid", sorted(RESET_XIDS.keys() - APPLICATION_XIDS))
    def test_after_an_xid_that_needs_a_reset_good_probes_alone_heal_nothing(self, patient: Patient, xid: int) -> None:
        patient.event(xid=xid)
        assert all(patient.probe() == {"GPU-1"} for _ in range(20))

    @pytest.mark.fault("F16")
    def test_it_heals_once_the_gpu_was_seen_gone(self, patient: Patient) -> None:
        patient.event(xid=RESET_XID)
        patient.probe(LOST)
        assert [bool(patient.probe()) for _ in range(3)] == [True, True, False]

    @pytest.mark.fault("F16")
    def test_it_heals_once_nvml_was_initialised_anew(self, patient: Patient) -> None:
        patient.event(xid=RESET_XID)
        patient.fail()
        assert [bool(patient.probe()) for _ in range(3)] == [True, True, False]

    def test_an_error_is_not_a_reset(self, patient: Patient) -> None:
        patient.event(xid=RESET_XID)
        patient.probe({**GOOD, "GPU-1": Probe("timeout")})
        assert all(patient.probe() for _ in range(10))

    def test_that_another_gpu_was_gone_is_not_a_reset_either(self, patient: Patient) -> None:
        patient.event("GPU-0", xid=RESET_XID)
        patient.probe(LOST)
        for _ in range(3):
            patient.probe()
        assert patient.sick == {"GPU-0", *MIGS}

    def test_a_reset_before_the_xid_does_not_count(self, patient: Patient) -> None:
        patient.probe(LOST)
        patient.event(xid=RESET_XID)
        assert all(patient.probe() for _ in range(10))

    @pytest.mark.fault("F15")
    def test_a_mig_device_heals_by_the_probes_of_its_gpu(self, patient: Patient) -> None:
        patient.event("GPU-0", gi=8, ci=0)
        assert [patient.probe() for _ in range(3)] == [{"MIG-1"}, {"MIG-1"}, set()]

    @pytest.mark.fault("F15")
    def test_a_sick_mig_device_stays_so_while_its_gpu_comes_and_goes(self, patient: Patient) -> None:
        patient.event("GPU-0", xid=RESET_XID, gi=8, ci=0)
        assert patient.probe() == {"MIG-1"}
        patient.probe({**GOOD, "GPU-0": Probe("GPU is lost", gone=True)})
        assert patient.sick == {"GPU-0", *MIGS}
        assert [len(patient.probe()) for _ in range(3)] == [8, 8, 0]

    def test_a_share_that_an_inventory_calls_sick_heals_like_the_rest(self, patient: Patient) -> None:
        share = share_id("GPU-1", 2)
        assert patient.probe({**GOOD, share: Probe("declared sick")}) == {share}
        assert [bool(patient.probe()) for _ in range(3)] == [True, True, False]


class TestFlapping:
    def flap(self, patient: Patient) -> None:
        patient.event()
        for _ in range(3):
            patient.probe()

    @pytest.mark.fault("F13")
    def test_the_third_change_in_ten_minutes_holds_for_thirty(self, patient: Patient) -> None:
        self.flap(patient)
        assert patient.sick == set()
        patient.event()
        assert 1800 <= patient.time_to_heal() < 1820

    @pytest.mark.fault("F13")
    def test_changes_that_are_further_apart_hold_nothing(self, patient: Patient) -> None:
        for _ in range(5):
            self.flap(patient)
            assert patient.sick == set()
            patient.probe(after=600)

    @pytest.mark.fault("F13")
    def test_to_become_well_is_a_change_too(self, patient: Patient) -> None:
        patient.event()
        patient.probe({**GOOD, "GPU-1": Probe("timeout")}, after=100)
        patient.time_to_heal()
        patient.probe(after=480)  # by now the first change is out of the window, and the second is not
        patient.event()
        assert 1800 <= patient.time_to_heal() < 1850

    @pytest.mark.fault("F13")
    def test_a_storm_changes_the_value_once(self, patient: Patient) -> None:
        patient.event()
        first = patient.health
        for _ in range(1000):
            patient.event()
            patient.event(xid=74)
        assert patient.health is first


class TestWhatIsForgotten:
    @pytest.mark.fault("F17")
    def test_a_gpu_that_was_swapped_leaves_nothing_behind(self, patient: Patient) -> None:
        patient.event(xid=RESET_XID)
        patient.node = inventory("GPU-0", "GPU-new")
        assert patient.probe({"GPU-0": Probe(), "GPU-new": Probe()}) == set()
        assert "GPU-1" not in patient.health.records

    def test_mig_devices_that_are_no_more_leave_nothing_behind(self, patient: Patient) -> None:
        patient.event("GPU-0", gi=8, ci=0)
        patient.node = inventory(mig=("MIG-new",))
        assert patient.probe() == set()
        assert "MIG-1" not in patient.health.records

    def test_probes_of_what_the_inventory_does_not_know_are_left_out(self, patient: Patient) -> None:
        assert patient.probe({**GOOD, "GPU-9": Probe("timeout")}) == set()


class TestTheTwoVariables:
    @pytest.mark.fault("F14")
    @pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
    def test_errors_of_applications_are_ignored_by_default(self, patient: Patient, xid: int) -> None:
        patient.event(xid=xid)
        assert patient.sick == set()

    @pytest.mark.fault("F14")
    @pytest.mark.parametrize(
        ("disable", "enable", "ignored", "counted"),
        [
            ("", "", {13, 109}, {48, 94}),
            ("94", "", {13, 94}, {48}),
            (" 94 ,95,", "", {13, 94, 95}, {48}),
            ("", "13", {31, 109}, {13, 48}),
            ("94,13", "94,13", {31}, {94, 13}),
            ("94", "ALL", set(), {13, 94, 109}),
            ("94", "xids", set(), {13, 94, 109}),
            ("all", "all", set(), {13, 48}),
            ("XIDs", "48,all", set(), {13, 48}),
            ("banana,-1,0x10,94", "1.5", {13, 94}, {16, 48}),
        ],
    )
    def test_which_xids_count(self, disable: str, enable: str, ignored: set[int], counted: set[int]) -> None:
        checks, _ = read_health_checks(disable, enable)
        for xid in ignored | counted:
            patient = Patient(checks)
            patient.event(xid=xid)
            assert bool(patient.sick) == (xid in counted), xid

    @pytest.mark.fault("F14")
    @pytest.mark.parametrize(("disable", "enable"), [("all", ""), ("xids", ""), (" ALL ,94", "48"), ("xids", "13")])
    def test_off_is_off_whatever_single_xids_are_enabled(self, disable: str, enable: str) -> None:
        checks, _ = read_health_checks(disable, enable)
        patient = Patient(checks)
        patient.event(xid=48)
        assert patient.probe(LOST) == set()
        assert patient.fail() == set()

    @pytest.mark.fault("F14")
    def test_what_is_malformed_is_named(self) -> None:
        _, notes = read_health_checks("banana, ,94", "-1,\u0661")
        assert notes == (
            "DP_DISABLE_HEALTHCHECKS: 'banana' is skipped: it is neither a number nor all or xids",
            "DP_ENABLE_HEALTHCHECKS: '-1' is skipped: it is neither a number nor all or xids",
            "DP_ENABLE_HEALTHCHECKS: '\u0661' is skipped: it is neither a number nor all or xids",
        )

    @given(st.text(), st.text())
    def test_no_text_breaks_them(self, disable: str, enable: str) -> None:
        read_health_checks(disable, enable)


Step = tuple[float, GpuEvent | dict[str, Probe] | None]
steps = st.lists(
    st.tuples(
        st.floats(0, 900),
        st.one_of(
            st.builds(
                GpuEvent,
                st.sampled_from([*GPUS, "", "GPU-9"]),
                st.sampled_from([13, 48, 63, 79]),
                st.sampled_from([None, 7, 8, 99]),
                st.sampled_from([None, 0]),
            ),
            st.dictionaries(st.sampled_from(GPUS), st.sampled_from([Probe(), Probe("timeout"), Probe("lost", True)])),
            st.none(),
        ),
    ),
    max_size=40,
)


def histories(steps: list[Step]) -> list[tuple[float, Health]]:
    health, now = Health(), 0.0
    states = [(now, health)]
    for wait, step in steps:
        now += wait
        if isinstance(step, GpuEvent):
            health = health.after_event(step, NODE, CHECKS, now)
        elif step is None:
            health = health.after_failure("down", NODE, CHECKS, now)
        else:
            health = health.after_probe(step, NODE, CHECKS, now)
        states.append((now, health))
    return states


class TestLaws:
    @given(steps)
    def test_what_is_sick_is_of_this_node_and_has_a_reason(self, steps: list[Step]) -> None:
        for _, health in histories(steps):
            sick = health.sick(NODE)
            assert sick.keys() <= {*GPUS, *MIGS}
            assert all(sick.values())

    @given(steps)
    def test_nothing_heals_within_twenty_seconds_or_by_anything_but_a_probe(self, steps: list[Step]) -> None:
        fell_sick: dict[str, float] = {}
        for (_, before), (now, after) in pairwise(histories(steps)):
            for id_ in after.records.keys() | before.records.keys():
                was, is_ = before._of(id_), after._of(id_)
                if is_.reason and not was.reason:
                    fell_sick[id_] = now
                if was.reason and not is_.reason:
                    assert now - fell_sick[id_] >= 18
                    assert not was.awaits_reset

    @given(steps)
    def test_at_most_two_changes_in_ten_minutes_and_a_third_that_holds(self, steps: list[Step]) -> None:
        changes: dict[str, list[float]] = {}
        for (_, before), (now, after) in pairwise(histories(steps)):
            for id_ in after.records:
                if bool(before._of(id_).reason) != bool(after._of(id_).reason):
                    changes.setdefault(id_, []).append(now)
        for times in changes.values():
            for first, third, fourth in zip(times, times[2:], times[3:], strict=False):
                if third - first < 600:
                    assert fourth - third >= 1800

    @given(steps)
    def test_with_patience_and_good_probes_everything_heals_that_needs_no_reset(self, steps: list[Step]) -> None:
        now, health = histories(steps)[-1]
        for _ in range(400):
            now += 10
            health = health.after_probe(GOOD, NODE, CHECKS, now)
        for record in health.records.values():
            assert not record.reason or record.awaits_reset
        health = health.after_failure("down", NODE, replace(CHECKS, flaps=100), now)
        for _ in range(400):
            now += 10
            health = health.after_probe(GOOD, NODE, CHECKS, now)
        assert not health.sick(NODE)

    @given(steps)
    def test_every_step_taken_twice_is_taken_once(self, steps: list[Step]) -> None:
        twice = [step for wait, what in steps for step in ((wait, what), (0.0, what))]
        assert histories(twice)[-1] == histories(steps)[-1]
