"""How scattered a node is, and which pods to restart."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from tests.support.allocation import gpu, mig

from gpusharing.core.devices import Inventory
from gpusharing.core.fragmentation import Restart, fragmentation
from gpusharing.core.listing import Entry, Listing
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


# --- against trying everything


@given(holders=st.lists(st.integers(0, 4), min_size=3 * SHARES, max_size=3 * SHARES))
def test_restart_sets_are_those_found_by_trying(holders: list[int]) -> None:
    """`holders` says which pod has a share; 0 = nobody."""
    listing, inventory = _shares(3)
    ids = list(listing.lists[SHARED])
    pods = {
        f"p{pod}": [each for each, holder in zip(ids, holders, strict=True) if holder == pod] for pod in range(1, 5)
    }
    rows = [_pod(name, *held) for name, held in pods.items() if held]
    got = fragmentation(listing, rows, inventory)

    def users(uuid: str) -> set[str]:
        return {row.pod for row in rows if any(each.startswith(uuid) for each in row.ids)}

    def ways(sizes: list[int], rooms: list[int]) -> list[int]:
        places = product(range(len(rooms)), repeat=len(sizes))
        return [
            len(set(way))
            for way in places
            if all(sum(size for size, at in zip(sizes, way, strict=True) if at == g) <= r for g, r in enumerate(rooms))
        ]

    found = []
    for at, uuid in enumerate(("G0", "G1", "G2")):
        leaving = users(uuid)
        staying = [row for row in rows if row.pod not in leaving]
        others = {other: SHARES - sum(each.startswith(other) for row in staying for each in row.ids)
                  for other in ("G0", "G1", "G2") if other != uuid and users(other) - leaving}  # fmt: skip
        sizes = [len(row.ids) for row in rows if row.pod in leaving]
        if leaving and ways(sizes, list(others.values())):
            found.append((len(leaving), sum(sizes), at))
    want = min(found, default=None)
    assert (got.restart and got.restart.gpu) == (want and f"G{want[2]}")

    free = sum(not users(uuid) for uuid in ("G0", "G1", "G2"))
    packed = min(ways([len(row.ids) for row in rows], [SHARES] * 3), default=3)
    assert (got.free_gpus, got.possible_gpus) == (free, max(free, 3 - packed))
