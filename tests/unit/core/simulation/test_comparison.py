"""The comparison of policies over seeds, and the shipped scenarios' figures."""

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from tests.unit.core.simulation.making import make_scenario, outcome_of
from tests.unit.core.simulation.test_run import SWING

from gpusharing.api.scenarioreport import ScenarioReport
from gpusharing.cli.scenariofile import read_scenario
from gpusharing.core.simulation.comparison import simulate

SHIPPED = Path(__file__).parents[4] / "config" / "scenarios"


def test_a_figure_is_the_median_and_the_range_of_the_seeds() -> None:
    scenario = make_scenario(duration=100, arrivals=SWING, seed=[3, 1, 2, 7])
    runs = [outcome_of(scenario, seed=seed) for seed in scenario.seeds]
    (got,) = simulate(scenario).policies
    free = [run.free_gpus for run in runs]
    assert len(set(free)) == 4
    assert got.free_gpus.median == pytest.approx(median(free), abs=1e-4)
    assert (got.free_gpus.lowest, got.free_gpus.highest) == pytest.approx((min(free), max(free)), abs=1e-4)
    parts = [run.free_gpus / run.ideal_free_gpus for run in runs]
    assert got.of_ideal is not None
    assert got.of_ideal.median == pytest.approx(median(parts), abs=1e-4)
    assert got.split_needlessly == sum(run.split_needlessly for run in runs)
    assert got.pods == sum(run.came for run in runs)


def test_where_not_even_ideally_a_gpu_is_free_there_is_no_part_of_it() -> None:
    events = [{"at": 0, "pod": "a", "count": 8}]
    (got,) = simulate(make_scenario(events=events)).policies
    assert (got.ideal_free_gpus.median, got.of_ideal) == (0, None)


def test_progress_begins_after_0_ends_at_most_at_1_and_never_goes_back() -> None:
    told: list[float] = []
    simulate(make_scenario({"policy": "packed"}, {"policy": "spread"}, duration=50, arrivals=SWING), told.append)
    assert told == sorted(told)
    assert 0 <= told[0] < 0.1
    assert 0.9 < told[-1] <= 1


def test_policies_stand_in_the_order_of_the_scenario() -> None:
    policies = [{"policy": "spread"}, {"policy": "packed", "keepTogether": "preferred"}, {"policy": "nvidia-packed"}]
    got = simulate(make_scenario(*policies, events=[])).policies
    assert [(each.policy, each.reference) for each in got] == [
        ("spread", False),
        ("packed, keepTogether: preferred", False),
        ("nvidia-packed", True),
    ]


# --- the shipped scenarios, cut short: `make bench` plays them in full


def short(name: str) -> ScenarioReport:
    scenario = read_scenario(str(SHIPPED / f"{name}.yaml"))
    return simulate(replace(scenario, seeds=scenario.seeds[:1], duration=500.0))


def test_mig_devices_packed_by_gpu_leave_most_of_the_ideal_free_and_by_mig_id_next_to_nothing() -> None:
    report = short("mig-swinging-load")
    packed, nvidia = report.of("packed"), report.of("nvidia-packed")
    assert packed.of_ideal is not None
    assert packed.of_ideal.median > 0.85
    assert packed.free_gpus.median > 8 * nvidia.free_gpus.median
    assert packed.ideal_free_gpus == nvidia.ideal_free_gpus


def test_kept_together_nothing_is_split_that_one_gpu_could_have_held() -> None:
    report = short("time-sliced-inference")
    packed, together = report.of("packed"), report.of("packed, keepTogether: preferred")
    assert together.could_stay_together > 50
    assert together.split_needlessly == 0
    assert packed.split_needlessly > packed.could_stay_together / 2
    assert 0.75 < together.free_gpus.median / packed.free_gpus.median < 1


def test_every_shipped_scenario_begins_with_a_paragraph_about_it_and_is_tested() -> None:
    files = sorted(SHIPPED.glob("*.yaml"))
    assert [file.stem for file in files] == ["mig-swinging-load", "time-sliced-inference"]
    for file in files:
        assert file.read_text().startswith("# ")
