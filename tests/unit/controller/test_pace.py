"""Never more under way than the limit, nobody forgotten, and the limit follows what the API server can take."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.controller.pace import SLOW_SECONDS, START, Pace

SLOW = SLOW_SECONDS * 2


def grown(pace: Pace, successes: int, seconds: float = 0.0) -> int:
    """The limit after so many successes."""
    for _ in range(successes):
        pace.succeeded(seconds)
    return pace.limit


class Places:
    """Tasks that each hold one place until told to leave."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.inside: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        for name in names:
            self._leave[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._stay(name))
        await self.settle()

    async def _stay(self, name: str) -> None:
        async with self._pace:
            self.inside.append(name)
            try:
                await self._leave[name].wait()
            finally:
                self.inside.remove(name)

    async def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
        await self.settle()

    async def cancel(self, name: str, *, settle: bool = True) -> None:
        self._tasks[name].cancel()
        if settle:
            await self.settle()

    def let_go(self, name: str) -> None:
        """Without waiting until anybody noticed."""
        self._leave[name].set()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def __aenter__(self) -> "Places":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


# --- places


async def test_so_many_as_the_limit_come_in_and_the_next_when_one_leaves() -> None:
    async with Places(Pace(64, start=2)) as places:
        await places.come("a", "b", "c", "d")
        assert places.inside == ["a", "b"]
        await places.leave("b")
        assert places.inside == ["a", "c"]
        await places.leave("a", "c")
        assert places.inside == ["d"]


async def test_a_waiter_that_gives_up_takes_nobodys_turn() -> None:
    async with Places(Pace(64, start=1)) as places:
        await places.come("a", "b", "c")
        await places.cancel("b")
        await places.leave("a")
        assert places.inside == ["c"]


async def test_a_waiter_that_is_cancelled_just_when_its_turn_came_passes_it_on() -> None:
    async with Places(Pace(64, start=1)) as places:
        await places.come("a", "b", "c")
        places.let_go("a")
        await asyncio.sleep(0)  # a leaves and calls b, which has not run yet
        await places.cancel("b")
        assert places.inside == ["c"]


async def test_one_who_fails_inside_gives_the_place_back() -> None:
    pace = Pace(64, start=1)
    with pytest.raises(ValueError, match="refused"):
        async with pace:
            raise ValueError("refused")
    async with Places(pace) as places:
        await places.come("a")
        assert places.inside == ["a"]


async def test_after_a_halving_places_are_given_again_only_below_the_new_limit() -> None:
    pace = Pace(64, start=4)
    async with Places(pace) as places:
        await places.come("a", "b", "c", "d", "e")
        pace.overloaded()
        await places.leave("a", "b")
        assert places.inside == ["c", "d"]
        await places.leave("c")
        assert places.inside == ["d", "e"]


async def test_a_place_more_is_given_at_once() -> None:
    pace = Pace(64, start=1)
    async with Places(pace) as places:
        await places.come("a", "b")
        pace.succeeded()
        await places.settle()
        assert places.inside == ["a", "b"]


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from(["come", "leave", "cancel", "good", "slow", "bad"]), st.integers(0, 50))),
)
def test_whatever_happens_no_more_are_inside_than_the_limit_was_and_nobody_is_forgotten(
    start: int, steps: Sequence[tuple[str, int]]
) -> None:
    with closing(asyncio.new_event_loop()) as loop:  # asyncio.run would take pytest's own away, and leave it open
        loop.run_until_complete(_live_through(start, steps))


async def _live_through(start: int, steps: Sequence[tuple[str, int]]) -> None:
    pace = Pace(8, start=start)
    here: list[str] = []
    async with Places(pace) as places:
        for number, (step, choice) in enumerate(steps):
            before = len(places.inside)
            chosen = here[choice % len(here)] if here else ""
            match step:
                case "come":
                    here.append(f"{number}")
                    await places.come(here[-1])
                case "leave" | "cancel" if here:
                    here.remove(chosen)
                    await (places.leave(chosen) if step == "leave" else places.cancel(chosen))
                case "good" | "slow":
                    pace.succeeded(SLOW if step == "slow" else 0)
                case "bad":
                    pace.overloaded()
            await places.settle()
            assert 1 <= pace.limit <= 8
            assert len(places.inside) <= max(before, pace.limit)  # those inside may stay when the limit shrinks
            assert len(places.inside) >= min(pace.limit, len(here))
        for name in here:
            await places.leave(name)
        assert places.inside == []


# --- the limit


def test_it_starts_at_16_or_at_the_most_allowed() -> None:
    assert Pace(64).limit == START == 16
    assert Pace(3).limit == 3


def test_a_whole_window_of_successes_allows_one_more() -> None:
    pace = Pace(64, start=4)
    assert grown(pace, 3) == 4
    assert grown(pace, 1) == 5
    assert grown(pace, 4) == 5
    assert grown(pace, 1) == 6


def test_it_never_grows_above_the_most_allowed() -> None:
    assert grown(Pace(20), 10_000) == 20


def test_an_overloaded_server_halves_it_down_to_one() -> None:
    pace = Pace(64, start=20)
    limits = []
    for _ in range(6):
        pace.overloaded()
        limits.append(pace.limit)
    assert limits == [10, 5, 2, 1, 1, 1]


def test_a_halving_begins_a_new_window() -> None:
    pace = Pace(64, start=8)
    grown(pace, 7)
    pace.overloaded()
    assert grown(pace, 3) == 4
    assert grown(pace, 1) == 5


def at_its_most() -> Pace:
    """A limit of 40 that began with 16."""
    pace = Pace(40)
    grown(pace, 10_000)
    return pace


def test_a_window_of_slow_answers_takes_a_quarter() -> None:
    pace = Pace(40)
    grown(pace, sum(range(16, 40)))
    assert grown(pace, 39, SLOW) == 40
    assert grown(pace, 1, SLOW) == 30


@pytest.mark.parametrize(("slow", "want"), [(10, 21), (11, START)], ids=["half", "more-than-half"])
def test_only_a_window_that_is_mostly_slow_counts_as_slow(slow: int, want: int) -> None:
    pace = at_its_most()
    pace.overloaded()
    grown(pace, slow, SLOW)
    assert grown(pace, 20 - slow) == want


def test_slow_answers_are_forgotten_with_their_window() -> None:
    pace = at_its_most()
    pace.overloaded()
    grown(pace, 20, SLOW)
    assert grown(pace, START) == START + 1


def test_slowness_alone_leaves_the_places_that_there_were_at_first() -> None:
    assert grown(at_its_most(), 1000, SLOW) == START
    assert grown(Pace(3), 1000, SLOW) == 3


def test_slowness_gives_nothing_back_that_an_overload_took() -> None:
    pace = Pace(64)
    pace.overloaded()
    assert grown(pace, 1000, SLOW) == START // 2


def test_it_recovers() -> None:
    pace = Pace(64)
    for _ in range(10):
        pace.overloaded()
    assert grown(pace, sum(range(1, 64))) == 64
