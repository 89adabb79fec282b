"""Chance that is the same each time: SplitMix64, whose numbers depend on no version of Python."""

import hashlib
import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
_BITS = (1 << 64) - 1


class Draws:
    """A stream of numbers that its seed and its purpose determine."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, purpose: str) -> None:
        """Streams of different purposes have nothing in common, so one more number in one changes no other."""
        digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
        self._state = int.from_bytes(digest[:8], "big")

    def uniform(self) -> float:
        """Return a number from 0 to below 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _BITS
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _BITS
        return ((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53

    def exponential(self, mean: float) -> float:
        """Return a waiting time of a process without memory."""
        return -mean * math.log(1.0 - self.uniform())

    def one_of(self, things: Sequence[T]) -> T:
        """Return one of them, each as likely."""
        return things[int(self.uniform() * len(things))]

    def some_of(self, things: Sequence[T], count: int) -> list[T]:
        """Return so many of them, without repetition, in any order."""
        left = list(things)
        for at in range(count):
            other = at + int(self.uniform() * (len(left) - at))
            left[at], left[other] = left[other], left[at]
        return left[:count]
