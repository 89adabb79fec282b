"""One leader, judged by monotonic clocks alone; all of it on a virtual clock."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.kube.leasedouble import ANSWERS, LeaseServer, answers_of

from gpusharing.api import names
from gpusharing.core.errors import ApiError
from gpusharing.kube.lease import LeaseGuard, LeaseTimes

TIMES = LeaseTimes(duration=15, deadline=10, period=2)
pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


def guard_of(
    server: LeaseServer, identity: str = "us", times: LeaseTimes = TIMES, said: list[str] | None = None
) -> LeaseGuard:
    on_wait: Callable[[str], None] = (lambda why: None) if said is None else said.append
    client: Any = server
    return LeaseGuard(client, names.NAMESPACE, identity, times, clock=now, on_wait=on_wait)


async def leads_after(guard: LeaseGuard) -> float:
    """The seconds until the guard leads."""
    began = now()
    await guard.acquire()
    return now() - began


# --- acquire


async def test_a_lease_that_nobody_made_is_ours_at_once() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    assert await leads_after(guard) == 0
    assert guard.held
    assert server.holder == "us"


async def test_a_released_lease_is_ours_at_once() -> None:
    server = LeaseServer()
    server.holds("")
    assert await leads_after(guard_of(server)) == 0
    assert server.spec["leaseTransitions"] == 4


async def test_nothing_may_be_written_before_the_lease_is_ours() -> None:
    assert not guard_of(LeaseServer()).held


async def test_a_standby_waits_the_holders_full_duration_by_its_own_clock() -> None:
    server, said = LeaseServer(), []
    server.holds("them", seconds=30)
    assert 30 <= await leads_after(guard_of(server, said=said)) <= 30 + TIMES.period
    assert set(said) == {"them leads; standing by"}


@pytest.mark.parametrize(
    "renewed", ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "2026-11-30T12:00:00.000000-05:00", None]
)
async def test_the_holders_clock_does_not_matter(renewed: str) -> None:
    server = LeaseServer()
    server.holds("them", renewed=renewed)
    assert 15 <= await leads_after(guard_of(server)) <= 17


async def test_the_wait_begins_anew_whenever_the_record_changes() -> None:
    server = LeaseServer()
    server.holds("them")
    waiting = asyncio.create_task(leads_after(guard_of(server)))
    for _ in range(4):
        await asyncio.sleep(10)
        server.holds("them")  # renewed, by a clock that stands still
    assert 55 <= await waiting <= 57


async def test_a_standby_waits_its_own_duration_for_a_holder_that_says_none() -> None:
    server = LeaseServer()
    server.holds("them")
    del server.spec["leaseDurationSeconds"]
    assert 15 <= await leads_after(guard_of(server)) <= 17


async def test_of_two_racers_one_wins_and_the_other_stands_by() -> None:
    server = LeaseServer()
    racers = [guard_of(server, name) for name in ("a", "b")]
    tasks = [asyncio.create_task(racer.acquire()) for racer in racers]
    await asyncio.sleep(5)
    assert [racer.held for racer in racers] == [server.holder == "a", server.holder == "b"]
    assert sum(task.done() for task in tasks) == 1
    for task in tasks:
        task.cancel()


async def test_of_ten_racers_for_an_expired_lease_one_wins() -> None:
    server = LeaseServer()
    server.holds("them")
    racers = [guard_of(server, f"racer-{number}") for number in range(10)]
    tasks = [asyncio.create_task(racer.acquire()) for racer in racers]
    await asyncio.sleep(20)
    assert [f"racer-{number}" for number, racer in enumerate(racers) if racer.held] == [server.holder]
    assert server.writes == 1
    for task in tasks:
        task.cancel()


async def test_an_api_server_that_refuses_is_asked_again_each_period() -> None:
    server, said = LeaseServer(), []
    server.errors = [ApiError("get: 503", status=503), ApiError("get: 403", status=403, hint="rights")]
    assert await leads_after(guard_of(server, said=said)) == 2 * TIMES.period
    assert said == [
        "the lease could not be written: get: 503",
        "the lease could not be written: get: 403. hint: rights",
    ]


async def test_a_lease_that_makes_no_sense_is_not_ours_and_is_looked_at_again() -> None:
    server, said = LeaseServer(), []
    server.holds("them")
    server.spec["leaseDurationSeconds"] = "soon"
    guard = guard_of(server, said=said)
    waiting = asyncio.create_task(guard.acquire())
    await asyncio.sleep(100)
    assert not guard.held
    assert "soon" in said[-1]
    server.holds("")
    await waiting
    assert guard.held


# --- what is written


async def test_times_are_micro_times_in_utc_and_durations_whole_seconds_rounded_up() -> None:
    server = LeaseServer()
    await guard_of(server, times=LeaseTimes(duration=2.5, deadline=2.4, period=0.3)).acquire()
    assert server.spec["leaseDurationSeconds"] == 3  # a standby that waited 2 s would lead beside us
    for time in ("acquireTime", "renewTime"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", server.spec[time])


async def test_a_renewal_keeps_since_when_and_counts_no_transition() -> None:
    server = LeaseServer()
    server.holds("them")
    guard = guard_of(server)
    await guard.acquire()
    first = dict(server.spec)
    holding = asyncio.create_task(guard.hold())
    await asyncio.sleep(7)
    holding.cancel()
    kept = {"holderIdentity": "us", "acquireTime": first["acquireTime"], "leaseTransitions": 4}
    assert {key: server.spec[key] for key in kept} == kept
    assert server.writes == 1 + 3


# --- hold


async def test_a_leader_that_can_renew_holds_for_ever() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    holding = asyncio.create_task(guard.hold())
    for _ in range(200):
        await asyncio.sleep(3.7)
        assert guard.held
    holding.cancel()


async def test_an_api_server_that_hangs_loses_the_lease_at_the_deadline() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    began = now()
    server.works.clear()
    await guard.hold()
    assert now() - began == pytest.approx(TIMES.deadline)
    assert guard.lost.is_set()
    assert not guard.held


async def test_nothing_may_be_written_after_the_deadline_even_before_anybody_notices() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    await asyncio.sleep(TIMES.deadline - 0.01)
    assert guard.held
    await asyncio.sleep(0.02)
    assert not guard.held


async def test_a_renewal_counts_from_before_it_was_asked() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    began = now()
    holding = asyncio.create_task(guard.hold())
    server.works.clear()
    await asyncio.sleep(4)
    server.works.set()  # asked at 2, answered at 4
    await asyncio.sleep(0.1)
    server.works.clear()
    await holding
    assert now() - began == pytest.approx(2 + TIMES.deadline)


async def test_a_few_refusals_are_survived() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    holding = asyncio.create_task(guard.hold())
    server.errors = [ApiError("503", status=503), ApiError("conflict", status=409), ApiError("500", status=500)]
    await asyncio.sleep(30)
    assert guard.held
    holding.cancel()


async def test_a_deleted_lease_is_made_anew() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    holding = asyncio.create_task(guard.hold())
    server.lease = None
    await asyncio.sleep(30)
    assert guard.held
    assert server.holder == "us"
    holding.cancel()


async def test_a_lost_lease_is_never_held_again() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    guard.lost.set()
    await guard.acquire()
    assert not guard.held


async def test_a_leader_gives_up_before_a_standby_leads() -> None:
    """Whatever the API server does to the leader: it is frozen for it alone."""
    for hangs_after in (0.5, 1.9, 2.1, 6.3):
        server = LeaseServer()
        leader, standby = guard_of(server, "leader"), guard_of(server, "standby")
        await leader.acquire()
        holding = asyncio.create_task(leader.hold())
        taking = asyncio.create_task(standby.acquire())
        await asyncio.sleep(hangs_after)
        holding.cancel()  # no renewal arrives any more
        while not standby.held:
            was_held = leader.held
            await asyncio.sleep(0.1)
        assert not was_held
        await taking


# --- release


async def test_after_a_release_a_standby_leads_within_its_period() -> None:
    server = LeaseServer()
    leader, standby = guard_of(server, "leader"), guard_of(server, "standby")
    await leader.acquire()
    waiting = asyncio.create_task(leads_after(standby))
    await asyncio.sleep(5)
    await leader.release()
    assert not leader.held
    assert (server.holder, server.spec["leaseDurationSeconds"]) == ("", 1)
    assert await waiting <= 5 + TIMES.period


async def test_a_release_retries_when_a_last_renewal_came_in_between() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    releasing = asyncio.create_task(guard.release())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    server.holds("us")
    await releasing
    assert server.holder == ""


async def test_what_was_never_ours_is_not_released() -> None:
    server = LeaseServer()
    server.holds("them")
    await guard_of(server).release()
    assert server.holder == "them"


async def test_a_lease_that_was_taken_over_is_not_released() -> None:
    """Else a leader that ends during a cleanup would let a standby write everything back."""
    server = LeaseServer()
    leader, cleanup = guard_of(server, "leader"), guard_of(server, "cleanup-of-somebody")
    await leader.acquire()
    await cleanup.take_over()
    assert leader.held  # it does not know yet
    await leader.release()
    assert server.holder == "cleanup-of-somebody"


async def test_a_release_that_fails_is_left_to_the_expiry() -> None:
    server = LeaseServer()
    guard = guard_of(server)
    await guard.acquire()
    server.errors = [ApiError("503", status=503)]
    await guard.release()
    assert not guard.held
    assert server.holder == "us"


# --- cleanup


async def test_cleanup_takes_the_lease_from_whoever_holds_it_and_the_leader_stops_within_the_settling_time() -> None:
    server = LeaseServer()
    leader, cleanup = guard_of(server, "leader"), guard_of(server, "cleaner")
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    await asyncio.sleep(1)
    settling = await cleanup.take_over()
    keeping = asyncio.create_task(cleanup.hold())
    await asyncio.sleep(settling)
    assert not leader.held
    assert cleanup.held
    assert server.holder == "cleaner"
    await holding
    keeping.cancel()


async def test_cleanup_waits_as_long_as_the_leader_said_itself_whatever_its_own_settings() -> None:
    server = LeaseServer()
    leader = guard_of(server, "leader", LeaseTimes(40, 30, 2))
    cleanup = guard_of(server, "cleaner", LeaseTimes(3, 2, 0.5))
    await leader.acquire()
    assert await cleanup.take_over() > 40


async def test_cleanup_takes_the_lease_although_the_leader_renews_in_between() -> None:
    server = LeaseServer()
    server.holds("leader")
    taking = asyncio.create_task(guard_of(server, "cleaner").take_over())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    server.holds("leader")
    await taking
    assert server.holder == "cleaner"


async def test_cleanup_leaves_the_lease_to_nobody_for_five_minutes_and_a_controller_says_so() -> None:
    server, said = LeaseServer(), []
    cleanup, controller = guard_of(server, "cleaner"), guard_of(server, "controller", said=said)
    await cleanup.take_over()
    until = await cleanup.keep_for_cleanup()
    assert (server.holder, server.spec["leaseDurationSeconds"]) == ("cleanup", 300)
    assert 300 <= await leads_after(controller) <= 302
    assert f"cleanup holds the lease until {until:%H:%M:%S}Z; hint: finish the uninstall, or wait" in said


async def test_cleanup_that_cannot_leave_the_lease_says_so() -> None:
    server = LeaseServer()
    cleanup = guard_of(server, "cleaner")
    await cleanup.take_over()
    server.errors = [ApiError("403", status=403)]
    with pytest.raises(ApiError):
        await cleanup.keep_for_cleanup()


@pytest.mark.parametrize(
    "broken", [{"renewTime": None}, {"renewTime": "noon"}, {"leaseDurationSeconds": None}], ids=str
)
async def test_a_broken_record_of_cleanup_is_told_without_a_time(broken: dict[str, Any]) -> None:
    server, said = LeaseServer(), []
    server.holds("cleanup")
    server.spec.update(broken)
    await leads_after(guard_of(server, said=said))
    assert said[0].startswith("cleanup holds the lease until an unknown time")


# --- the double


async def test_the_double_answers_as_the_real_server_does() -> None:
    """The same questions are put to a real API server in tests/integration/test_kube.py."""
    assert await answers_of(LeaseServer()) == ANSWERS
