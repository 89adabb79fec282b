"""What a run could leave changed on the machine around it: taken before, put back and compared after."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.cluster.keeper import hierarchies
from tests.support.cluster.kind.network import BRIDGE

TUNABLES = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""What dockerd and the kubelets of published node images set, for the whole machine."""
_LINKS = ("docker0", BRIDGE)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Settings of the kernel, links, mounts and cgroups that belong to a run."""

    tunables: dict[str, str]
    links: tuple[str, ...]
    mounts: tuple[str, ...]
    cgroups: tuple[str, ...]

    @classmethod
    def take(cls, folder: Path) -> Self:
        """As it is now; `folder` is the run's."""
        values = {name: _read(Path("/proc/sys", name)) for name in TUNABLES}
        found = os.listdir("/sys/class/net") if Path("/sys/class/net").exists() else []
        mounts = _read(Path("/proc/self/mounts")).splitlines()
        trees = {name for hierarchy in hierarchies() for name in os.listdir(hierarchy)} if mounts else set()
        return cls(
            values,
            tuple(sorted(set(_LINKS) & set(found))),
            tuple(line for line in mounts if str(folder) in line),
            tuple(sorted(trees & {"docker", "kubelet", "kubepods"})),
        )

    def restore(self) -> None:
        """Put the settings of the kernel back that are others now."""
        for name, value in self.tunables.items():
            path = Path("/proc/sys", name)
            if _read(path) != value:
                with contextlib.suppress(PermissionError):  # Docker's machine is another, or ours to leave alone
                    path.write_text(value)

    def assert_same(self, folder: Path) -> None:
        """Raise if a run has left something, or changed it."""
        after = type(self).take(folder)
        assert after == self, f"left behind by kind: {after}, before: {self}"
        assert not folder.exists(), f"left behind by kind: {folder}"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
