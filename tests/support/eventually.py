"""The one way in which tests wait."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


# seconds between two looks: at first, and at most; most of what is waited for is there at once or takes seconds
_SOON, _LATER = 0.02, 0.4


def eventually(check: Callable[[], T], *, within: float = 60, what: str) -> T:
    """What `check` returns once it raises no AssertionError; a guard against hanging, never a measurement.

    After `within` seconds an AssertionError names `what` was waited for and shows the last failure.
    """
    end = time.monotonic() + within
    pause = _SOON
    while True:
        try:
            return check()
        except AssertionError as failure:
            if time.monotonic() >= end:
                raise AssertionError(f"not within {within:g} s: {what}\nlast failure: {failure}") from failure
        time.sleep(pause)
        pause = min(_LATER, pause * 1.4)
