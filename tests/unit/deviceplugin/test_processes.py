"""When the driver is asked for processes, and what counts of its answers. On a fake clock."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpusharing.deviceplugin.processes import GpuProcesses
from gpusharing.discovery.base import DiscoveryError

pytestmark = pytest.mark.looptime

HUNG = DiscoveryError("the NVIDIA driver has not answered for 5 s", kind="hung")


class Driver:
    """Says what the test says, after `takes` seconds."""

    def __init__(self) -> None:
        self.computing = frozenset({"GPU-1"})
        self.fails: Exception | None = None
        self.takes = 0.0
        self.asked: list[float] = []
        self.told = 0

    async def __call__(self) -> frozenset[str]:
        self.asked.append(asyncio.get_running_loop().time())
        answer = self.computing
        await asyncio.sleep(self.takes)
        if self.fails:
            raise self.fails
        return answer

    def changed(self) -> None:
        self.told += 1

    @contextmanager
    def watched(self) -> Iterator[GpuProcesses]:
        processes = GpuProcesses(self, self.changed)
        task = asyncio.ensure_future(processes.run())
        try:
            yield processes
            assert not task.done()
        finally:
            task.cancel()


async def test_the_driver_is_asked_only_while_it_matters_and_nothing_is_known_before_and_after() -> None:
    with (driver := Driver()).watched() as processes:
        await asyncio.sleep(3600)
        assert (driver.asked, processes.computing) == ([], None)
        processes.mind(True)
        assert processes.computing is None
        await asyncio.sleep(5)
        assert len(driver.asked) == 3
        assert processes.computing == {"GPU-1"}
        processes.mind(False)
        assert processes.computing is None
        await asyncio.sleep(3600)
        assert len(driver.asked) == 3


async def test_who_waits_is_told_of_answers_that_differ_alone() -> None:
    with (driver := Driver()).watched() as processes:
        processes.mind(True)
        await asyncio.sleep(60)
        assert driver.told == 1
        driver.computing = frozenset()
        await asyncio.sleep(60)
        assert (driver.told, processes.computing) == (2, frozenset())


@pytest.mark.fault("F11")
@pytest.mark.parametrize("error", [HUNG, KeyError("a bug")])
async def test_a_driver_that_does_not_tell_names_nobody_and_is_asked_again(error: Exception) -> None:
    with (driver := Driver()).watched() as processes:
        driver.fails, driver.takes = error, 5.0
        processes.mind(True)
        await asyncio.sleep(4)
        assert processes.computing is None
        await asyncio.sleep(2)
        assert processes.computing == frozenset()
        driver.fails, driver.takes = None, 0.0
        await asyncio.sleep(7)
        assert processes.computing == {"GPU-1"}


async def test_an_answer_to_a_question_of_an_earlier_time_does_not_count() -> None:
    with (driver := Driver()).watched() as processes:
        driver.takes = 4.0
        processes.mind(True)
        await asyncio.sleep(1)
        driver.computing = frozenset()
        processes.mind(False)
        processes.mind(True)
        await asyncio.sleep(3.5)
        assert processes.computing is None
        await asyncio.sleep(4)
        assert processes.computing == frozenset()
