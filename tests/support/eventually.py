"""The one way in which tests wait."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], *, within: float = 60, what: str, every: float = 0.1) -> T:
    """What `check` returns once it raises no AssertionError; a guard against hanging, never a measurement.

    After `within` seconds an AssertionError names `what` was waited for and shows the last failure.
    """
    end = time.monotonic() + within
    while True:
        try:
            return check()
        except AssertionError as failure:
            if time.monotonic() >= end:
                raise AssertionError(f"not within {within:g} s: {what}\nlast failure: {failure}") from failure
        time.sleep(every)
