"""CPU time and memory as /proc tells them."""

import os
from pathlib import Path

from tests.bench.processes import cpu_seconds, memory_mb

TICKS = os.sysconf("SC_CLK_TCK")


def test_cpu_time_is_user_and_system_time_whatever_the_program_is_called() -> None:
    after_the_name = "S 1 2 3 4 5 6 7 8 9 10 {user} {system} 13 14"
    for name in ("python", "a program) with (odd) name"):
        stat = f"4711 ({name}) " + after_the_name.format(user=3 * TICKS, system=TICKS // 2)
        assert cpu_seconds(stat) == 3.5


def test_memory_is_the_named_field_in_megabytes() -> None:
    status = "Name:\tpython\nVmHWM:\t  300000 kB\nVmRSS:\t  250000 kB\n"
    assert memory_mb(status, "VmRSS") == 256.0
    assert memory_mb(status, "VmHWM") == 307.2


def test_both_read_what_this_kernel_writes() -> None:
    assert cpu_seconds(Path("/proc/self/stat").read_text()) > 0
    assert memory_mb(Path("/proc/self/status").read_text(), "VmRSS") > 1
