"""Durations as people write them."""

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: object) -> float:
    """Read a duration: `8m`, `1.5s`, `250ms`, `1m30s`, or a bare number of seconds. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("is not a duration; write 90s, 8m, 1m30s, 250ms or a number of seconds")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
