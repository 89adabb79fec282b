"""How scattered a node is, and which pods to restart."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.allocation import gpu, mig

from gpusharing.core.devices import Inventory
from gpusharing.core.fragmentation import Restart, fragmentation
from gpusharing.core.listing import Entry, Listing, State
from gpusharing.core.occupancy import PodDevices
from gpusharing.core.resources import Device, Resource
from gpusharing.core.serving import ServedConfig

SHARED = "nvidia.com/gpu.shared"
SHARES = 4
CONFIG = ServedConfig()


def _listing(*devices: Device, name: str = SHARED, sick: str = "") -> Listing:
    resource = Resource(name, devices)
    return Listing({name: {it.id: Entry(it, resource, CONFIG, sick="XID 79" * (it.gpu == sick)) for it in devices}})


def _shares(gpus: int, sick: str = "") -> tuple[Listing, Inventory]:
    inventory = Inventory(gpus=tuple(gpu(at, f"G{at}") for at in range(gpus)))
    devices = [Device(f"{it.uuid}::{at}", it.uuid, it.uuid) for it in inventory.gpus for at in range(SHARES)]
    return _listing(*devices, sick=sick), inventory


def _pod(name: str, *ids: str, resource: str = SHARED, container: str = "main") -> PodDevices:
    return PodDevices("team", name, container, resource, ids)


def test_an_empty_node_is_all_free() -> None:
    listing, inventory = _shares(2)
    got = fragmentation(listing, [], inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (2, 2, None)
    assert [(room.resource, room.free, room.largest) for room in got.resources] == [(SHARED, 8, 4)]


def test_scattered_pods_are_told_with_the_cheapest_restart() -> None:
    listing, inventory = _shares(3)
    pods = [_pod("a", "G0::0"), _pod("b", "G1::0", "G1::1"), _pod("c", "G2::0", "G2::3")]
    got = fragmentation(listing, pods, inventory)
    assert (got.free_gpus, got.possible_gpus) == (0, 1)
    assert got.restart == Restart("G0", ("team/a",))
    assert got.resources[0].free == 7
    assert got.resources[0].largest == 3


def test_of_equally_many_pods_those_with_fewer_shares_go_and_then_the_lowest_gpu() -> None:
    listing, inventory = _shares(3)
    pods = [_pod("a", "G0::0", "G0::1"), _pod("b", "G1::0"), _pod("c", "G2::0")]
    got = fragmentation(listing, pods, inventory).restart
    assert got == Restart("G1", ("team/b",))


def test_pods_that_fit_nowhere_else_are_left_alone() -> None:
    listing, inventory = _shares(2)
    pods = [_pod("a", "G0::0", "G0::1", "G0::2"), _pod("b", "G1::0", "G1::1")]
    got = fragmentation(listing, pods, inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (0, 0, None)


def test_a_sick_gpu_is_neither_free_nor_a_place_to_go() -> None:
    listing, inventory = _shares(3, sick="G2")
    got = fragmentation(listing, [_pod("a", "G0::0"), _pod("b", "G2::0")], inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (1, 1, None)
    assert got.resources[0].free == 7


def test_a_gpu_with_one_sick_share_is_not_whole_but_has_room() -> None:
    listing, inventory = _shares(3)
    sick = replace(listing.lists[SHARED]["G1::3"], sick="XID 48")
    listing = Listing({SHARED: {**listing.lists[SHARED], "G1::3": sick}})
    got = fragmentation(listing, [_pod("a", "G0::0"), _pod("b", "G1::0")], inventory)
    assert (got.free_gpus, got.possible_gpus) == (1, 1)
    assert (got.resources[0].free, got.resources[0].largest) == (9, 4)
    assert got.restart == Restart("G0", ("team/a",))


def test_shares_that_retire_take_nothing_from_their_gpu_and_are_free_for_nobody() -> None:
    listing, inventory = _shares(3)
    old = [replace(listing.lists[SHARED][f"G1::{at}"], state="retiring") for at in (2, 3)]
    listing = Listing({SHARED: {**listing.lists[SHARED], **{entry.device.id: entry for entry in old}}})
    assert fragmentation(listing, [], inventory).free_gpus == 3
    pods = [_pod("a", "G0::0"), _pod("a", "G1::2", container="second"), _pod("b", "G1::0"), _pod("c", "G1::1")]
    got = fragmentation(listing, [*pods, _pod("d", "G2::0", "G2::1", "G2::2")], inventory)
    assert got.resources[0].free == 4
    assert got.restart == Restart("G2", ("team/d",))


def test_what_fits_nowhere_takes_no_free_gpu_away() -> None:
    listing, inventory = _shares(3)
    gone = _pod("a", "G0", resource="nvidia.com/gpu")
    assert (
        fragmentation(listing, [gone], inventory).possible_gpus == fragmentation(listing, [gone], inventory).free_gpus
    )
    assert fragmentation(listing, [gone], inventory).free_gpus == 2


def test_at_most_ten_pods_are_named() -> None:
    inventory = Inventory(gpus=(gpu(0, "G0"), gpu(1, "G1")))
    listing = _listing(*(Device(f"{it.uuid}::{at}", it.uuid, it.uuid) for it in inventory.gpus for at in range(40)))
    pods = [_pod(f"p{at:02}", f"G0::{at}") for at in range(12)] + [_pod(f"q{at}", f"G1::{at}") for at in range(13)]
    assert fragmentation(listing, pods, inventory).restart == Restart(
        "G0", tuple(f"team/p{at:02}" for at in range(10)), 2
    )


def test_mig_devices_stay_as_they_are() -> None:
    inventory = Inventory(gpus=(gpu(0, "G0", mig("M0", 0), mig("M1", 1)), gpu(1, "G1", mig("M2", 0), mig("M3", 1, 3))))
    small, big = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
    listing = Listing(
        {
            **_listing(Device("M0", "M0", "G0"), Device("M1", "M1", "G0"), Device("M2", "M2", "G1"), name=small).lists,
            **_listing(Device("M3", "M3", "G1"), name=big).lists,
        }
    )
    scattered = [_pod("a", "M0", resource=small), _pod("b", "M3", resource=big)]
    got = fragmentation(listing, scattered, inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (0, 1, Restart("G0", ("team/a",)))


def test_whole_gpus_of_one_pod_are_as_good_anywhere() -> None:
    inventory = Inventory(gpus=tuple(gpu(at, f"G{at}") for at in range(3)))
    listing = _listing(*(Device(it.uuid, it.uuid, it.uuid) for it in inventory.gpus), name="nvidia.com/gpu")
    got = fragmentation(listing, [_pod("a", "G0", "G2", resource="nvidia.com/gpu")], inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (1, 1, None)


def test_whole_gpus_of_one_pod_do_not_hide_what_else_could_be_packed() -> None:
    migs = (gpu(at, f"G{at}", mig(f"M{at}0", 0), mig(f"M{at}1", 1)) for at in (2, 3))
    inventory = Inventory(gpus=(gpu(0, "G0"), gpu(1, "G1"), *migs))
    small = "nvidia.com/mig-1g.10gb"
    whole = _listing(Device("G0", "G0", "G0"), Device("G1", "G1", "G1"), name="nvidia.com/gpu")
    parts = _listing(*(Device(f"M{at}{n}", f"M{at}{n}", f"G{at}") for at in (2, 3) for n in (0, 1)), name=small)
    pods = [_pod("w", "G0", "G1", resource="nvidia.com/gpu"), _pod("a", "M20", resource=small)]
    got = fragmentation(Listing({**whole.lists, **parts.lists}), [*pods, _pod("b", "M31", resource=small)], inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (0, 1, Restart("G2", ("team/a",)))


def test_what_no_gpu_can_hold_moves_in_the_parts_that_it_is_in() -> None:
    listing, inventory = _shares(4)
    large = _pod("large", *(f"G0::{at}" for at in range(4)), "G1::0", "G1::1")
    got = fragmentation(listing, [large, _pod("a", "G2::0")], inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (1, 2, Restart("G2", ("team/a",)))


def test_who_holds_a_whole_gpu_of_an_older_config_asks_for_one_share_of_the_new_one() -> None:
    inventory = Inventory(gpus=tuple(gpu(at, f"G{at}") for at in range(2)))
    shares = [Device(f"{it.uuid}::{at}", it.uuid, it.uuid) for it in inventory.gpus for at in range(SHARES)]
    resource = Resource(SHARED, tuple(shares))
    states: dict[str, State] = {"G0": "withheld", "G1": "served"}
    entries = {it.id: Entry(it, resource, CONFIG, states[it.gpu]) for it in shares}
    whole = Entry(Device("G0", "G0", "G0"), resource, CONFIG, "retiring")
    pods = [_pod("old", "G0"), _pod("new", "G1::0")]
    got = fragmentation(Listing({SHARED: {**entries, "G0": whole}}), pods, inventory)
    assert (got.free_gpus, got.possible_gpus, got.restart) == (0, 0, None)
    assert (got.resources[0].free, got.resources[0].largest) == (3, 3)


def test_what_is_not_of_this_node_does_not_count() -> None:
    listing, inventory = _shares(2)
    pods = [_pod("net", "eth0::1", resource="example.com/nic"), _pod("gone", "G9::0")]
    assert fragmentation(listing, pods, inventory) == fragmentation(listing, [], inventory)


# --- against trying everything


def _ways(sizes: Sequence[int], rooms: Sequence[int], used: frozenset[int] = frozenset()) -> Iterator[int]:
    """How many GPUs are in use, for each way to place everything."""
    if not sizes:
        yield len(used)
        return
    for at, room in enumerate(rooms):
        if sizes[0] <= room:
            left = [room - sizes[0] if other == at else each for other, each in enumerate(rooms)]
            yield from _ways(sizes[1:], left, used | {at})


@settings(max_examples=150, deadline=None)
@given(
    holders=st.lists(st.integers(0, 4), min_size=3 * SHARES, max_size=3 * SHARES),
    sick=st.sampled_from(["", "", "G0", "G2"]),
)
def test_restart_sets_and_possible_gpus_are_those_found_by_trying(holders: list[int], sick: str) -> None:
    """`holders` says which pod has a share; 0 = nobody."""
    listing, inventory = _shares(3, sick)
    held: dict[str, list[str]] = {}
    for device_id, holder in zip(listing.lists[SHARED], holders, strict=True):
        if holder:
            held.setdefault(f"p{holder}", []).append(device_id)
    got = fragmentation(listing, [_pod(name, *ids) for name, ids in held.items()], inventory)

    def users(uuid: str) -> set[str]:
        return {name for name, ids in held.items() if any(each.startswith(uuid) for each in ids)}

    def sizes(pods: Iterable[str]) -> list[int]:
        parts = [Counter(each[:2] for each in held[pod]).values() for pod in sorted(pods)]
        return [size for each in parts for size in (each if sum(each) > SHARES else [sum(each)])]

    def room(uuid: str, leaving: set[str]) -> int:
        stays = sum(each.startswith(uuid) for pod in held.keys() - leaving for each in held[pod])
        return 0 if uuid == sick else SHARES - stays

    well = [uuid for uuid in ("G0", "G1", "G2") if uuid != sick]
    found = []
    for uuid in well:
        leaving = users(uuid)
        rooms = [room(other, leaving) for other in ("G0", "G1", "G2") if other != uuid and users(other) - leaving]
        if leaving and any(True for _ in _ways(sizes(leaving), rooms)):
            found.append((len(leaving), sum(sizes(leaving)), uuid))
    want = min(found, default=(0, 0, ""))[2]
    assert (got.restart and got.restart.gpu) == (want or None)

    free = sum(not users(uuid) for uuid in well)
    packed = min(_ways(sizes(held), [SHARES] * len(well)), default=len(well))
    assert (got.free_gpus, got.possible_gpus) == (free, max(free, len(well) - packed))


@settings(max_examples=60, deadline=None)
@given(
    holders=st.lists(st.integers(0, 6), min_size=4 * SHARES, max_size=4 * SHARES),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_pods_and_lists_does_not_matter(holders: list[int], order: Random) -> None:
    listing, inventory = _shares(4)
    rows = [_pod(f"p{pod}", each) for each, pod in zip(listing.lists[SHARED], holders, strict=True) if pod]
    before = fragmentation(listing, rows, inventory)
    entries = list(listing.lists[SHARED].items())
    order.shuffle(rows)
    order.shuffle(entries)
    assert fragmentation(Listing({SHARED: dict(entries)}), rows, inventory) == before
