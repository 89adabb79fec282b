from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.hardware import ConfigBuilder, HardwareBuilder, gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.core.errors import InvalidInput
from gpusharing.core.listcounts import Row, rows
from gpusharing.core.listing import Listing, Standing, advance, check_fit, linger_anew, next_deadline, standing
from gpusharing.core.resources import Device, Resource, resources_of
from gpusharing.core.sickness import lost

GPU, SHARED, SMALL, BIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
G0, G1 = gpu_uuid(0), gpu_uuid(1)
WHOLE, FOUR = make_config("whole"), make_config("four").shared(4)
RENAMED = make_config("renamed").shared(4, renameByDefault=True)
UNREADABLE = None


@dataclass
class Lists:
    """The lists of a node with two GPUs, and a clock."""

    config: ConfigBuilder = WHOLE
    hardware: HardwareBuilder = field(default_factory=lambda: make_hardware(2))
    now: float = 1000.0
    held: dict[str, set[str]] | None = field(default_factory=dict)
    held_at: float | None = None
    sick: dict[str, str] = field(default_factory=dict)
    calls_open: frozenset[str] = frozenset()
    listing: Listing = field(default_factory=Listing)

    def __post_init__(self) -> None:
        self.after(0)

    def after(self, seconds: float) -> "Lists":
        """Let time pass, then advance."""
        self.now += seconds
        config, inventory = self.config.build(), self.hardware.build()
        held = None if self.held is None else {name: frozenset(ids) for name, ids in self.held.items()}
        self.listing = advance(
            self.listing,
            resources_of(config, inventory),
            config,
            sick=self.sick | lost(self.listing, inventory),
            held=held,
            held_at=self.held_at,
            calls_open=self.calls_open,
            now=self.now,
        )
        return self

    def to(self, config: ConfigBuilder) -> "Lists":
        """Serve another config from now on."""
        self.config = config
        return self.after(0)

    def state(self, device_id: str, resource: str = GPU) -> str:
        return standing(self.listing, resource, device_id).state

    def states(self, resource: str = GPU, gpu: str = G0) -> Counter[str]:
        """Count the states of a GPU's ids."""
        entries = self.listing.lists.get(resource, {}).values()
        return Counter(self.state(one.device.id, resource) for one in entries if one.device.gpu == gpu)


def shares(gpu: str, *replicas: int) -> set[str]:
    return {f"{gpu}::{replica}" for replica in replicas}


# --- the first list


@pytest.mark.obligation("P1")
def test_the_first_list_is_there_at_once_with_podresources_unreadable() -> None:
    lists = Lists(FOUR, held=UNREADABLE)
    assert lists.states() == {"served": 4}
    assert next_deadline(lists.listing, lists.now) is None


def test_nothing_changed_is_the_same_object() -> None:
    lists = Lists(FOUR)
    before = lists.listing
    assert lists.after(100).listing is before


def test_a_config_that_changes_no_id_only_changes_what_allocate_answers() -> None:
    lists = Lists(FOUR).to(FOUR.lists("volume-mounts"))
    assert lists.states() == {"served": 4}
    found = standing(lists.listing, GPU, f"{G0}::1")
    assert found.entry is not None
    assert found.entry.config.device_list_strategies == ("volume-mounts",)


def test_the_order_is_that_of_the_config_and_then_of_those_that_retire() -> None:
    lists = Lists(FOUR).to(make_config().shared(2))
    assert list(lists.listing.lists[GPU]) == [
        *(f"{gpu}::{replica}" for gpu in (G0, G1) for replica in (0, 1)),
        *(f"{gpu}::{replica}" for gpu in (G0, G1) for replica in (2, 3)),
    ]


# --- fewer shares


@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
def test_from_8_to_4_shares_with_6_in_use_those_held_stay_listed_until_each_is_free() -> None:
    lists = Lists(make_config().shared(8), held={GPU: shares(G0, 0, 1, 4, 5, 6, 7)}).to(FOUR)
    assert lists.states() == {"served": 4, "retiring": 4}
    assert lists.after(3600).states() == {"served": 4, "retiring": 4}
    for left, replica in ((3, 5), (2, 4), (1, 7), (0, 6)):
        assert lists.held is not None
        lists.held[GPU].discard(f"{G0}::{replica}")
        assert lists.after(5).states() == Counter(served=4, retiring=left)
    assert lists.state(f"{G0}::6") == "unknown"


@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
def test_an_id_is_unhealthy_for_10_seconds_before_it_is_left_out() -> None:
    lists = Lists(FOUR).to(make_config().shared(2))
    assert lists.after(10.4).states() == {"served": 2, "retiring": 2}
    assert lists.after(0.2).states() == {"served": 2}


@pytest.mark.obligation("P13")
def test_with_a_call_open_nothing_of_its_resource_is_left_out() -> None:
    lists = Lists(FOUR, calls_open=frozenset({GPU})).to(make_config().shared(2))
    assert lists.after(60).states() == {"served": 2, "retiring": 2}
    lists.calls_open = frozenset({SMALL})
    assert lists.after(1).states() == {"served": 2}


@pytest.mark.fault("F23")
@pytest.mark.obligation("P13")
def test_with_podresources_unreadable_nothing_is_left_out() -> None:
    lists = Lists(FOUR, held=UNREADABLE).to(make_config().shared(2))
    assert lists.after(36000).states() == {"served": 2, "retiring": 2}
    lists.held = {}
    assert lists.after(0).states() == {"served": 2}


@pytest.mark.obligation("P13")
def test_a_look_at_podresources_from_before_the_change_proves_nothing() -> None:
    lists = Lists(FOUR, held_at=999.0).to(make_config().shared(2))
    assert lists.after(60).states() == {"served": 2, "retiring": 2}
    lists.held_at = 1001.0
    assert lists.after(0).states() == {"served": 2}


@pytest.mark.fault("F22")
def test_a_retiring_id_that_is_wanted_again_is_healthy_at_once() -> None:
    lists = Lists(FOUR, held={GPU: shares(G0, 3)}).to(make_config().shared(2))
    assert lists.after(5).to(FOUR).states() == {"served": 4}
    assert lists.after(0).to(make_config().shared(2)).after(10.4).state(f"{G1}::3") == "retiring"


# --- whole to shared, MIG, rename


@pytest.mark.fault("F22")
def test_shares_of_a_whole_gpu_in_use_are_withheld_until_it_is_free() -> None:
    lists = Lists(WHOLE, held={GPU: {G0}}).to(FOUR).after(2)
    assert lists.states() == {"retiring": 1, "withheld": 4}
    assert lists.states(gpu=G1) == {"retiring": 1, "served": 4}
    assert lists.after(3600).states() == {"retiring": 1, "withheld": 4}
    lists.held = {}
    assert lists.after(1).states() == {"served": 4}


@pytest.mark.fault("F22")
def test_shares_of_a_whole_gpu_wait_a_second_even_if_nobody_seems_to_have_it() -> None:
    lists = Lists(WHOLE).to(FOUR)
    assert lists.states() == {"retiring": 1, "withheld": 4}
    assert lists.after(0.9).states() == {"retiring": 1, "withheld": 4}
    assert lists.after(0.2).states() == {"retiring": 1, "served": 4}


@pytest.mark.fault("F22")
def test_a_whole_gpu_is_withheld_while_a_share_of_it_is_in_use() -> None:
    lists = Lists(FOUR, held={GPU: shares(G0, 2)}).to(WHOLE).after(60)
    assert lists.states() == {"retiring": 1, "withheld": 1}
    assert lists.states(gpu=G1) == {"served": 1}


@pytest.mark.fault("F22")
def test_more_shares_of_the_same_resource_are_not_withheld() -> None:
    lists = Lists(make_config().shared(2), held={GPU: shares(G0, 0, 1)}).to(FOUR)
    assert lists.states() == {"served": 4}
    assert lists.to(make_config().shared(3)).after(0).states() == {"served": 3, "retiring": 1}


@pytest.mark.fault("F22")
def test_a_rename_withholds_the_new_name_while_the_old_one_is_in_use() -> None:
    lists = Lists(FOUR, held={GPU: shares(G0, 0)}).to(RENAMED).after(2)
    assert (lists.states(GPU), lists.states(SHARED)) == (Counter(retiring=4), Counter(withheld=4))
    assert (lists.states(GPU, G1), lists.states(SHARED, G1)) == (Counter(retiring=4), Counter(served=4))
    assert lists.after(60).states(GPU) == {"retiring": 1}


@pytest.mark.fault("F22")
def test_new_mig_devices_are_withheld_while_an_old_one_of_their_gpu_is_in_use() -> None:
    mixed = make_config().mig("mixed")
    lists = Lists(mixed, make_hardware(2).mig(0, "1g.10gb", "1g.10gb"), held={SMALL: {mig_uuid(0, 1)}})
    lists.hardware = make_hardware(2).mig(0, "3g.40gb", uuids=("MIG-new",))
    assert lists.after(0).after(60).states(BIG) == {"withheld": 1}
    assert lists.states(SMALL) == {"retiring": 1}


@pytest.mark.fault("F22")
def test_a_mig_device_that_stays_is_served_on_beside_one_that_retires() -> None:
    mixed = make_config().mig("mixed")
    lists = Lists(mixed, make_hardware(1).mig(0, "1g.10gb", "1g.10gb"), held={SMALL: {mig_uuid(0, 1)}})
    lists.hardware = make_hardware(1).mig(0, "1g.10gb")
    assert lists.after(0).states(SMALL) == {"served": 1, "retiring": 1}


@pytest.mark.fault("F22")
def test_back_and_forth_the_gpu_that_was_taken_in_between_withholds_the_old_shares() -> None:
    lists = Lists(FOUR).to(WHOLE).after(2)
    assert lists.state(G0) == "served"
    lists.held = {GPU: {G0}}
    assert lists.to(FOUR).after(2).states() == {"retiring": 1, "withheld": 4}


@pytest.mark.fault("F23")
def test_with_podresources_unreadable_what_is_withheld_stays_so() -> None:
    lists = Lists(WHOLE, held=UNREADABLE).to(FOUR)
    assert lists.after(3600).states() == {"retiring": 1, "withheld": 4}


@pytest.mark.fault("X10")
def test_a_gpu_that_a_plugin_before_us_gave_out_as_a_whole_is_not_shared_meanwhile() -> None:
    lists = Lists(FOUR, held={GPU: {G0}})
    assert lists.states() == {"withheld": 4}
    assert lists.states(gpu=G1) == {"served": 4}
    lists.held = {}
    assert lists.after(5).states() == {"served": 4}


def test_shares_that_a_plugin_before_us_gave_out_do_not_withhold_ours() -> None:
    assert Lists(FOUR, held={GPU: shares(G0, 1, 7)}).states() == {"served": 4}
    assert Lists(FOUR, held={"other.example/gpu": {"GPU-of-someone"}}).states() == {"served": 4}


# --- the end of a resource


@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
def test_a_resource_ends_unhealthy_then_empty_then_gone() -> None:
    lists = Lists(FOUR).to(RENAMED)
    assert lists.states(GPU) == {"retiring": 4}
    assert lists.listing.ended == ()
    assert lists.after(10.5).listing.ended == (GPU,)
    assert lists.listing.lists[GPU] == {}
    assert lists.after(60).listing.ended == (GPU,)
    lists.listing = lists.listing.without(GPU)
    assert list(lists.listing.lists) == [SHARED]
    assert lists.after(1).listing.ended == ()


def test_a_resource_that_comes_back_before_it_was_stopped_goes_on() -> None:
    lists = Lists(FOUR).to(RENAMED).after(11).to(FOUR)
    assert lists.listing.ended == ()
    assert lists.after(2).states(GPU) == {"served": 4}


# --- health


@pytest.mark.fault("F12")
@pytest.mark.obligation("P6")
def test_of_8_gpus_with_4_shares_a_broken_one_takes_its_shares_alone_and_heals() -> None:
    lists = Lists(FOUR, make_hardware(8), held={GPU: shares(gpu_uuid(5), 0, 1)}, sick={gpu_uuid(5): "XID 79: lost"})
    assert [lists.states(gpu=gpu_uuid(n)) for n in range(8)] == [
        Counter(sick=4) if n == 5 else Counter(served=4) for n in range(8)
    ]
    assert rows(lists.listing) == (Row(GPU, 32, 28, 0, 0, 28),)
    assert standing(lists.listing, GPU, f"{gpu_uuid(5)}::0").reason == "XID 79: lost"
    lists.sick = {}
    assert lists.after(30).states(gpu=gpu_uuid(5)) == {"served": 4}


@pytest.mark.obligation("P6")
def test_a_broken_mig_device_takes_its_own_shares_and_one_broken_share_itself_only() -> None:
    mixed = make_config().mig("mixed").shared({SMALL: 2})
    broken = {mig_uuid(0, 0): "XID 94", f"{mig_uuid(0, 1)}::1": "switched off"}
    lists = Lists(mixed, make_hardware(1).mig(0, "1g.10gb", "1g.10gb"), sick=broken)
    got = {one: entry.healthy for one, entry in lists.listing.lists[SMALL].items()}
    assert got == {
        f"{mig_uuid(0, 0)}::0": False,
        f"{mig_uuid(0, 0)}::1": False,
        f"{mig_uuid(0, 1)}::0": True,
        f"{mig_uuid(0, 1)}::1": False,
    }


@pytest.mark.fault("F12")
@pytest.mark.fault("F17")
@pytest.mark.obligation("P6")
def test_ids_of_a_gpu_that_is_gone_stay_listed_while_held_and_allocate_refuses_them() -> None:
    lists = Lists(FOUR, held={GPU: shares(G1, 2)})
    lists.hardware = make_hardware(1)
    assert lists.after(0).after(0).states(gpu=G1) == {"sick": 4}
    assert standing(lists.listing, GPU, f"{G1}::2").reason == f"{G1} is no longer there"
    assert list(lists.after(60).listing.lists[GPU]) == [*(f"{G0}::{n}" for n in range(4)), f"{G1}::2"]
    lists.held = {}
    assert lists.after(1).states(gpu=G1) == {}


@pytest.mark.obligation("P8")
def test_a_gpu_that_comes_back_has_its_ids_again() -> None:
    lists = Lists(FOUR, held={GPU: shares(G1, 2)})
    lists.hardware = make_hardware(1)
    lists.after(60)
    lists.hardware = make_hardware(2)
    assert lists.after(1).after(1).states(gpu=G1) == {"served": 4}


def test_a_withheld_id_may_be_sick_as_well() -> None:
    lists = Lists(WHOLE, held={GPU: {G0}}).to(FOUR)
    lists.sick = {G0: "XID 79"}
    lists.after(5)
    assert lists.states() == {"sick": 5}
    assert rows(lists.listing) == (Row(GPU, devices=10, healthy=4, withheld=4, retiring=2, predicted=4),)


# --- what Allocate and the status see


@pytest.mark.fault("F24")
def test_a_retiring_id_stands_by_its_old_config_and_a_withheld_one_by_the_new() -> None:
    lists = Lists(WHOLE, held={GPU: {G0}}).to(FOUR.lists("volume-mounts"))
    old, new = standing(lists.listing, GPU, G0), standing(lists.listing, GPU, f"{G0}::0")
    assert old.entry is not None
    assert new.entry is not None
    assert (old.state, old.entry.config.name, old.entry.resource.replicas) == ("retiring", "whole", 1)
    assert (new.state, new.entry.config.name, new.entry.resource.replicas) == ("withheld", "four", 4)


@pytest.mark.fault("F24")
def test_an_id_on_no_list_and_a_resource_without_a_list_are_unknown() -> None:
    lists = Lists(FOUR)
    assert standing(lists.listing, GPU, f"{G0}::4") == Standing("unknown")
    assert standing(lists.listing, SMALL, f"{G0}::0") == Standing("unknown")


def test_counts_tell_served_withheld_and_retiring_apart() -> None:
    lists = Lists(WHOLE, held={GPU: {G0}}).to(FOUR).after(5)
    assert rows(lists.listing) == (Row(GPU, devices=10, healthy=4, withheld=4, retiring=2, predicted=4),)
    assert rows(lists.after(6).listing) == (Row(GPU, devices=9, healthy=4, withheld=4, retiring=1, predicted=4),)


def test_of_a_resource_that_ends_nothing_is_predicted() -> None:
    old, new = rows(Lists(FOUR).to(RENAMED).after(2).listing)
    assert (old, new) == (Row(GPU, 8, 0, 0, 8, 0), Row(SHARED, 8, 8, 0, 0, 8))


def test_deadlines_are_when_ids_may_have_settled_and_when_they_may_leave() -> None:
    lists = Lists(WHOLE).to(FOUR)
    assert next_deadline(lists.listing, lists.now) == 1001.0
    assert next_deadline(lists.listing, 1001.0) == 1010.5
    assert next_deadline(lists.listing, 1010.5) is None
    assert next_deadline(lists.listing, 1000.0, linger=1.0, settle=0.1) == 1000.1


def test_driven_by_its_deadlines_alone_a_change_is_done_after_10_seconds() -> None:
    lists = Lists(WHOLE).to(FOUR)
    while (deadline := next_deadline(lists.listing, lists.now)) is not None:
        lists.after(deadline - lists.now)
    assert lists.now == 1010.5
    assert lists.states() == {"served": 4}


# --- size


def wanted(config: ConfigBuilder, hardware: HardwareBuilder) -> tuple[Resource, ...]:
    return resources_of(config.build(), hardware.build())


@pytest.mark.obligation("P7")
def test_retiring_ids_count_for_the_length_of_a_list() -> None:
    lists = Lists(make_config().shared(20_000))
    check_fit(lists.listing, wanted(make_config().shared(25_000), make_hardware(2)))
    swapped = make_hardware(2).change(0, uuid="GPU-new-1").change(1, uuid="GPU-new-2")
    with pytest.raises(InvalidInput, match=r"^nvidia.com/gpu: 90000 devices make a list of"):
        check_fit(lists.listing, wanted(make_config().shared(25_000), swapped))
    check_fit(lists.listing, wanted(make_config().shared(25_000, renameByDefault=True), swapped))


# --- restarts, and names of placements


def test_after_a_restart_of_the_kubelet_what_retires_waits_anew() -> None:
    lists = Lists(FOUR).to(make_config("two").shared(2)).after(10)
    before = lists.listing
    lists.listing = linger_anew(lists.listing, lists.now)
    assert lists.listing.lists[GPU][f"{G0}::0"] is before.lists[GPU][f"{G0}::0"]
    assert len(lists.after(10).listing.lists[GPU]) == 8
    assert len(lists.after(1).listing.lists[GPU]) == 4


def test_names_of_one_placement_do_not_wait_for_one_another_over_a_gpu_and_for_its_sole_owner_they_do() -> None:
    one, other = (f"place.gpusharing.io/{it}.p.team" for it in ("one", "other"))
    config = WHOLE.build()
    options: dict[str, Any] = {"sick": {}, "calls_open": frozenset()}

    def names(*resources: tuple[str, str]) -> list[Resource]:
        return [Resource(name, (Device(id_, G0, G0),)) for name, id_ in resources]

    beside = advance(Listing(), names((one, f"{G0}::aaaaaaaa")), config, held={}, now=0.0, **options)
    held = {one: frozenset({f"{G0}::aaaaaaaa"})}
    after = advance(beside, names((other, f"{G0}::bbbbbbbb")), config, held=held, now=1.0, **options)
    assert standing(after, one, f"{G0}::aaaaaaaa").state == "retiring"
    assert standing(after, other, f"{G0}::bbbbbbbb").state == "served"
    alone = advance(beside, names((other, G0)), config, held=held, now=1.0, **options)
    assert standing(alone, other, G0).state == "withheld"
