"""What is told of choices that were not the preferred ones."""

import asyncio

import pytest

from gpusharing.deviceplugin.overruled import Overruled


@pytest.mark.fault("F50")
@pytest.mark.looptime
async def test_of_many_one_is_told_of_in_five_minutes() -> None:
    overruled, told = Overruled(), []
    for number in range(100):
        overruled.note(f"container {number}")
        told.append(overruled.sentence)
        await asyncio.sleep(6)
    assert sorted(set(told)) == ["container 0", "container 50"]
