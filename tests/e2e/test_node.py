"""The real node that the other tests stand on, with the least that can be a device plugin."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.api import NODES
from tests.support.cluster.binaries import kubelet_version
from tests.support.cluster.enclosure import missing
from tests.support.cluster.keeper import hierarchies
from tests.support.cluster.kubelet import KubeletEnded
from tests.support.cluster.node import RealNode
from tests.support.eventually import eventually
from tests.support.install import ROOT

RESOURCE = "example.com/bare"

START_AN_ENCLOSURE = """
import sys, tempfile
from pathlib import Path
from tests.support.cluster.enclosure import Enclosure
from tests.support.cluster.keeper import Keeper
root = Path(tempfile.mkdtemp(prefix="gs", dir="/tmp"))
enclosure = Enclosure(root, Keeper(root))
# like a container: in a cgroup of its own, and by a process that the keeper was not told of
hierarchy = "/sys/fs/cgroup/memory" if sys.argv[1] == "1" else "/sys/fs/cgroup"
pod = f"{hierarchy}/{enclosure.cgroup}/pod"
script = f"mount -t tmpfs none /var/lib && mkdir {pod} && (echo 0 >{pod}/cgroup.procs; exec sleep 1000) & echo $!"
enclosure.start(["/bin/sh", "-c", script], root / "sleep.log").wait()
print(root, enclosure.cgroup, (root / "sleep.log").read_text().strip(), flush=True)
input()
"""


@pytest.fixture
def bare(real_node: RealNode) -> Iterator[RealNode]:
    """The node with four devices of the bare plugin."""
    log = real_node.cluster.folder / "bareplugin.log"
    command = [sys.executable, "-m", "tests.support.bareplugin", str(real_node.kubelet.folder), RESOURCE, "4"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}"}
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stderr=output) as plugin:
        try:
            real_node.eventually(lambda: _equal(len(real_node.healthy_ids(RESOURCE)), 4), "the kubelet has its list")
            real_node.offers(4, RESOURCE)
            yield real_node
        finally:
            plugin.kill()
            real_node.eventually(lambda: _equal(real_node.healthy_ids(RESOURCE), []), "the kubelet has seen it end")


@pytest.mark.newest_kubelet
def test_the_kubelet_is_the_one_that_was_asked_for(real_node: RealNode) -> None:
    node = real_node.api.get(NODES, real_node.name)
    assert node["status"]["nodeInfo"]["kubeletVersion"] == kubelet_version()


def test_a_pod_runs_and_sees_what_the_plugin_gave_it(bare: RealNode) -> None:
    pod = bare.create("a", {RESOURCE: 3}).runs()
    assert pod.env()["NVIDIA_VISIBLE_DEVICES"].split(",") == bare.ids("a", RESOURCE)
    assert len(bare.ids("a", RESOURCE)) == 3


def test_devices_are_free_again_when_a_deleted_pod_is_gone(bare: RealNode) -> None:
    bare.create("a", {RESOURCE: 4}).runs()
    bare.delete_pods("a")
    bare.create("a", {RESOURCE: 4}).runs()


def test_a_killed_kubelet_comes_back_with_its_pods_and_their_ids(bare: RealNode) -> None:
    pod = bare.create("a", {RESOURCE: 3}).runs()
    ids = bare.ids("a", RESOURCE)

    bare.kubelet.restart()

    bare.eventually(lambda: _equal(bare.healthy_ids(RESOURCE), ["0", "1", "2", "3"]), "the plugin is registered again")
    bare.holds("a", ids, RESOURCE)
    assert (pod.phase(), pod.restarts()) == ("Running", 0)


def test_a_kubelet_that_ends_by_itself_fails_the_test(real_node: RealNode) -> None:
    real_node.kubelet.assert_alive()
    os.kill(real_node.kubelet.pid, signal.SIGKILL)
    with pytest.raises(KubeletEnded, match="with -9"):
        real_node.eventually(lambda: _equal("alive", "dead"), "the kubelet is dead")
    real_node.kubelet.start()


@pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}")
def test_nothing_of_an_enclosure_survives_its_owner() -> None:
    version = "1" if (Path("/sys/fs/cgroup/memory")).exists() else "2"
    command = [sys.executable, "-c", START_AN_ENCLOSURE, version]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        root, cgroup, pid = owner.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        assert any((hierarchy / cgroup).exists() for hierarchy in hierarchies())
        owner.kill()

    def gone() -> None:
        with contextlib.suppress(FileNotFoundError):
            assert Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"  # dead; nobody has asked how it ended
        assert not Path(root).exists()
        assert not any((hierarchy / cgroup).exists() for hierarchy in hierarchies())
        assert root not in Path("/proc/self/mounts").read_text()

    eventually(gone, what="the enclosure is gone")


def _equal(one: object, other: object) -> None:
    assert one == other
