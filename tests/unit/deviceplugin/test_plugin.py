"""What a node serves, lists and reports, over time: the plugin between doubles of its seams, on a fake clock."""

import asyncio

import pytest
from tests.support.hardware import gpu_uuid, make_hardware, mig_uuid
from tests.support.pluginparts import GPU, SHARED, Node, mig, shared

from gpusharing.core.kubeletchoice import Offer
from gpusharing.core.options import Given, Options
from gpusharing.deviceplugin.decider import DecisionTimes
from gpusharing.deviceplugin.plugin import CONFIG_NOT_KNOWN, GPUS_NOT_SEEN, PluginTimes
from gpusharing.deviceplugin.saving import State

pytestmark = pytest.mark.looptime

G0, G1 = gpu_uuid(0), gpu_uuid(1)
TWO = make_hardware(2).build()


def shares(gpu: str, *numbers: int) -> list[str]:
    return [f"{gpu}::{number}" for number in numbers]


async def served_before(text: str = shared(4)) -> State:
    """What a former process left that served this config."""
    async with Node().running() as node:
        node.desire(text, "before")
        await asyncio.sleep(2)
    return node.saved[-1]


# --- how scattered the node is


def freed(node: Node) -> int | None:
    """How many whole GPUs the last report says are free."""
    return node.observed.fragmentation.free_gpus if node.observed.fragmentation else None


async def test_other_pods_are_looked_at_every_five_seconds_and_other_lists_at_once() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await node.until(lambda: bool(node.reports) and freed(node) == 2)
        node.usage.look_within(0)
        node.hold("a", f"{G0}::0")
        await node.until(lambda: freed(node) == 1)
        began = node.now()
        node.hold("b", f"{G1}::0")
        node.usage.look_within(0)
        await node.until(lambda: len(node.observed.pods) == 2)
        assert (freed(node), node.now() - began < 4) == (1, True)
        await node.until(lambda: freed(node) == 0)
        assert 4 <= node.now() - began <= 6.1
        node.hardware.sick = {G0: "XID 79"}
        node.plugin.wake()
        await asyncio.sleep(0.01)
        assert node.observed.fragmentation
        assert [room.free for room in node.observed.fragmentation.resources] == [3]


async def test_it_is_not_known_while_what_pods_hold_is_not() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await node.until(lambda: bool(node.reports) and freed(node) == 2)
        node.readable = False
        await node.until(lambda: freed(node) is None)
        node.readable = True
        await node.until(lambda: freed(node) == 2)


async def test_a_choice_of_the_kubelets_that_was_not_the_preferred_one_is_in_the_report() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(0.01)
        view = node.servers[GPU][-1].view
        view.judge(Offer([f"{G0}::0", f"{G1}::0"], (), 1, [f"{G1}::0"]), [f"{G0}::0"])
        node.plugin.wake()
        await asyncio.sleep(0.01)
        assert f"{G0}::0 where the plugin preferred {G1}::0" in node.observed.overruled


# --- configs


async def test_a_config_is_served_as_soon_as_it_is_known() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(0.01)
        assert node.healthy() == 8
        assert list(node.listed() or {}) == [*shares(G0, 0, 1, 2, 3), *shares(G1, 0, 1, 2, 3)]


async def test_without_a_config_flags_and_environment_count() -> None:
    async with Node().running() as node:
        node.desire(None, "")
        await asyncio.sleep(0.01)
        assert list(node.listed() or {}) == [G0, G1]


@pytest.mark.fault("F18")
@pytest.mark.parametrize(
    "bad",
    [
        "",
        "version: v2\n",
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 0}]}}\n",
        "version: v1\nsharing: [",
        mig("single"),  # the GPUs are not in MIG mode, which is a state and not a text
    ],
    ids=["empty", "wrong version", "no version, no replicas", "truncated", "invalid MIG state"],
)
async def test_after_a_bad_edit_the_last_good_config_stays_served_and_the_next_good_one_is_taken(bad: str) -> None:
    inventory = make_hardware(2).mig(0, "1g.10gb", "2g.20gb").build() if bad == mig("single") else TWO
    async with Node(inventory).running() as node:
        node.desire(shared(4), "good")
        await asyncio.sleep(40)
        before = node.listed()
        node.desire(bad, "bad")
        await asyncio.sleep(40)
        if bad:
            assert node.listed() == before
            assert node.problems == ["InvalidConfig"]
            assert (node.observed.desired, node.observed.last_good) == ("bad", "good")
            assert node.observed.config_error
        node.desire(shared(2), "better")
        await asyncio.sleep(60)
        assert node.healthy() == len(node.listed() or {}) > 0
        assert node.problems == []
        assert node.observed.served is not None
        assert node.observed.served.name == "better"


@pytest.mark.fault("F18")
async def test_a_bad_config_with_no_good_one_before_registers_nothing_and_says_so() -> None:
    async with Node().running() as node:
        node.desire("version: v2\n", "bad")
        await asyncio.sleep(100)
        assert node.lists == {}
        assert node.problems == ["InvalidConfig"]
        assert node.observed.served is None


@pytest.mark.fault("F20")
async def test_of_a_missing_config_the_last_good_one_stays_and_the_report_says_what_is_missing() -> None:
    async with Node().running() as node:
        node.desire(shared(4), "good")
        await asyncio.sleep(40)
        node.desire(None, "other", missing="ConfigMap a/b has no key other")
        await asyncio.sleep(40)
        assert node.healthy() == 8
        assert node.problems == ["ConfigMissing"]
        node.desire(shared(2), "other")
        await asyncio.sleep(1)
        assert node.healthy() == 4


@pytest.mark.fault("F20")
async def test_a_config_that_is_missing_from_the_start_registers_nothing() -> None:
    async with Node().running() as node:
        node.desire(None, "c", missing="ConfigMap a/b is not there")
        await asyncio.sleep(40)
        assert node.lists == {}
        assert node.problems == ["ConfigMissing"]


@pytest.mark.fault("F18")
async def test_what_is_served_stays_when_the_hardware_no_longer_fits_and_devices_that_are_gone_are_not_offered() -> (
    None
):
    good = make_hardware(2).mig(0, "1g.10gb", "1g.10gb").mig(1, "1g.10gb")
    async with Node(good.build()).running() as node:
        node.desire(mig("single"))
        await asyncio.sleep(40)
        assert node.healthy() == 3
        node.see(good.mig(1, "2g.20gb", uuids=("MIG-other",)).build())  # not all alike: NVIDIA's plugin exits
        await asyncio.sleep(5)
        assert node.listed() == {mig_uuid(0, 0): True, mig_uuid(0, 1): True, mig_uuid(1, 0): False}
        assert node.problems[0] == "InvalidConfig"
        node.see(good.build())
        await asyncio.sleep(5)
        assert node.healthy() == 3
        assert node.problems == []


async def test_a_config_that_the_host_refuses_is_tried_again_until_it_is_mended() -> None:
    async with Node().running() as node:
        node.host.refuse = "there is no CDI spec"
        node.desire(shared(4))
        await asyncio.sleep(25)
        assert node.lists == {}
        assert node.observed.config_error.startswith("there is no CDI spec")
        assert node.host.asked == 3  # at once, and every 10 s
        node.host.refuse = ""
        await asyncio.sleep(10)
        assert node.healthy() == 8
        asked = node.host.asked
        await asyncio.sleep(100)
        assert node.host.asked == asked


async def test_device_nodes_that_appear_later_are_found() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(5)
        asked = node.host.asked
        node.host.there |= {"/dev/nvidia-uvm"}
        await asyncio.sleep(2)
        assert node.host.asked == asked + 1


@pytest.mark.fault("F12")
async def test_a_host_that_takes_long_to_look_at_delays_no_list() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(40)
        node.host.takes = 20.0
        node.desire(shared(3))
        await asyncio.sleep(1)
        node.hardware.sick = {G0: "XID 79"}
        node.plugin.wake()
        await asyncio.sleep(0.1)
        assert node.healthy() == 4


@pytest.mark.fault("F21")
async def test_a_label_that_flaps_a_thousand_times_changes_the_lists_every_30_s_and_the_last_value_wins() -> None:
    async with Node().running() as node:
        node.desire(shared(2), "two")
        await asyncio.sleep(100)
        changes = len(node.lists[GPU])
        for n in range(1000):
            node.desire(*((shared(4), "four") if n % 2 == 0 else (shared(3), "three")))
            await asyncio.sleep(0.06)
        node.desire(shared(5), "five")
        served = [len(ids) for _, ids in node.lists[GPU][changes:]]
        await asyncio.sleep(60)
        assert len(set(served)) <= 3
        assert len([one for one in node.lists[GPU][changes:] if one[0] < 160]) <= 6
        assert node.healthy() == 10


# --- restarts, and hardware that does not answer


@pytest.mark.fault("F09")
@pytest.mark.obligation("P8")
async def test_restarted_without_nvml_the_old_ids_are_listed_unhealthy_and_healthy_once_it_answers() -> None:
    restored = await served_before()
    node = Node(restored=restored)
    node.hardware.inventory = None
    async with node.running():
        await asyncio.sleep(0.01)
        assert node.plugin.waiting == GPUS_NOT_SEEN
        assert set((node.listed() or {}).values()) == {False}
        assert len(node.listed() or {}) == 8
        node.hardware.problem = "NVML: driver not loaded"
        node.plugin.wake()
        await asyncio.sleep(600)
        assert node.healthy() == 0
        assert node.problems[0] == "NvmlUnavailable"
        assert node.observed.served is not None
        assert node.observed.served.name == "before"
        node.hardware.problem = ""
        node.see(TWO)
        await asyncio.sleep(0.1)
        assert list(node.listed() or {}) == [*shares(G0, 0, 1, 2, 3), *shares(G1, 0, 1, 2, 3)]
        assert node.healthy() == 8


@pytest.mark.fault("F29")
async def test_restarted_without_the_api_server_the_old_config_goes_on() -> None:
    restored = await served_before()
    async with Node(restored=restored).running() as node:
        await asyncio.sleep(0.1)
        assert node.healthy() == 8
        assert node.plugin.waiting == ""
        await asyncio.sleep(600)
        assert node.healthy() == 8
        assert node.saved == []


@pytest.mark.fault("F18")
async def test_restarted_with_a_bad_config_the_one_before_goes_on() -> None:
    restored = await served_before()
    async with Node(restored=restored).running() as node:
        node.desire("version: v2\n", "bad")
        await asyncio.sleep(1)
        assert node.healthy() == 8
        assert node.problems == ["InvalidConfig"]


@pytest.mark.fault("F09")
@pytest.mark.parametrize("fails", [True, False])
async def test_without_nvml_and_without_a_past_nothing_is_registered_and_failing_on_it_is_a_choice(fails: bool) -> None:
    node = Node(options=Options({"fail_on_init_error": Given(fails, "--fail-on-init-error")}))
    node.hardware.inventory, node.hardware.problem = None, "NVML: driver not loaded"
    async with node.running():
        node.desire(shared(4))
        await asyncio.sleep(600)
        assert node.lists == {}
        assert node.problems == ["NvmlUnavailable"]
        [problem] = [each for each in node.all_problems() if each.reason.value == "NvmlUnavailable"]
        assert problem.harmless is not fails
        node.hardware.problem = ""
        node.see(TWO)
        await asyncio.sleep(0.1)
        assert node.healthy() == 8


async def test_a_bad_config_is_reported_although_the_gpus_cannot_be_seen() -> None:
    node = Node()
    node.hardware.inventory, node.hardware.problem = None, "NVML: driver not loaded"
    async with node.running():
        node.desire("version: v2\n", "bad")
        await asyncio.sleep(1)
        assert node.problems == ["NvmlUnavailable", "InvalidConfig"]


async def test_nothing_is_reported_before_gpus_and_config_are_known() -> None:
    node = Node()
    node.hardware.inventory = None
    async with node.running():
        await asyncio.sleep(5)
        assert node.plugin.waiting == GPUS_NOT_SEEN
        node.see(TWO)
        await asyncio.sleep(5)
        assert node.plugin.waiting == CONFIG_NOT_KNOWN
        assert node.reports == []


@pytest.mark.fault("F12")
async def test_a_lost_gpu_takes_its_shares_away_and_no_others_and_they_come_back() -> None:
    async with Node(make_hardware(8).build()).running() as node:
        node.desire(shared(4))
        await asyncio.sleep(1)
        node.hardware.sick = {gpu_uuid(3): "XID 79"}
        node.plugin.wake()
        await asyncio.sleep(0.1)
        assert node.healthy() == 28
        assert len(node.listed() or {}) == 32
        assert node.problems == ["GpuUnhealthy"]
        assert "XID 79" in node.all_problems()[0].sentence
        node.hardware.sick = {}
        node.plugin.wake()
        await asyncio.sleep(0.1)
        assert node.healthy() == 32


@pytest.mark.fault("F17")
async def test_a_swapped_gpu_is_listed_and_the_old_one_stays_unhealthy_while_a_pod_holds_it() -> None:
    async with Node().running() as node:
        node.desire(None, "")
        node.hold("web", G1)
        await asyncio.sleep(20)
        node.see(make_hardware(2).change(1, uuid="GPU-new").build())
        await asyncio.sleep(60)
        assert node.listed() == {G0: True, "GPU-new": True, G1: False}
        node.end("web")
        await asyncio.sleep(30)
        assert node.listed() == {G0: True, "GPU-new": True}


# --- ids that come and go


@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
async def test_fewer_shares_than_are_in_use_retire_until_they_are_free_and_10_s_at_least() -> None:
    async with Node(make_hardware(1).build()).running() as node:
        node.desire(shared(8))
        for n in (0, 1, 4, 5, 6, 7):
            node.hold(f"p{n}", f"{G0}::{n}")
        await asyncio.sleep(40)
        node.desire(shared(4))
        await asyncio.sleep(1)
        assert list((node.listed() or {}).values()) == [True] * 4 + [False] * 4
        await asyncio.sleep(8)
        assert len(node.listed() or {}) == 8
        for n, left in ((4, 7), (7, 6), (6, 5), (5, 4)):
            node.end(f"p{n}")
            await asyncio.sleep(20)
            assert len(node.listed() or {}) == left
        assert node.problems == []


@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
async def test_a_gpu_that_a_pod_has_as_a_whole_is_not_given_out_as_shares_as_well() -> None:
    async with Node().running() as node:
        node.desire(None, "")
        node.hold("web", G0)
        await asyncio.sleep(40)
        node.desire(shared(4))
        await asyncio.sleep(60)
        listed = node.listed() or {}
        assert [device for device, well in listed.items() if well] == shares(G1, 0, 1, 2, 3)
        assert node.problems == ["DevicesRetiring"]
        node.end("web")
        await asyncio.sleep(30)
        assert list((node.listed() or {}).values()) == [True] * 8


async def test_idle_gpus_become_shares_within_seconds_not_with_the_next_poll() -> None:
    async with Node().running() as node:
        node.desire(None, "")
        await asyncio.sleep(40)
        node.desire(shared(4))
        await asyncio.sleep(4)
        assert [device for device, well in (node.listed() or {}).items() if well] == [
            *shares(G0, 0, 1, 2, 3),
            *shares(G1, 0, 1, 2, 3),
        ]


@pytest.mark.fault("F23")
async def test_while_nobody_can_say_who_holds_what_no_id_leaves_the_list() -> None:
    async with Node(make_hardware(1).build()).running() as node:
        node.desire(shared(8))
        await asyncio.sleep(40)
        node.readable = False
        node.desire(shared(4))
        await asyncio.sleep(600)
        assert len(node.listed() or {}) == 8
        assert node.healthy() == 4
        assert node.observed.confirmed is None
        assert node.observed.pod_resources_error == "no socket"
        node.readable = True
        await asyncio.sleep(30)
        assert len(node.listed() or {}) == 4


async def test_no_id_leaves_while_a_call_of_the_kubelet_is_open() -> None:
    async with Node(make_hardware(1).build()).running() as node:
        node.desire(shared(8))
        await asyncio.sleep(40)
        view = node.servers[GPU][-1].view
        node.desire(shared(4))
        await asyncio.sleep(5)
        view.opened()
        await asyncio.sleep(60)
        assert len(node.listed() or {}) == 8
        view.closed()
        await asyncio.sleep(15)
        assert len(node.listed() or {}) == 4


RENAMED = shared(4).replace("timeSlicing: {", "timeSlicing: {renameByDefault: true, ")


async def test_a_renamed_resource_ends_on_an_empty_list_and_then_its_server_stops() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(40)
        node.desire(RENAMED)
        await asyncio.sleep(1)
        assert node.healthy(SHARED) == 0  # withheld until nobody can have the old ones
        assert node.healthy(GPU) == 0
        await asyncio.sleep(60)
        assert node.lists[GPU][-1][1] == {}
        assert node.listed(GPU) is None
        assert node.healthy(SHARED) == 8
        assert [status.resource for status in node.plugin.servers] == [SHARED]


@pytest.mark.parametrize("stop_takes", [0.0, 2.0])
@pytest.mark.parametrize("after", [0.1, 0.9, 1.1, 2.5])
async def test_a_resource_that_is_wanted_again_while_it_ends_is_served_by_one_server_at_a_time(
    after: float, stop_takes: float
) -> None:
    async with Node(times=PluginTimes(decisions=DecisionTimes(spacing=0.0, coalesce=0.0))).running() as node:
        node.desire(shared(4))
        await asyncio.sleep(40)
        node.servers[GPU][0].stop_takes = stop_takes
        node.desire(RENAMED)
        await node.until(lambda: node.lists[GPU][-1][1] == {})
        await asyncio.sleep(after)
        node.desire(shared(2), "again")
        await asyncio.sleep(100)
        assert node.healthy(GPU) == 4
        assert node.listed(SHARED) is None
        assert len([server for server in node.servers[GPU] if server.running]) == 1


async def test_shares_by_mps_are_listed_once_their_daemon_is_ready_and_whole_gpus_stop_before() -> None:
    mps = shared(4).replace("timeSlicing", "mps") + "flags: {mpsRoot: /run/nvidia/mps}\n"
    async with Node().running() as node:
        node.desire(None, "")
        await asyncio.sleep(40)
        node.desire(mps)
        await asyncio.sleep(60)
        assert node.healthy() == 0
        node.host.daemons = {GPU}
        await asyncio.sleep(5)
        assert node.healthy() == 8
        node.host.daemons = set()
        await asyncio.sleep(5)
        assert node.healthy() == 8


# --- reports and the checkpoint


async def test_the_kubelets_word_counts_only_if_it_is_about_the_list_of_now() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(0.2)
        assert node.observed.confirmed is None
        await asyncio.sleep(1)
        assert node.observed.confirmed is not None
        assert len(node.observed.confirmed[GPU]) == 8
        node.hardware.sick = {G0: "XID 79"}
        node.plugin.wake()
        await asyncio.sleep(0.1)
        assert node.observed.confirmed is None
        await asyncio.sleep(2)
        assert node.observed.confirmed is not None
        assert len(node.observed.confirmed[GPU]) == 4
        assert node.problems == ["GpuUnhealthy"]


async def test_a_resource_that_the_kubelet_does_not_take_is_reported_and_so_is_that_it_does() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(5)
        node.servers[GPU][0].problem = "the kubelet refused to register"
        await asyncio.sleep(2)
        assert "NotRegistered" in node.problems
        node.servers[GPU][0].problem = ""
        await asyncio.sleep(2)
        assert node.problems == []


async def test_while_nothing_happens_nothing_is_reported_or_saved() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(60)
        reports, saved = len(node.reports), len(node.saved)
        await asyncio.sleep(600)
        assert (len(node.reports), len(node.saved)) == (reports, saved)


async def test_the_kubelet_hears_of_a_change_before_the_disk_does() -> None:
    async with Node().running() as node:
        node.desire(shared(4))
        await asyncio.sleep(0.04)
        assert node.healthy() == 8
        assert node.saved == []
        await asyncio.sleep(0.1)
        assert node.saved[-1].accepted is not None


@pytest.mark.fault("F25")
async def test_a_full_disk_changes_nothing_and_is_tried_again() -> None:
    async with Node().running() as node:
        node.disk_is_full = True
        node.desire(shared(4))
        await asyncio.sleep(60)
        assert node.healthy() == 8
        node.disk_is_full = False
        await asyncio.sleep(15)
        assert len(node.saved) == 1


async def test_what_was_not_saved_yet_is_saved_at_the_end() -> None:
    node = Node()
    async with node.running():
        node.desire(shared(4))
        await asyncio.sleep(0.01)
    assert node.saved[-1].accepted is not None
    assert len(node.saved[-1].listing.lists[GPU]) == 8


@pytest.mark.obligation("P11")
async def test_at_the_end_every_server_is_stopped_also_one_that_was_ending() -> None:
    node = Node()
    async with node.running():
        node.desire(shared(4))
        await asyncio.sleep(40)
        node.servers[GPU][0].stop_takes = 3.0
        node.desire(RENAMED)
        await node.until(lambda: node.lists[GPU][-1][1] == {})
        await asyncio.sleep(1.5)
        assert node.servers[GPU][0].running
    assert not any(server.running for servers in node.servers.values() for server in servers)
