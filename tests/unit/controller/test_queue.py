"""The work queue keeps client-go's promises; time is virtual."""

import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest

from gpusharing.controller.queue import WorkQueue

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def waiting(queue: WorkQueue[str]) -> list[str]:
    """Takes every key that is ready; none is done afterwards."""
    keys = []
    while len(queue):
        keys.append(await queue.get())
    return keys


async def taken_at(queue: WorkQueue[str], key: str = "a") -> float:
    """When the key is ready next."""
    assert await queue.get() == key
    return now()


async def test_keys_come_in_the_order_in_which_they_were_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("b", "a", "c"):
        queue.add(key)
    assert await waiting(queue) == ["b", "a", "c"]


async def test_a_key_waits_once_however_often_it_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 1
    assert await waiting(queue) == ["a"]


async def test_a_change_while_a_key_is_worked_on_brings_it_back_once_and_only_then() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    for _ in range(3):
        queue.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


async def test_a_key_that_is_done_is_forgotten() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    assert not queue.idle
    queue.done("a")
    assert queue.idle
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)


async def test_a_failed_key_comes_back_after_a_jittered_wait_that_doubles_up_to_five_minutes() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    moments = [await taken_at(queue)]
    for _ in range(40):
        queue.done("a", failed=True)
        moments.append(await taken_at(queue))
    waits = [later - earlier for earlier, later in pairwise(moments)]
    for number, wait in enumerate(waits):
        most = min(300.0, 0.2 * 2**number)
        assert most / 2 - 1e-6 <= wait <= most + 1e-6
    assert len({round(wait / min(300.0, 0.2 * 2**n), 3) for n, wait in enumerate(waits)}) > 20  # jitter


async def test_a_success_forgets_former_failures() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    for _ in range(10):
        await queue.get()
        queue.done("a", failed=True)
    await queue.get()
    queue.done("a")
    queue.add("a")
    await queue.get()
    began = now()
    queue.done("a", failed=True)
    assert await taken_at(queue) - began <= 0.2 + 1e-6


async def test_failures_are_counted_by_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    for _ in range(10):
        await queue.get()
        queue.done("a", failed=True)
    queue.add("b")
    assert await queue.get() == "b"
    began = now()
    queue.done("b", failed=True)
    assert await taken_at(queue, "b") - began <= 0.2 + 1e-6


async def test_a_failed_key_never_comes_back_before_the_server_said_so() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    began = await taken_at(queue)
    queue.done("a", failed=True, after=17.0)
    assert await taken_at(queue) - began == pytest.approx(17.0)


async def test_a_change_during_the_wait_is_worked_on_at_once_and_the_wait_is_over() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    began = await taken_at(queue)
    queue.done("a", failed=True, after=50.0)
    queue.add("a")
    assert await taken_at(queue) == began
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)


async def test_a_key_that_changed_while_it_failed_runs_again_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    began = await taken_at(queue)
    queue.add("a")
    queue.done("a", failed=True)
    assert await taken_at(queue) == began
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)


@pytest.mark.parametrize("delays", [(5, 9), (9, 5), (5, 5)])
async def test_of_two_appointments_the_earlier_is_kept_and_the_later_forgotten(delays: tuple[float, ...]) -> None:
    queue: WorkQueue[str] = WorkQueue()
    for delay in delays:
        queue.add_later("a", delay)
    assert await taken_at(queue) == pytest.approx(5)
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)


async def test_an_appointment_of_a_key_that_waits_anyway_is_not_made() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add_later("a", 5)
    await queue.get()
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)


async def test_an_appointment_made_by_the_worker_itself_is_kept() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    began = await taken_at(queue)
    queue.add_later("a", 5)
    queue.done("a")
    assert await taken_at(queue) - began == pytest.approx(5)


async def test_a_closed_queue_keeps_no_appointment() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_later("a", 5)
    queue.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 1000)


async def test_the_age_of_the_oldest_is_that_of_the_key_that_has_waited_longest() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert queue.oldest() == 0
    queue.add("a")
    await asyncio.sleep(3)
    queue.add("b")
    queue.add("a")
    await asyncio.sleep(2)
    assert queue.oldest() == pytest.approx(5)
    await queue.get()
    assert queue.oldest() == pytest.approx(2)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_every_key_ends_at_its_last_change_and_never_has_two_workers(seed: int) -> None:
    """5,000 changes of 97 keys, eight workers of which one in ten fails; a key's state is read when work begins."""
    chance = random.Random(seed)
    queue: WorkQueue[int] = WorkQueue()
    changes: Counter[int] = Counter()
    applied: dict[int, int] = {}
    busy: set[int] = set()
    runs = 0

    async def work() -> None:
        nonlocal runs
        while True:
            key = await queue.get()
            assert key not in busy, "two workers on one key"
            busy.add(key)
            seen = changes[key]
            runs += 1
            await asyncio.sleep(chance.choice([0, 0.001, 0.3]))
            failed = chance.random() < 0.1
            if not failed:
                applied[key] = seen
            busy.discard(key)
            queue.done(key, failed=failed)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for _ in range(5000):
        key = chance.randrange(97)
        changes[key] += 1
        queue.add(key)
        if chance.random() < 0.05:
            queue.add_later(key, chance.random())
        if chance.random() < 0.01:
            await asyncio.sleep(chance.choice([0, 0.01, 1]))
    await asyncio.sleep(10_000)
    assert queue.idle
    assert applied == dict(changes)
    assert len(applied) == 97
    assert runs < 5000
    for worker in workers:
        assert not worker.done(), worker
        worker.cancel()
