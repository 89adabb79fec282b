"""A kind cluster that is cut off, or does not come up, leaves the machine around it as it was. With a Docker of ours.

What a killed run leaves of its machine is in test_kind_machine.py; that an orderly end leaves nothing is asserted by
the provider after each run.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.cluster.keeper import hierarchies
from tests.support.cluster.kind.footprint import TUNABLES
from tests.support.cluster.kind.machine import missing
from tests.support.cluster.kind.product import PATIENCE
from tests.support.cluster.kind.tools import bring_docker, docker_environment
from tests.support.eventually import eventually
from tests.support.install import ROOT

pytestmark = [
    pytest.mark.several_nodes,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}"),
]
# as `pytest` does, and without the Docker that may be on the PATH: what becomes of that one is not ours to compare
START = """
import os
from tests.support.cluster.kind.provider import KindCluster
KindCluster.start({**os.environ, "PATH": "/nonexistent"})
"""


@contextmanager
def starting(folder: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that starts a cluster in a folder for temporary files; what it says is in the file `said`."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "TMPDIR": str(folder), **variables}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", START], env=environment, start_new_session=True, stdout=said, stderr=said
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files whose path leaves room for sockets."""
    with tempfile.TemporaryDirectory(prefix="gsl", dir="/tmp") as made:
        yield Path(made)


def machine(folder: Path) -> dict[str, object]:
    """What a run could leave on the machine, or change."""
    packages = bring_docker()
    save = [str(packages / "usr/sbin/iptables-save")]
    rules = subprocess.run(save, env=docker_environment(packages), capture_output=True, text=True, check=False).stdout
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return {
        "settings": {
            name: Path("/proc/sys", name).read_text() for name in TUNABLES if Path("/proc/sys", name).exists()
        },
        "links": [name for name in sorted(os.listdir("/sys/class/net")) if name.startswith(("docker", "gsp-", "veth"))],
        "rules": [line for line in rules.splitlines() if "DOCKER" in line or "gsp-e2e" in line],
        "mounts": [line for line in mounts if str(folder) in line],
        "files": [path.name for path in folder.iterdir() if path.name != "said"],
        "processes": [pid for pid in os.listdir("/proc") if pid.isdigit() and str(folder) in _command(pid)],
        "docker": [path for path in ("/etc/docker", "/run/docker", "/run/docker.sock") if Path(path).exists()],
    }


def cgroups() -> set[str]:
    """The cgroups of runs."""
    return {path.name for hierarchy in hierarchies() for path in hierarchy.glob("gpusharing-kind-*")}


def test_nothing_is_left_of_a_cluster_after_ctrl_c(folder: Path) -> None:
    before, others = machine(folder), cgroups()
    with starting(folder) as process:
        eventually(lambda: _kubeadm_runs(others), within=PATIENCE, what="a node is being set up")
        assert len(cgroups() - others) == 1
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=PATIENCE) != 0
    assert "KeyboardInterrupt" in (folder / "said").read_text()
    assert (machine(folder), cgroups()) == (before, others)


def test_nothing_is_left_of_a_cluster_that_does_not_come_up(folder: Path) -> None:
    before, others = machine(folder), cgroups()
    with starting(folder, GPUSHARING_KIND_IMAGE="127.0.0.1:1/no-such-image:1") as process:
        assert process.wait(timeout=PATIENCE) == 1
    last_line = (folder / "said").read_text().splitlines()[-1]
    assert "ClusterError: docker pull --quiet failed" in last_line
    assert (machine(folder), cgroups()) == (before, others)


def _kubeadm_runs(others: set[str]) -> None:
    """Whether a node of the new cluster is being set up: containers, mounts and links of all kinds are there."""
    files = (hierarchy.glob(f"{name}/**/cgroup.procs") for name in cgroups() - others for hierarchy in hierarchies())
    commands = {_command(pid) for found in files for file in found for pid in file.read_text().split()}
    assert any(command.startswith("kubeadm init") for command in commands), commands


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has ended
        return ""
