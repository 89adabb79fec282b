"""The MPS daemons as processes, with stand-ins for NVIDIA's two programs."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import eventually
from tests.support.hardware import gpu_uuid, make_hardware

from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.core.devices import Inventory
from gpusharing.core.options import Options
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.deviceplugin.host import LocalHost
from gpusharing.deviceplugin.mps import MpsSupervisor
from gpusharing.deviceplugin.mpscontrol import MpsControl, MpsPrograms
from gpusharing.discovery.base import DiscoveryError

INVENTORIES = Path(__file__).resolve().parents[1] / "vectors" / "inventories"
GPU, RENAMED = "nvidia.com/gpu", "nvidia.com/gpu.shared"

# A daemon is a file `running` in its pipe folder; what it is told is logged beside it, with who its clients are.
CONTROL = """\
#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -d ]; then
  if [ -e "$pipe/running" ]; then echo "An instance of this daemon is already running"; exit 1; fi
  touch "$pipe/running"
  echo "start $CUDA_VISIBLE_DEVICES $CUDA_MPS_LOG_DIRECTORY" >> "$pipe/said"
  exit 0
fi
if [ ! -e "$pipe/running" ]; then echo "Cannot find MPS control daemon process"; exit 1; fi
read -r command
echo "$command" >> "$pipe/said"
case $command in
  quit) rm "$pipe/running" ;;
  get_server_list) [ ! -e "$pipe/clients" ] || echo 4711 ;;
  "get_client_list 4711") cat "$pipe/clients" ;;
  $(cat "$pipe/refused" 2>/dev/null || echo never)) echo "Unrecognized command"; exit 1 ;;
esac
"""
SMI = """\
#!/bin/sh
echo "$@" >> "$0.said"
"""
HUNG = """\
#!/bin/sh
exec sleep 600
"""


class Gpus:
    """What discovery says, without asking anything."""

    def __init__(self, inventory: Inventory) -> None:
        self.found: Inventory | DiscoveryError = inventory

    async def inventory(self) -> Inventory:
        if isinstance(self.found, DiscoveryError):
            raise self.found
        return self.found

    async def probe(self) -> Mapping[str, Any]:
        return {}

    async def computing(self) -> frozenset[str]:
        return frozenset()

    async def events(self) -> Any:
        return
        yield

    async def close(self) -> None:
        pass


class Node:
    """A node's daemons, looked at when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mps"
        self.smi = self._program(folder / "nvidia-smi", SMI)
        programs = MpsPrograms(str(self._program(folder / "control", CONTROL)), str(self.smi), deadline=30)
        self.gpus = Gpus(make_hardware(2).build())
        self.control = MpsControl(programs, self.folder)
        self.supervisor = MpsSupervisor(Options(), self.gpus, self.control)
        self.plugin = LocalHost(None)

    @staticmethod
    def _program(path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    async def serve(self, config: PluginConfig | None) -> None:
        text = config.to_yaml() if config else None
        self.supervisor.desire(Desired("name", text, rendered=True))
        await self.supervisor.look()

    def ready(self, config: PluginConfig, resource: str = GPU) -> bool:
        """Whether the plugin would list the shares."""
        return self.plugin.mps_ready(ServedConfig(config=config, mps_root=str(self.folder)), resource)

    def runs(self, resource: str = GPU) -> bool:
        return (self.pipe(resource) / "running").exists()

    def pipe(self, resource: str = GPU) -> Path:
        return self.folder / resource / "pipe"

    def said(self, resource: str = GPU) -> list[str]:
        """What changed something at the daemon, since the last time."""
        path = self.pipe(resource) / "said"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("get_")]

    def modes(self) -> list[str]:
        path = self.smi.with_name("nvidia-smi.said")
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


def mps(replicas: int, *, rename: bool = False) -> PluginConfig:
    resources = [{"name": GPU, "replicas": replicas}]
    section = {"resources": resources} | ({"renameByDefault": True} if rename else {})
    return PluginConfig.model_validate({"flags": {"mpsRoot": "/run/nvidia/mps"}, "sharing": {"mps": section}})


def limits(replicas: int) -> list[str]:
    memory = [f"set_default_device_pinned_mem_limit {gpu} {81920 // replicas}M" for gpu in (0, 1)]
    return [*memory, f"set_default_active_thread_percentage {100 // replicas}"]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_daemon_is_ready_for_the_plugin_once_its_limits_are_set(node: Node) -> None:
    assert not node.ready(mps(4))
    await node.serve(mps(4))
    assert node.runs()
    assert node.ready(mps(4))
    assert not node.ready(mps(8))
    start, *rest = node.said()
    assert start == f"start {gpu_uuid(0)},{gpu_uuid(1)} {node.folder}/{GPU}/log"
    assert rest == limits(4)
    assert node.modes() == [f"-i {gpu_uuid(gpu)} -c EXCLUSIVE_PROCESS" for gpu in (0, 1)]


async def test_looking_again_changes_nothing(node: Node) -> None:
    await node.serve(mps(4))
    node.said(), node.modes()
    await node.supervisor.look()
    assert (node.said(), node.modes()) == ([], [])


async def test_with_clients_other_limits_are_set_at_once_and_the_restart_waits_for_them_to_leave(node: Node) -> None:
    await node.serve(mps(4))
    node.said()
    (node.pipe() / "clients").write_text("1234\n5678\n")
    await node.serve(mps(8))
    assert node.said() == limits(8)
    assert node.ready(mps(8))
    await node.supervisor.look()
    assert node.said() == []
    (node.pipe() / "clients").unlink()
    await node.supervisor.look()
    quit_, start, *rest = node.said()
    assert (quit_, start.split()[0], rest) == ("quit", "start", limits(8))
    assert node.ready(mps(8))


async def test_without_mps_the_daemon_ends_when_the_last_client_has_left(node: Node) -> None:
    await node.serve(mps(4))
    (node.pipe() / "clients").write_text("1234\n")
    await node.serve(None)
    assert node.runs()
    assert not node.ready(mps(4))
    (node.pipe() / "clients").unlink()
    node.modes()
    await node.supervisor.look()
    assert not node.runs()
    assert node.modes() == [f"-i {gpu_uuid(gpu)} -c DEFAULT" for gpu in (0, 1)]
    assert not (node.folder / GPU / "log").exists()


async def test_a_rename_starts_a_daemon_of_its_own(node: Node) -> None:
    await node.serve(mps(4))
    (node.pipe() / "clients").write_text("1234\n")
    await node.serve(mps(4, rename=True))
    assert (node.runs(GPU), node.runs(RENAMED)) == (True, True)
    assert (node.ready(mps(4)), node.ready(mps(4, rename=True), RENAMED)) == (False, True)


async def test_a_daemon_that_died_is_started_again(node: Node) -> None:
    await node.serve(mps(4))
    (node.pipe() / "running").unlink()
    node.said()
    await node.supervisor.look()
    assert node.runs()
    assert node.said()[1:] == limits(4)
    assert node.ready(mps(4))


async def test_limits_that_cannot_be_set_leave_the_marker_out_until_they_can(node: Node) -> None:
    node.pipe().mkdir(parents=True)
    (node.pipe() / "refused").write_text("set_default_active_thread_percentage*")
    await node.serve(mps(4))
    assert node.runs()
    assert not node.ready(mps(4))
    (node.pipe() / "refused").unlink()
    await node.supervisor.look()
    assert node.ready(mps(4))


async def test_a_config_that_is_refused_or_gone_changes_nothing(node: Node) -> None:
    await node.serve(mps(4))
    await node.serve(mps(4000))
    assert node.ready(mps(4))
    node.supervisor.desire(Desired("name", "version: v9\n", rendered=True))
    node.supervisor.desire(Desired("name", missing="ConfigMap is not there"))
    await node.supervisor.look()
    assert node.ready(mps(4))
    assert node.runs()


async def test_gpus_that_cannot_be_seen_leave_the_daemon_as_it_is(node: Node) -> None:
    await node.serve(mps(4))
    node.gpus.found = DiscoveryError("NVML hangs", kind="hung")
    await node.supervisor.look()
    assert node.ready(mps(4))


async def test_before_a_config_was_read_nothing_is_started(node: Node) -> None:
    await node.supervisor.look()
    assert not node.folder.exists()


async def test_a_program_that_is_missing_or_hangs_is_no_end(node: Node, tmp_path: Path) -> None:
    hung = Node._program(tmp_path / "hung", HUNG)
    for programs in (MpsPrograms(str(tmp_path / "none"), str(node.smi)), MpsPrograms(str(hung), str(node.smi), 0.1)):
        supervisor = MpsSupervisor(Options(), node.gpus, MpsControl(programs, node.folder))
        supervisor.desire(Desired("name", mps(4).to_yaml(), rendered=True))
        await supervisor.look()
        assert not node.ready(mps(4))


async def test_at_the_end_all_daemons_are_ended_and_markers_gone(node: Node) -> None:
    await node.serve(mps(4))
    (node.pipe() / "clients").write_text("1234\n")
    await node.control.stop()
    assert not node.runs()
    assert not node.ready(mps(4))


async def test_markers_of_a_former_process_are_removed_and_nothing_else(node: Node) -> None:
    await node.serve(mps(4))
    (node.folder / "shm").mkdir()
    MpsControl(MpsPrograms(), node.folder).remove_markers()
    assert not node.ready(mps(4))
    assert sorted(os.listdir(node.folder / GPU)) == ["log", "pipe"]
    MpsControl(MpsPrograms(), node.folder / "none").remove_markers()


PROCESS = """\
import asyncio, sys
from pathlib import Path
from gpusharing.deviceplugin.mps import run
from gpusharing.deviceplugin.mpscontrol import MpsControl, MpsPrograms
from gpusharing.deviceplugin.settings import read_settings

folder, *arguments = sys.argv[1:]
settings = read_settings(arguments, {})
programs = MpsPrograms(settings.mps_control_binary, str(Path(settings.mps_control_binary).with_name("nvidia-smi")))
asyncio.run(run(settings, MpsControl(programs, Path(folder))))
"""


def test_as_a_process_it_follows_its_config_file_and_ends_with_its_daemons(node: Node, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(mps(4).to_yaml())
    arguments = [
        f"--config-file={config}",
        "--config-poll=0.1s",
        "--discovery=simulated",
        f"--inventory={INVENTORIES / 'a100-sxm-4-one-socket.yaml'}",
        f"--mps-control-binary={tmp_path / 'control'}",
    ]

    def is_ready(replicas: int) -> None:
        assert node.ready(mps(replicas))

    with subprocess.Popen([sys.executable, "-c", PROCESS, node.folder, *arguments]) as process:
        try:
            eventually(lambda: is_ready(4), what="the daemon's marker")
            config.write_text(mps(8).to_yaml())
            eventually(lambda: is_ready(8), what="the marker of the changed config")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert not node.runs()
    assert not node.ready(mps(8))
