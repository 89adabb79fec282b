"""The table's order, and what a GPU's load is."""

from tests.support.allocation import gpu, mig, shared_gpus, shares

from gpusharing.core.allocation.buckets import WHOLE_GPU, Buckets, other_load, table_of
from gpusharing.core.allocation.request import AllocationRequest, load, slices_and_ids
from gpusharing.core.devices import Inventory
from gpusharing.core.resources import Device

INVENTORY = Inventory(gpus=(gpu(1, "A", mig("A-5", 5, 3), mig("A-0", 0, 1)), gpu(0, "B")))


def test_devices_are_in_order_of_gpu_index_mig_index_and_replica() -> None:
    devices = [
        Device("Z::0", "Z", "Z"),
        Device("A-5::10", "A-5", "A"),
        Device("A-5::9", "A-5", "A"),
        Device("A-0::1", "A-0", "A"),
        Device("B::0", "B", "B"),
    ]
    table = table_of(devices, INVENTORY)
    assert table.gpu_of == {"B::0": 0, "A-0::1": 1, "A-5::9": 1, "A-5::10": 1, "Z::0": 2}
    assert [*table.gpu_of] == ["B::0", "A-0::1", "A-5::9", "A-5::10", "Z::0"]
    assert [each.uuid for each in table.gpus] == ["B", "A", "Z"]
    assert [[part.uuid for part in parts] for parts in table.parts] == [["B"], ["A-0", "A-5"], ["Z"]]


def _mig_buckets(**request: object) -> Buckets:
    devices = [Device(f"{base}::{at}", base, "A") for base in ("A-0", "A-5") for at in range(2)]
    return Buckets(table_of(devices, INVENTORY), AllocationRequest(size=1, **request))  # type: ignore[arg-type]


def test_a_mig_instance_counts_with_all_its_slices_once_one_id_of_it_is_in_use() -> None:
    assert _mig_buckets(available=["A-0::0", "A-0::1", "A-5::0", "A-5::1"]).load == [load()]
    assert _mig_buckets(available=["A-0::0", "A-0::1", "A-5::0"]).load == [load(slices=3, ids=1)]
    assert _mig_buckets(available=["A-0::1"]).load == [load(slices=4, ids=3)]


def test_a_sick_id_is_no_load_unless_somebody_holds_it() -> None:
    free = ["A-0::0", "A-0::1", "A-5::0"]
    assert _mig_buckets(available=free, sick={"A-5::1"}).load == [load()]
    assert _mig_buckets(available=free, sick={"A-5::1"}, sick_and_held={"A-5::1"}).load == [load(slices=3, ids=1)]


def test_a_sick_share_is_no_load_unless_somebody_holds_it() -> None:
    table = shared_gpus({"A": 4}).table
    assert Buckets(table, AllocationRequest(["A::0", "A::1"], 1, sick={"A::2", "A::1"})).load == [1]
    assert Buckets(table, AllocationRequest(["A::0"], 1, sick={"A::2"}, sick_and_held={"A::2"})).load == [3]


def test_slices_count_before_ids() -> None:
    assert load(slices=1) > load(ids=100_000)
    assert slices_and_ids(load(slices=7, ids=12)) == (7, 12)


def test_must_include_ids_are_load_and_are_not_chosen_once_more() -> None:
    buckets = Buckets(shared_gpus({"A": 4}).table, AllocationRequest(["A::0", "A::1"], 2, ["A::0"]))
    assert (buckets.need, buckets.free, buckets.required, buckets.load) == (1, [1], [1], [3])


# --- other resources


def test_other_resources_load_a_gpu_with_their_instances_and_ids() -> None:
    table = table_of([Device("A-0", "A-0", "A")], INVENTORY)
    held = ["A-0", "A-5::0", "A-5::1"]
    assert other_load(table, held, INVENTORY) == {"A": load(slices=3, ids=2)}


def test_an_unshared_gpu_of_an_older_config_is_full() -> None:
    table = table_of(shares({"B": 4}).devices, INVENTORY)
    assert other_load(table, ["B", "B::1"], INVENTORY) == {"B": WHOLE_GPU}


def test_shares_of_an_older_config_count_each() -> None:
    table = table_of(shares({"B": 2}).devices, INVENTORY)
    assert other_load(table, ["B::1", "B::2", "B::3"], INVENTORY) == {"B": load(ids=2)}
