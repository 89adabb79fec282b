"""Which clocks the plugin lives by."""

import re
from pathlib import Path

import pytest

import gpusharing

PACKAGE = Path(gpusharing.__file__).parent
WALL_CLOCK = re.compile(r"time\.time\(|time\.time_ns\(|datetime\.(now|utcnow|today)\(|CLOCK_REALTIME|localtime|gmtime")


@pytest.mark.fault("F27")
def test_the_wall_clock_is_asked_for_reports_alone_so_a_jump_of_it_moves_no_timer() -> None:
    modules = [path for layer in ("deviceplugin", "discovery", "core") for path in (PACKAGE / layer).rglob("*.py")]
    asked = {path.name for path in modules if WALL_CLOCK.search(path.read_text())}
    assert asked == {"node_report.py"}
