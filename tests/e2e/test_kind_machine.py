"""The machine that a Docker of ours runs in: what happens in it stays in it, and ends with its owner. Needs root."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.cluster import ClusterError
from tests.support.cluster.keeper import Keeper, hierarchies
from tests.support.cluster.kind.machine import Machine, missing
from tests.support.eventually import eventually
from tests.support.install import ROOT

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}")
# What dockerd does to a machine, with less: links, forwarding, mounts, files in /etc and /run, a process of its own.
ALIKE = """
ip link add docker0 type bridge
echo 1 >/proc/sys/net/ipv4/ip_forward
mkdir -p /etc/docker /run/docker && touch /etc/docker/key.json
mount -t tmpfs none /run/docker
sleep 1000 &
echo "did it"
exec sleep 1000
"""
START = """
import sys, tempfile
from pathlib import Path
from tests.support.cluster.keeper import Keeper
from tests.support.cluster.kind.machine import Machine
root = Path(tempfile.mkdtemp(prefix="gsm", dir="/tmp"))
machine = Machine(root, Keeper(root))
machine.start(["bash", "-c", sys.argv[1]], {})
while "did it" not in machine.log(): pass
print(root, machine.cgroup, flush=True)
input()
"""


@contextmanager
def running(folder: Path, script: str) -> Iterator[Machine]:
    """A machine that runs a script."""
    home = folder / "machine"
    home.mkdir()
    keeper = Keeper(home)
    machine = Machine(home, keeper)
    try:
        machine.start(["bash", "-c", script], {})
        yield machine
        machine.end()
    finally:
        keeper.close()


def outside() -> dict[str, object]:
    """What the machine around could notice."""
    return {
        "links": {name for name in os.listdir("/sys/class/net") if name == "docker0" or name == "outside"},
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "files": [path for path in ("/etc/docker", "/run/docker") if Path(path).exists()],
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if "/run/docker" in line],
    }


def test_nothing_of_a_machine_is_seen_around_it(tmp_path: Path) -> None:
    before = outside()
    with running(tmp_path, ALIKE) as machine:
        eventually(lambda: _said(machine, "did it"), what="the service did its work")
        assert outside() == before
    assert outside() == before


def test_nothing_of_a_machine_survives_its_owner() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}"}
    command = [sys.executable, "-c", START, ALIKE]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        root, cgroup = owner.stdout.readline().split()
        members = _members(cgroup)
        assert len(members) >= 3
        owner.kill()

    def gone() -> None:
        assert not Path(root).exists()
        assert not any((hierarchy / cgroup).exists() for hierarchy in hierarchies())
        for pid in members:
            with contextlib.suppress(FileNotFoundError):
                assert Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"  # dead; nobody has asked how it ended

    eventually(gone, what="the machine is gone")


def test_a_machine_whose_service_ends_says_why(tmp_path: Path) -> None:
    with running(tmp_path, "echo no such disk; exit 1") as machine:
        eventually(lambda: _ended(machine), what="the service has ended")
        assert machine.log().endswith("no such disk")


def test_this_thread_can_be_in_its_network_and_come_back(tmp_path: Path) -> None:
    with running(tmp_path, "exec sleep 1000") as machine:
        here = os.readlink("/proc/thread-self/ns/net")
        machine.enter()
        assert os.readlink("/proc/thread-self/ns/net") != here
        machine.leave()
        assert os.readlink("/proc/thread-self/ns/net") == here


def test_a_machine_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "over").write_text("a file where a folder should be")
    keeper = Keeper(tmp_path)
    try:
        with pytest.raises(ClusterError, match=r"no network and mounts of our own.*hint: run as root on Linux"):
            Machine(tmp_path, keeper).start(["true"], {})
    finally:
        keeper.close()


def _members(cgroup: str) -> list[str]:
    """The processes of a cgroup."""
    files = [hierarchy / cgroup / "machine/cgroup.procs" for hierarchy in hierarchies()]
    return sorted({pid for file in files if file.exists() for pid in file.read_text().split()})


def _said(machine: Machine, words: str) -> None:
    assert words in machine.log(), machine.log()


def _ended(machine: Machine) -> None:
    assert not machine.running
