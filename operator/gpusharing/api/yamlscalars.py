"""Scalars as go-yaml 2 resolves them, behind kubectl, Helm and NVIDIA's device plugin: YAML 1.1, with its own mind.

`yes`, `on` and `y` are booleans, `010` is eight, `1:30` and dates are text, `1_000` is a thousand.
"""

import re

Scalar = str | bool | int | float | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DIGITS_MAX = 64  # longer than any number that fits


def resolve(plain: str) -> Scalar:
    """Return what an unquoted scalar means."""
    if plain in _WORDS:
        return _WORDS[plain]
    number = plain if plain[0] in "._" else plain.replace("_", "")
    if len(number) > _DIGITS_MAX:
        return plain
    if _INTEGER.fullmatch(number):
        digits = number.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        return int(number, 8 if octal else 0)
    if _FLOAT.fullmatch(number):
        return float(number)
    return plain


def as_key(value: bool | float) -> str:
    """Return a key that is no text as `sigs.k8s.io/yaml` turns it into text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
