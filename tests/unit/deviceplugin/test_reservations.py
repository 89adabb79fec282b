"""What a node lists, answers and reports of reservations, over time: the plugin between doubles, on a fake clock."""

import asyncio
from collections.abc import Mapping

import pytest
from tests.support.hardware import gpu_uuid, make_hardware
from tests.support.pluginparts import GPU, Node, shared

from gpusharing.core.devices import Inventory, Link
from gpusharing.core.edits import Edits
from gpusharing.core.errors import InvalidInput
from gpusharing.core.ledger import Ledger
from gpusharing.core.reservations import Reservation, Wanted, reserved_id
from gpusharing.deviceplugin.ledger import LedgerKeeper
from gpusharing.deviceplugin.plugin import RESERVATIONS_NOT_KNOWN
from gpusharing.deviceplugin.saving import State
from gpusharing.discovery.base import DiscoveryError

pytestmark = pytest.mark.looptime

G0, G1, G2, G3 = (gpu_uuid(n) for n in range(4))
JUDGE, POLICY, EMBED = (f"place.gpusharing.io/{it}.rl-eval.team-a" for it in ("judge", "policy", "embed"))
P01 = (Reservation(JUDGE, JUDGE, (G0,)), Reservation(POLICY, POLICY, (G1, G2)))
FOUR = make_hardware(4).build()


class Disk:
    """The ledger's file."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = Ledger()
        self.is_full = False
        self.writes = 0

    def save(self, ledger: Ledger) -> str:
        if self.is_full:
            return "no space left"
        self.writes += 1
        self.ledger = ledger
        return ""

    def keeper(self) -> LedgerKeeper:
        return LedgerKeeper(self.save, self.ledger)


def node_with(disk: Disk, *, restored: State | None = None) -> Node:
    return Node(FOUR, ledger=disk.keeper(), restored=restored)


async def reserved(node: Node, *reservations: Reservation, generation: int = 2) -> None:
    """The spec says so; wait until it is followed."""
    node.plugin.reserve(Wanted(generation, reservations))
    await asyncio.sleep(20)


def claims(disk: Disk) -> dict[str, str]:
    """What the file says of each GPU."""
    return {gpu: claim.state for gpu, claim in disk.ledger.claims.items()} if disk.ledger else {}


def states(node: Node) -> dict[str, str]:
    return {row.resource: row.state for row in node.observed.reservations.rows}


def shown(node: Node) -> Mapping[str, list[str]]:
    """Resource → ids that pods could get."""
    listed = {name: node.listed(name) or {} for name in node.lists}
    return {name: [id_ for id_, well in ids.items() if well] for name, ids in listed.items() if any(ids.values())}


async def allocated(node: Node, resource: str, *ids: str) -> Edits:
    return await node.servers[resource][-1].view.allocate(ids)


# --- E01, E02: reserved


async def test_idle_gpus_leave_the_shared_resource_and_then_are_listed_under_their_names() -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(None, "")
        await asyncio.sleep(15)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(0.01)
        assert shown(node) == {GPU: [G3]}
        assert node.listed() == {G3: True, G0: False, G1: False, G2: False}
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Withdrawing"}
        assert node.problems == []
        await asyncio.sleep(10)
        assert list(node.lists) == [GPU]
        await asyncio.sleep(10)
        assert shown(node) == {GPU: [G3], JUDGE: [G0], POLICY: [G1, G2]}
        assert node.listed() == {G3: True}
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}
        assert node.observed.reservations.generation == 2
        assert claims(disk) == {G0: "reserved", G1: "reserved", G2: "reserved"}
        assert node.problems == []


async def test_a_container_gets_exactly_the_uuids_of_its_name_and_is_counted_until_it_ends() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, *P01)
        edits = await allocated(node, POLICY, G1, G2)
        assert dict(edits.envs) == {
            "NVIDIA_VISIBLE_DEVICES": f"{G1},{G2}",
            "GPU_PLACEMENT_COUNT": "2",
            "GPU_PLACEMENT_INDEXES": "1,2",
        }
        node.hold("policy-0", G1, G2, resource=POLICY)
        await asyncio.sleep(15)
        assert {row.resource: row.in_use for row in node.observed.reservations.rows} == {JUDGE: 0, POLICY: 2}
        assert node.observed.fragmentation is not None
        assert node.observed.fragmentation.free_gpus == 1  # a reserved GPU is none that others could have
        node.end("policy-0")
        await asyncio.sleep(15)
        assert {row.resource: row.in_use for row in node.observed.reservations.rows} == {JUDGE: 0, POLICY: 0}


async def test_names_of_one_placement_may_be_over_one_gpu_and_come_and_go_without_draining_it() -> None:
    judge, embed = Reservation(JUDGE, "team-a/rl-eval", (G0,)), Reservation(EMBED, "team-a/rl-eval", (G0, G1))
    async with node_with(Disk()).running() as node:
        node.desire(shared(4))
        await reserved(node, judge)
        [judge_id] = shown(node)[JUDGE]
        assert judge_id == reserved_id(G0, JUDGE, "team-a/rl-eval")
        assert dict((await allocated(node, JUDGE, judge_id)).envs)["NVIDIA_VISIBLE_DEVICES"] == G0
        node.hold("judge-0", judge_id, resource=JUDGE)
        await reserved(node, judge, embed, generation=3)
        assert shown(node)[JUDGE] == [judge_id]
        assert states(node) == {JUDGE: "Active", EMBED: "Active"}
        await reserved(node, embed, generation=4)
        assert states(node) == {JUDGE: "Releasing", EMBED: "Active"}
        assert node.listed(JUDGE) == {judge_id: False}
        assert len(shown(node)[EMBED]) == 2
        node.end("judge-0")
        await asyncio.sleep(30)
        assert states(node) == {EMBED: "Active"}
        assert node.listed(JUDGE) is None


# --- E03, E04: conflicts


async def test_a_gpu_that_a_pod_took_first_gives_all_gpus_of_the_entry_back_until_another_generation() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await asyncio.sleep(15)
        await allocated(node, GPU, G1)
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(0.01)
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Conflict"}
        [policy] = [row for row in node.observed.reservations.rows if row.resource == POLICY]
        assert (policy.taken, policy.gpus) == (G1, [G1, G2])
        await asyncio.sleep(20)  # the pod failed for another reason: nobody has the GPU any more
        assert shown(node) == {GPU: [G1, G2, G3], JUDGE: [G0]}
        assert states(node) == {JUDGE: "Active", POLICY: "Conflict"}
        await reserved(node, *P01, generation=3)
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}


async def test_a_holder_that_shows_up_while_a_gpu_is_withdrawn_gives_it_back_at_once() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await asyncio.sleep(15)
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(5)
        node.hold("early", G2)
        await node.until(lambda: states(node)[POLICY] == "Conflict")
        await asyncio.sleep(0.1)
        assert shown(node) == {GPU: [G1, G2, G3]}
        assert states(node)[JUDGE] == "Withdrawing"


async def test_a_gpu_of_an_init_container_that_nobody_shows_is_not_reserved_before_its_pod_is_gone() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await asyncio.sleep(15)
        await allocated(node, GPU, G1)
        node.idle_pods = {"team/init"}
        await asyncio.sleep(30)
        await reserved(node, P01[1])
        assert states(node) == {POLICY: "Conflict"}
        node.idle_pods = {"team/another"}
        await asyncio.sleep(15)
        await reserved(node, P01[1], generation=3)
        assert states(node) == {POLICY: "Active"}


async def test_a_gpu_with_a_process_that_no_pod_accounts_for_is_a_conflict_at_once() -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(None, "")
        await asyncio.sleep(60)
        assert node.driver_asked == []  # nothing is to be reserved
        node.computing, node.driver_takes = {G2}, 1.0
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(0.5)
        assert claims(disk) == {}  # the driver has not answered yet
        await asyncio.sleep(0.6)
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Conflict"}
        [policy] = [row for row in node.observed.reservations.rows if row.resource == POLICY]
        assert policy.taken == G2
        assert all(ids[G1] and ids[G2] for at, ids in node.lists[GPU])
        node.computing = set()
        await asyncio.sleep(3)
        await reserved(node, *P01, generation=3)
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}
        asked = len(node.driver_asked)
        await asyncio.sleep(3600)
        assert len(node.driver_asked) == asked


async def test_a_process_that_shows_up_while_a_gpu_is_withdrawn_gives_it_back_at_once() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await asyncio.sleep(15)
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(5)
        node.computing = {G2}
        await asyncio.sleep(2.1)
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Conflict"}
        assert shown(node) == {GPU: [G1, G2, G3]}


async def test_a_gpu_that_is_released_waits_for_a_process_that_outlives_its_pod() -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, *P01)
        node.computing = {G0, G1}
        await reserved(node, generation=3)
        await asyncio.sleep(60)
        assert claims(disk) == {G0: "releasing", G1: "releasing"}
        assert shown(node) == {GPU: [G2, G3]}
        node.computing = set()
        await asyncio.sleep(5)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}


@pytest.mark.fault("F11")
async def test_a_driver_that_hangs_or_does_not_tell_holds_no_reservation_up() -> None:
    async with node_with(Disk()).running() as node:
        node.driver_takes, node.driver_fails = 5.0, DiscoveryError("no answer for 5 s", kind="hung")
        node.desire(None, "")
        await reserved(node, *P01)
        await asyncio.sleep(10)
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}
        await reserved(node, generation=3)
        await asyncio.sleep(10)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}


async def test_an_allocate_that_comes_late_for_a_withdrawn_gpu_is_refused_and_changes_nothing() -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(shared(4))
        await asyncio.sleep(15)
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(0.01)
        ledger = disk.ledger
        with pytest.raises(InvalidInput, match="cannot be had any more") as refused:
            await allocated(node, GPU, f"{G1}::0")
        assert refused.value.hint
        await asyncio.sleep(2)
        assert disk.ledger == ledger
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Withdrawing"}


@pytest.mark.parametrize("why", ["lost", "in MIG mode", "served by MPS"])
async def test_a_gpu_that_cannot_be_reserved_is_a_conflict(why: str) -> None:
    async with node_with(disk := Disk()).running() as node:
        if why == "served by MPS":
            node.host.daemons = {GPU}
            node.desire(shared(4).replace("timeSlicing", "mps") + "flags: {mpsRoot: /run/nvidia/mps}\n")
        else:
            node.desire(None, "")
            hardware = make_hardware(4)
            node.see((hardware.without(1) if why == "lost" else hardware.mig(1, "1g.10gb")).build())
        await reserved(node, P01[1])
        assert states(node) == {POLICY: "Conflict"}
        assert claims(disk) == {}


async def test_while_nobody_can_say_who_holds_what_nothing_is_reserved_and_nothing_refused() -> None:
    async with node_with(Disk()).running() as node:
        node.readable = False
        node.desire(None, "")
        await reserved(node, *P01)
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Withdrawing"}
        assert shown(node) == {GPU: [G0, G1, G2, G3]}
        node.readable = True
        await asyncio.sleep(40)
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}


# --- E05: restarts of the plugin


async def crashed(disk: Disk) -> State:
    """What a plugin left that had reserved P01, after its pods had started."""
    node = node_with(disk)
    async with node.running():
        node.desire(None, "c")
        await reserved(node, *P01)
        assert len(shown(node)) == 3
    return node.saved[-1]


async def test_restarted_without_the_api_the_first_list_leaves_reserved_gpus_out() -> None:
    restored = await crashed(disk := Disk())
    writes = disk.writes
    async with node_with(disk, restored=restored).running() as node:
        await asyncio.sleep(0.1)
        assert list(node.lists) == [GPU, JUDGE, POLICY]
        assert [lists[0][1] for lists in node.lists.values()] == [{G3: True}, {G0: True}, {G1: True, G2: True}]
        await asyncio.sleep(120)
        assert shown(node) == {GPU: [G3], JUDGE: [G0], POLICY: [G1, G2]}
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}
        assert node.observed.reservations.generation == 2
        assert disk.writes == writes


async def test_restarted_without_gpus_in_sight_reserved_ones_stay_under_their_names() -> None:
    restored = await crashed(disk := Disk())
    node = node_with(disk, restored=restored)
    node.hardware.inventory = None
    async with node.running():
        await asyncio.sleep(0.1)
        assert node.listed(POLICY) == {G1: False, G2: False}
        node.see(FOUR)
        await asyncio.sleep(0.1)
        assert shown(node) == {GPU: [G3], JUDGE: [G0], POLICY: [G1, G2]}


async def test_without_the_checkpoint_names_wait_until_it_is_known_how_to_hand_their_gpus_over() -> None:
    await crashed(disk := Disk())
    async with node_with(disk).running() as node:
        await asyncio.sleep(5)
        assert node.lists == {}
        node.desire(None, "c")
        await asyncio.sleep(0.1)
        assert shown(node) == {GPU: [G3], JUDGE: [G0], POLICY: [G1, G2]}


async def test_with_a_lost_ledger_only_names_that_pods_hold_are_listed_until_the_api_answers() -> None:
    restored = await crashed(disk := Disk())
    disk.ledger = None
    node = node_with(disk, restored=restored)
    node.hold("policy-0", G1, G2, resource=POLICY)
    async with node.running():
        await asyncio.sleep(60)
        assert shown(node) == {POLICY: [G1, G2]}
        assert node.plugin.waiting == RESERVATIONS_NOT_KNOWN
        assert disk.ledger is None
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(0.1)
        assert shown(node) == {GPU: [G3], POLICY: [G1, G2]}
        await asyncio.sleep(30)
        assert shown(node) == {GPU: [G3], POLICY: [G1, G2], JUDGE: [G0]}
        assert claims(disk) == {G0: "reserved", G1: "reserved", G2: "reserved"}


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(1, None), Wanted(1, ())], ids=["no object", "absent", "empty"])
async def test_a_first_start_waits_for_the_api_and_serves_everything_whatever_it_answers(wanted: Wanted) -> None:
    disk = Disk()
    disk.ledger = None
    async with node_with(disk).running() as node:
        node.desire(None, "")
        await asyncio.sleep(5)
        assert node.lists == {}
        node.plugin.reserve(wanted)
        await asyncio.sleep(0.1)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}
        assert disk.ledger is not None  # the next start waits for nobody
        assert node.plugin.waiting == ""


async def test_a_first_start_on_a_full_disk_serves_all_the_same() -> None:
    disk = Disk()
    disk.ledger = None
    disk.is_full = True
    async with node_with(disk).running() as node:
        node.desire(None, "")
        node.plugin.reserve(Wanted())
        await asyncio.sleep(5)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}


async def test_a_step_that_cannot_be_written_down_is_not_made_and_tried_again() -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(None, "")
        await asyncio.sleep(15)
        disk.is_full = True
        node.plugin.reserve(Wanted(2, P01))
        await asyncio.sleep(60)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Withdrawing"}
        assert node.observed.reservations.problem == "no space left"
        disk.is_full = False
        await asyncio.sleep(40)
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}
        assert node.observed.reservations.problem == ""


# --- E06: restarts of the kubelet


async def test_a_kubelet_that_restarts_has_everybody_wait_anew_and_takes_no_reservation_away() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, P01[0])
        node.plugin.reserve(Wanted(3, P01))
        await asyncio.sleep(9)
        for servers in node.servers.values():
            servers[-1].streams += 1
        await asyncio.sleep(9)
        assert node.listed() == {G3: True, G1: False, G2: False}
        assert states(node)[JUDGE] == "Active"
        await asyncio.sleep(9)
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}


async def test_a_kubelet_that_begins_and_knows_of_no_pod_yet_takes_no_gpu_from_anybody() -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, P01[0])
        node.hold("judge-0", G0, resource=JUDGE)
        await reserved(node, generation=3)
        holders, node.pods = node.pods, {}
        for servers in node.servers.values():
            servers[-1].problem = "the kubelet is down"
        node.usage.look_within(0)
        await asyncio.sleep(30)
        node.pods = holders
        for servers in node.servers.values():
            servers[-1].problem, servers[-1].streams = "", servers[-1].streams + 1
        await asyncio.sleep(30)
        assert node.listed(JUDGE) == {G0: False}
        assert claims(disk) == {G0: "releasing"}
        node.end("judge-0")
        await asyncio.sleep(30)
        assert claims(disk) == {}


async def test_while_a_name_has_no_stream_its_reservation_is_not_active() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, *P01)
        node.servers[JUDGE][-1].problem = "no kubelet"
        await asyncio.sleep(2)
        assert states(node) == {JUDGE: "Withdrawing", POLICY: "Active"}
        node.servers[JUDGE][-1].problem = ""
        await asyncio.sleep(2)
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}


# --- E07: preferences


async def test_two_replicas_on_one_node_get_a_linked_pair_each_in_any_order() -> None:
    pairs = {(G0, G1): Link(10, nvlinks=4), (G2, G3): Link(10, nvlinks=4)}
    crossed = {pair: Link(50) for pair in ((G0, G2), (G0, G3), (G1, G2), (G1, G3))}
    disk = Disk()
    async with Node(Inventory(FOUR.gpus, links=pairs | crossed), ledger=disk.keeper()).running() as node:
        node.desire(shared(4))
        await reserved(node, Reservation(POLICY, "team-a/rl-eval", (G0, G1, G2, G3)))
        view, ids = node.servers[POLICY][-1].view, shown(node)[POLICY]
        first = (await view.prefer(ids, (), 2)).ids
        assert {it.partition("::")[0] for it in first} in ({G0, G1}, {G2, G3})
        second = (await view.prefer([it for it in ids if it not in first], (), 2)).ids
        assert {it.partition("::")[0] for it in (*first, *second)} == {G0, G1, G2, G3}
        assert dict((await allocated(node, POLICY, *first)).envs)["GPU_PLACEMENT_COUNT"] == "2"


# --- E09: a GPU breaks


async def test_a_gpu_that_breaks_is_unhealthy_under_its_name_and_no_other_service_notices() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, *P01)
        node.hardware.sick = {G2: "XID 79"}
        node.plugin.wake()
        await asyncio.sleep(3)
        assert shown(node) == {GPU: [G3], JUDGE: [G0], POLICY: [G1]}
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}


@pytest.mark.parametrize("why", ["lost", "in MIG mode", "served by MPS"])
async def test_a_reserved_gpu_that_could_not_be_reserved_any_more_starts_no_pod_and_is_told_until_it_can(
    why: str,
) -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(shared(4))
        await reserved(node, P01[1])
        node.hold("policy-0", G1, resource=POLICY)
        if why == "served by MPS":
            node.desire(shared(4).replace("timeSlicing", "mps") + "flags: {mpsRoot: /run/nvidia/mps}\n", "m")
        else:
            hardware = make_hardware(4)
            node.see((hardware.without(2) if why == "lost" else hardware.mig(2, "1g.10gb")).build())
        await asyncio.sleep(40)
        assert node.listed(POLICY) == {G1: why != "served by MPS", G2: False}
        with pytest.raises(InvalidInput, match="is unhealthy"):
            await allocated(node, POLICY, G2)
        assert states(node) == {POLICY: "Withdrawing"}
        assert claims(disk) == {G1: "reserved", G2: "reserved"}
        assert "GpuUnhealthy" in node.problems
        assert (G2 in node.observed.sick, G0 in node.observed.sick) == (True, False)
        if why == "served by MPS":
            node.desire(shared(4), "t")
        else:
            node.see(FOUR)
        await asyncio.sleep(40)
        assert states(node) == {POLICY: "Active"}
        assert shown(node)[POLICY] == [G1, G2]


async def test_a_gpu_that_could_not_be_reserved_any_more_is_released_as_any_other() -> None:
    async with node_with(disk := Disk()).running() as node:
        node.desire(shared(4))
        await reserved(node, P01[1])
        node.see(make_hardware(4).mig(2, "1g.10gb").build())
        await reserved(node, generation=3)
        await asyncio.sleep(20)
        assert (claims(disk), states(node)) == ({}, {})
        assert node.observed.sick == {}


# --- E11, E13: released


async def test_a_released_gpu_is_shared_once_its_pod_is_gone_and_wanted_again_meanwhile_it_is_there_at_once() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, *P01)
        node.hold("policy-0", G1, G2, resource=POLICY)
        await reserved(node, generation=3)
        assert states(node) == {POLICY: "Releasing"}
        assert node.listed(POLICY) == {G1: False, G2: False}
        assert shown(node) == {GPU: [G0, G3]}
        node.plugin.reserve(Wanted(4, P01[1:]))
        await asyncio.sleep(2)
        assert shown(node) == {GPU: [G0, G3], POLICY: [G1, G2]}
        assert states(node) == {POLICY: "Active"}
        await reserved(node, generation=5)
        node.end("policy-0")
        await asyncio.sleep(30)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}
        assert states(node) == {}
        assert node.lists[POLICY][-1][1] == {}
        assert node.listed(POLICY) is None
        assert node.problems == []


async def test_released_gpus_go_to_the_next_owner_without_being_shared_in_between() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, P01[0])
        await reserved(node, Reservation(EMBED, EMBED, (G0,)), generation=3)
        assert shown(node) == {GPU: [G1, G2, G3], EMBED: [G0]}
        assert all(G0 not in ids or not ids[G0] for at, ids in node.lists[GPU] if at > 5)


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(1, None)], ids=["deleted by hand", "made anew"])
async def test_a_gpunode_that_says_nothing_releases_nothing_and_reserves_nothing(wanted: Wanted) -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, *P01)
        node.plugin.reserve(wanted)
        await asyncio.sleep(60)
        assert shown(node) == {GPU: [G3], JUDGE: [G0], POLICY: [G1, G2]}
        assert states(node) == {JUDGE: "Active", POLICY: "Active"}
        assert node.observed.reservations.generation == wanted.generation


async def test_with_every_gpu_reserved_the_shared_resource_ends_and_comes_back() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, Reservation(POLICY, POLICY, (G0, G1, G2, G3)))
        assert node.listed() is None
        await reserved(node, generation=3)
        await asyncio.sleep(10)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}


# --- E14: names that only the Node still shows


async def test_a_name_that_only_the_node_shows_is_listed_empty_until_it_shows_none() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        node.plugin.see_node({JUDGE: "1", GPU: "4", EMBED: "0"})
        await asyncio.sleep(60)
        assert node.listed(JUDGE) == {}
        assert EMBED not in node.lists
        node.plugin.see_node({JUDGE: "0", GPU: "4", EMBED: "0"})
        await asyncio.sleep(5)
        assert node.listed(JUDGE) is None
        await reserved(node, P01[0])
        assert node.listed(JUDGE) == {G0: True}


async def test_a_released_name_stays_with_an_empty_list_until_the_node_shows_none() -> None:
    async with node_with(Disk()).running() as node:
        node.desire(None, "")
        await reserved(node, P01[0])
        node.plugin.see_node({JUDGE: "1"})
        await reserved(node, generation=3)
        await asyncio.sleep(60)
        assert node.listed(JUDGE) == {}
        assert len(node.servers[JUDGE]) == 1
        assert states(node) == {}
        node.plugin.see_node({JUDGE: "0"})
        await asyncio.sleep(5)
        assert node.listed(JUDGE) is None


async def test_a_plugin_with_a_config_file_alone_reserves_nothing_and_waits_for_nobody() -> None:
    async with Node(FOUR).running() as node:
        node.desire(None, "")
        await asyncio.sleep(0.1)
        assert shown(node) == {GPU: [G0, G1, G2, G3]}
        assert node.observed.reservations.rows == ()


# --- what wakes nobody


async def test_a_spec_or_a_node_that_says_the_same_again_is_nothing_new() -> None:
    keeper = Disk().keeper()
    assert [keeper.want(Wanted(2, P01)) for _ in range(2)] == [True, False]
    assert [keeper.see_node({JUDGE: "1", GPU: count}) for count in ("4", "3")] == [True, False]


async def test_a_plugin_that_served_until_now_may_have_written_another_ledger() -> None:
    keeper = (disk := Disk()).keeper()
    disk.ledger = None
    keeper.restore(disk.ledger)
    assert not keeper.is_complete
