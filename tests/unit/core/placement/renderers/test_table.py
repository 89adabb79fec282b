"""The table and its pictures: what a person sees of a plan, in 80 columns and in 120."""

from dataclasses import replace

import pytest
from tests.support.placements import cases, expected_job, job, known_at_run_time_only

from gpusharing.core.placement.renderers import Job, table

PLANS = [name for name, case in cases().items() if "slots" in case["expect"]]


def drawn(job: Job, width: int = 120) -> list[str]:
    return ["".join(piece.text for piece in pieces) for pieces in table.pictures(job, width)]


def test_a_pool_is_summed_up_in_a_line() -> None:
    assert list(table.summary(expected_job("P01"))) == [
        "rl-eval: pool gpu, nodes auto -> 1 (fewest possible), 3 of 4 GPUs used"
    ]
    assert list(table.summary(expected_job("P40 ffd"))) == [
        "rl-eval: pool gpu, nodes auto -> 3 (at least 2), 16 of 24 GPUs used"
    ]
    assert list(table.summary(expected_job("P34"))) == [
        "rl-eval: pool gpu, 1 node, 2 of 4 GPUs used",
        "rl-eval: pool aux, 1 node, 2 of 4 GPUs used",
    ]
    assert list(table.summary(expected_job("P61"))) == ["rl-eval: pool gpu skipped"]


def test_every_gpu_of_a_slot_is_somebodys_or_free() -> None:
    assert list(table.rows(expected_job("P01"))) == [
        ("gpu/0", "-", "judge", "0", "1", "planned"),
        ("gpu/0", "-", "policy", "1,2", "2 (TP 2)", "planned"),
        ("gpu/0", "-", "-", "3", "", "free"),
    ]
    assert ("gpu/0", "-", "-", "0", "", "not for this placement") in table.rows(expected_job("P53"))


def test_ranks_and_instances_are_told() -> None:
    whys = {(row[0], row[2]): row[-1] for row in table.rows(expected_job("Q34"))}
    assert whys["gpu/0", "x"] == "planned, rank 0, instances 0-1"
    assert whys["gpu/1", "x"] == "planned, rank 1, instance 2"


@pytest.mark.parametrize(
    ("case", "service", "need"),
    [
        ("P12", "ray", ">= 1"),
        ("P48", "llm", "2 x 80%"),
        ("P16", "giant", "8 (TP 4 x PP 2)"),
        ("P23", "judge", "2 (DP 2)"),
    ],
)
def test_a_need_is_written_as_it_was_asked_for(case: str, service: str, need: str) -> None:
    assert {row[4] for row in table.rows(expected_job(case)) if row[2] == service} == {need}


def test_services_without_gpus_come_last() -> None:
    assert list(table.rows(expected_job("P22 tiers")))[-1] == ("-", "-", "router", "-", "0", "planned")


def test_a_slot_is_drawn_as_its_gpus() -> None:
    assert drawn(expected_job("P01")) == ["gpu/0  [judge ][policy][policy][......]"]
    assert drawn(expected_job("P53")) == ["gpu/0  [xxxxxx][judge ][policy][policy]"]


def test_who_shares_is_not_drawn_beside_the_owner() -> None:
    shared = expected_job("P50")
    first, *others = reversed(shared.plan.slots[0].assigned)  # declared before the service that it shares with
    slot = replace(shared.plan.slots[0], assigned=(first, *others))
    for each in (shared, replace(shared, plan=replace(shared.plan, slots=(slot,)))):
        assert drawn(each) == ["gpu/0  [policy][policy][judge ][......]"]


def test_a_part_of_a_gpu_is_drawn_in_proportion() -> None:
    assert drawn(expected_job("P48")) == ["gpu/0  [llm       em][llm       ..]"]


def test_what_is_known_at_run_time_only_is_drawn_as_unknown() -> None:
    assert drawn(known_at_run_time_only()) == ["gpu/0  [????][????][????][????]"]


def test_a_large_node_takes_a_line_per_eight_gpus() -> None:
    request = {
        "pools": [{"name": "gpu", "nodes": 1, "gpusPerNode": 16}],
        "services": [{"name": "a", "gpus": 10}, {"name": "b", "gpus": 2}],
    }
    given = {"a": {"indexes": list(range(10))}, "b": {"indexes": [10, 11]}}
    expected = {
        "pools": {"gpu": {"nodesResolved": 1}},
        "slots": {"gpu/0": {"assigned": given, "free": [12, 13, 14, 15], "exported": ["a", "b"]}},
        "leadSlot": None,
        "seesAll": [],
        "warnings": [],
        "notices": [],
    }
    large = job({"request": request}, expected)
    assert drawn(large, 80) == [
        "gpu/0 0-7   " + "[a   ]" * 8,
        "gpu/0 8-15  " + "[a   ]" * 2 + "[b   ]" * 2 + "[....]" * 4,
    ]
    assert [row[3] for row in table.rows(large)] == ["0-9", "10,11", "12,13,14,15"]


@pytest.mark.parametrize("width", [80, 120])
def test_pictures_fit_the_width_and_show_every_gpu(width: int) -> None:
    for case in PLANS:
        planned = expected_job(case)
        lines = drawn(planned, width)
        assert all(len(line) <= width for line in lines), case
        assert sum(line.count("[") for line in lines) == sum(slot.size for slot in planned.plan.slots), case


def test_every_deployed_service_has_a_row() -> None:
    for case in PLANS:
        planned = expected_job(case)
        assert {row[2] for row in table.rows(planned)} - {"-"} == {service.name for service in planned.deployed}, case
