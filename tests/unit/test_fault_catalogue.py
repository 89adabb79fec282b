"""Every fault, abuse and obligation that is due has a test that names it, and no test names one that is not."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
MARKER = re.compile(r'mark\.(?:fault|obligation)\("(?P<id>[FPX]\d+)"\)')

DUE = {
    *(f"P{number}" for number in range(1, 15)),
    *(f"F{number:02}" for number in (*range(1, 4), *range(5, 26), *range(27, 33), *range(34, 41))),
    *(f"F{number}" for number in (47, 49, 50, 51, 53, 54, 55)),
    *("X01", "X02", "X03", "X05", "X07", "X08", "X09", "X10", "X11", "X12"),
}
# id → what has to be there first
LATER = {
    "F26": "a soak of hours",
    "F42": "a certificate of its own for metrics",
    "F52": "the watch of DeviceClasses",
    "X06": "GpuPlacement",
}


def named() -> set[str]:
    """The ids that tests name."""
    return {found["id"] for path in TESTS.rglob("*.py") for found in MARKER.finditer(path.read_text())}


def test_every_id_that_is_due_has_a_test() -> None:
    assert sorted(DUE - named()) == []


def test_no_test_names_an_id_that_is_not_due() -> None:
    assert sorted(named() - DUE) == []


@pytest.mark.parametrize("later", sorted(LATER))
def test_an_id_is_due_or_later_and_not_both(later: str) -> None:
    assert later not in DUE
