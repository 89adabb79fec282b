"""How many devices a node has, now and under another config."""

from tests.support.builders import make_node, make_policy, make_report
from tests.support.worlds import configured, make_world

from gpusharing.core.capacity import devices_now, devices_under, gpu_count

PACK = make_policy("pack").sharing(4)
GPU = "nvidia.com/gpu"


def test_an_inventory_says_more_than_labels() -> None:
    world = make_world(nodes=[make_node().gpus(8)], policies=[PACK], reports=[make_report().gpus(3)])
    assert devices_under(world, "a", PACK.rendered().name) == {GPU: 12}
    assert gpu_count(world, "a") == 3


def test_labels_count_where_there_is_no_report() -> None:
    world = make_world(nodes=[make_node().gpus(8)], policies=[PACK])
    assert devices_under(world, "a", PACK.rendered().name) == {GPU: 32}
    assert gpu_count(world, "a") == 8


def test_without_labels_and_report_nobody_knows() -> None:
    world = make_world(nodes=[make_node()], policies=[PACK])
    assert devices_now(world, "a") is None
    assert devices_under(world, "a", PACK.rendered().name) is None
    assert gpu_count(world, "a") is None


def test_the_config_of_a_policy_that_is_gone_is_read_from_the_record() -> None:
    node, record, report = configured(make_node(), PACK, make_report().gpus(2))
    assert devices_now(make_world(nodes=[node], records=[record], reports=[report]), "a") == {GPU: 8}


def test_under_a_label_set_by_hand_the_report_says_what_is_served() -> None:
    report = make_report().gpus(2).serving(PACK.rendered())
    node = make_node().manual(PACK.rendered().name)
    assert devices_now(make_world(nodes=[node], reports=[report]), "a") == {GPU: 8}


def test_a_sick_device_counts_and_a_retiring_one_does_not() -> None:
    report = make_report().gpus(2).serving(PACK.rendered()).row(GPU, devices=10, healthy=5, retiring=2)
    node = make_node().manual(PACK.rendered().name)
    assert devices_now(make_world(nodes=[node], reports=[report]), "a") == {GPU: 8}


def test_labels_say_what_an_unlabelled_node_shares_already() -> None:
    shared = make_node().gpus(8).label("nvidia.com/gpu.replicas", "2")
    mixed = make_node("b").gpus(8).mig("mixed", **{"1g.10gb": 56}).label("nvidia.com/mig-1g.10gb.replicas", "3")
    world = make_world(nodes=[shared, mixed])
    assert devices_now(world, "a") == {GPU: 16}
    assert devices_now(world, "b") == {"nvidia.com/mig-1g.10gb": 168}


def test_without_a_label_a_node_is_taken_to_share_nothing() -> None:
    node, record, report = configured(make_node(), PACK, make_report().gpus(2))
    world = make_world(nodes=[node], policies=[PACK], records=[record], reports=[report])
    assert devices_under(world, "a", "") == {GPU: 2}


def test_a_value_that_names_no_known_config_implies_nothing() -> None:
    assert devices_under(make_world(nodes=[make_node().gpus(8)]), "a", "theirs") is None


def test_a_label_that_counts_mig_devices_is_no_count_of_gpus() -> None:
    single = make_node().model("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb").gpus(14).mig("single")
    assert gpu_count(make_world(nodes=[single]), "a") is None
