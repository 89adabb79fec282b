"""How full GPUs are, drawn in characters: blocks where the terminal has them, else ASCII."""

import math
import sys

from gpusharing.api.fragmentation import GpuShares

LEVELS, ASCII_LEVELS = "·▁▂▃▄▅▆▇█", ".12345678"
FULL, EMPTY, ASCII_FULL, ASCII_EMPTY = "█", "░", "#", "-"
SICK = "x"
BAR_MAX = 16


def filling(gpu: GpuShares) -> str:
    """Return one character: from empty to full in eighths; any use shows, and only a full GPU looks so."""
    if not gpu.healthy:
        return SICK
    levels = LEVELS if _has_blocks() else ASCII_LEVELS
    return levels[_steps(gpu.in_use, gpu.shares, 8)]


def bar(gpu: GpuShares) -> str:
    """Return a character for each share, or, where these are too many, for some of them."""
    full, empty = (FULL, EMPTY) if _has_blocks() else (ASCII_FULL, ASCII_EMPTY)
    length = min(gpu.shares, BAR_MAX)
    filled = _steps(gpu.in_use, gpu.shares, length)
    return full * filled + empty * (length - filled)


def _steps(in_use: int, shares: int, steps: int) -> int:
    """Return how many of the steps are filled: none only if nothing is in use, all only if all are."""
    if in_use >= shares:
        return steps if shares else 0
    return min(math.ceil(steps * in_use / shares), max(steps - 1, 0))


def _has_blocks() -> bool:
    try:
        (LEVELS + FULL + EMPTY).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
