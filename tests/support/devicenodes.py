"""Character devices that stand for GPUs, under a root of our own.

No driver answers for them: who may open one gets ENXIO from the kernel, who may not (its cgroup does not allow it) gets
EPERM before that. So a test can tell what a container was granted, on a machine without any GPU.
"""

import os
import re
import stat
from pathlib import Path

_FREE_MAJORS = range(240, 255)  # for local and experimental use
_CONTROL = {"nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 253, "nvidia-uvm-tools": 252}
_FIRST_CAPABILITY = 1000


def make_device_nodes(root: Path, *, gpus: int, capabilities: int = 0) -> int:
    """Make `root/dev/nvidia<n>`, the control nodes and `nvidia-caps/nvidia-cap<n>`; returns their major number.

    A GPU's minor number is its index. Needs root. `root` is what a config calls `nvidiaDevRoot`.
    """
    major = _free_major()
    folder = root / "dev"
    (folder / "nvidia-caps").mkdir(parents=True)
    minors = {f"nvidia{index}": index for index in range(gpus)} | _CONTROL
    minors |= {f"nvidia-caps/nvidia-cap{number}": _FIRST_CAPABILITY + number for number in range(capabilities)}
    for name, minor in minors.items():
        os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    return major


def _free_major() -> int:
    """A major number that no driver of this machine has."""
    characters = Path("/proc/devices").read_text().partition("Block devices:")[0]
    taken = {int(number) for number in re.findall(r"^\s*(\d+)", characters, re.MULTILINE)}
    return next(number for number in _FREE_MAJORS if number not in taken)
