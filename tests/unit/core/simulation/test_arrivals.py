"""When pods come, how large they are and how long they run."""

import math
from itertools import islice, pairwise
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.simulation.making import make_run, make_scenario, outcome_of

from gpusharing.core.simulation.arrivals import NEVER, Pod, pods_expected, source_of
from gpusharing.core.simulation.scenario import Scenario

# two GPUs of four shares
CAPACITY = 8


def poisson(**fields: Any) -> Scenario:
    arrivals = {"process": "poisson", "mean": "50%", "lifetime": 5, "sizes": {"1": 3, "4": 1}, **fields}
    return make_scenario(duration=2_000, arrivals=arrivals)


def swing(mean: int, amplitude: int, period: float = 40, **fields: Any) -> Scenario:
    shape = {"mean": f"{mean}%", "amplitude": f"{amplitude}%", "period": period}
    arrivals = {"process": "swing", "lifetime": 5, "sizes": {"1": 1}, **shape, **fields}
    return make_scenario(duration=400, arrivals=arrivals)


def taken(scenario: Scenario, seed: int = 0) -> list[tuple[float, Pod]]:
    """The pods of a Poisson process until the end, and when each comes."""
    source, found = source_of(scenario, seed), []
    while (due := source.due(0, 0)) <= scenario.duration:
        found.append((due, source.take()))
    return found


def test_pods_come_as_often_and_run_as_long_as_the_mean_asks_for() -> None:
    scenario = poisson()
    pods = taken(scenario)
    # four ids in use by pods of 1.75 ids that run for 5
    assert pods_expected(scenario) == pytest.approx(2_000 * 4 / (1.75 * 5))
    assert len(pods) == pytest.approx(pods_expected(scenario), rel=0.1)
    assert mean(pod.lifetime for _, pod in pods) == pytest.approx(5, rel=0.1)
    assert mean(pod.count == 4 for _, pod in pods) == pytest.approx(0.25, rel=0.15)


def test_gaps_of_a_poisson_process_vary_as_much_as_they_are_long() -> None:
    moments = [at for at, _ in taken(poisson())]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert math.sqrt(mean(gap**2 for gap in gaps) - mean(gaps) ** 2) == pytest.approx(mean(gaps), rel=0.15)


def test_pods_have_names_of_their_own() -> None:
    pods = taken(poisson())
    assert len({pod.name for _, pod in pods}) == len(pods)


def test_another_number_of_pods_taken_changes_no_other_moment() -> None:
    """Each purpose draws from a stream of its own."""
    one, other = taken(poisson()), taken(poisson(sizes={"1": 1, "2": 1}, mean="42.858%"))
    assert [at for at, _ in islice(one, 20)] == pytest.approx([at for at, _ in islice(other, 20)], rel=1e-3)


@given(mean=st.integers(1, 100), amplitude=st.integers(0, 100), now=st.floats(0, 400), asked=st.integers(0, CAPACITY))
def test_the_next_pod_comes_as_soon_as_the_demand_has_room_for_it(
    mean: int, amplitude: int, now: float, asked: int
) -> None:
    def demand(at: float) -> float:
        return CAPACITY * (mean + amplitude * math.sin(2 * math.pi * at / 40)) / 100

    due = source_of(swing(mean, amplitude), 0).due(now, asked)
    wanted = asked + 1
    if due == NEVER:
        assert wanted > CAPACITY * (mean + amplitude) / 100 - 1e-9
        return
    assert now <= due <= now + 40
    assert demand(due) >= wanted - 1e-6
    between = (now + (due - now) * part / 50 for part in range(50) if due > now)
    assert all(demand(at) < wanted + 1e-6 for at in between)


@pytest.mark.parametrize(
    ("now", "asked", "due"),
    [
        (1, 4, 2.0236),
        (10.5, 4, 10.5),
        (17.9, 4, 17.9),
        (18, 4, 42.0236),
        (18, 3, 18),
        (20.1, 3, 40),
        (30, 2, 37.9764),
        (10, 6, 10),
        (10, 7, NEVER),
        (30, 0, 32.2627),
    ],
)
def test_around_a_half_by_four_tenths_there_is_room_for_five_of_eight_from_2_to_18_of_40(
    now: float, asked: int, due: float
) -> None:
    assert source_of(swing(50, 40), 0).due(now, asked) == pytest.approx(due, abs=1e-3)


def test_a_swing_is_met_up_to_a_pod() -> None:
    run = make_run(swing(50, 40))
    highest = 0
    for now in run.play():
        running = sum(len(ids) for _, ids in run.nodes[0].held.values())
        demand = CAPACITY * (0.5 + 0.4 * math.sin(2 * math.pi * now / 40))
        assert running <= demand + 1e-6 or now == 0
        highest = max(highest, running)
    assert highest == 7
    assert outcome_of(swing(50, 40)).waited == 0


def test_without_a_swing_the_demand_is_level() -> None:
    run = make_run(swing(50, 0))
    assert {sum(len(ids) for _, ids in run.nodes[0].held.values()) for _ in run.play()} == {1, 2, 3, 4}


def test_listed_pods_come_as_listed() -> None:
    events = [{"at": 1, "pod": "a", "count": 2}, {"at": 4, "leave": "a"}, {"at": 5, "pod": "b", "count": 1}]
    scenario = make_scenario(events=events)
    source = source_of(scenario, 0)
    assert (source.due(0, 0), source.take().leaves) == (1, 4)
    assert (source.due(1, 2), source.take().leaves) == (5, NEVER)
    assert source.due(5, 1) == NEVER
    assert pods_expected(scenario) == 2
