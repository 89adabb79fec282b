"""What is found on the host: device nodes, CDI specs, the markers of MPS daemons."""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hardware import make_hardware

from gpusharing.core.errors import InvalidInput
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.host import LocalHost
from gpusharing.discovery.simulated import simulated_mig_minors

RUNTIME = "containerd://2.0.0"
GPUS = make_hardware(2).build()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")


def config(folder: Path, **fields: object) -> ServedConfig:
    """A config whose driver is in the folder."""
    served = ServedConfig(container_driver_root=str(folder / "driver"), dev_root=str(folder / "host"))
    return replace(served, **fields)  # type: ignore[arg-type]


def by_cdi(folder: Path, **fields: object) -> ServedConfig:
    return config(folder, device_list_strategies=("cdi-cri",), **fields)


def host(folder: Path, *, simulated: bool = True, **more: object) -> LocalHost:
    minors = simulated_mig_minors if simulated else None
    return LocalHost(minors, mig_minors=folder / "mig-minors", cdi_folder=folder / "cdi", **more)  # type: ignore[arg-type]


def specs(folder: Path) -> dict[str, dict[str, object]]:
    """The CDI specs, by file name."""
    return {path.name: json.loads(path.read_text()) for path in (folder / "cdi").iterdir()}


# --- device nodes


@needs_root
@pytest.mark.fault("X08")
async def test_device_nodes_count_on_the_host_or_below_the_driver_root_and_links_and_files_never(
    tmp_path: Path,
) -> None:
    for place in ("host/dev", "driver/dev"):
        (tmp_path / place).mkdir(parents=True)
    os.mknod(tmp_path / "host/dev/nvidiactl", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(tmp_path / "driver/dev/nvidia-uvm", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (tmp_path / "host/dev/nvidia-uvm-tools").symlink_to(tmp_path / "host/dev/nvidiactl")
    (tmp_path / "host/dev/nvidia-modeset").write_text("")
    found = await host(tmp_path).facts(config(tmp_path), GPUS, "")
    assert found.nodes == {"/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert host(tmp_path).nodes(config(tmp_path)) == found.nodes


async def test_capability_nodes_are_the_drivers_where_the_gpus_are_real(tmp_path: Path) -> None:
    (tmp_path / "mig-minors").write_text("gpu0/gi1/access 3\ngpu0/gi1/ci0/access 4\nconfig 1\n")
    real = await host(tmp_path, simulated=False).facts(config(tmp_path), GPUS, "")
    assert dict(real.mig_minors) == {(0, 1, None): 3, (0, 1, 0): 4}
    (tmp_path / "mig-minors").unlink()
    assert dict((await host(tmp_path, simulated=False).facts(config(tmp_path), GPUS, "")).mig_minors) == {}


# --- CDI


async def test_simulated_gpus_get_a_spec_of_device_nodes(tmp_path: Path) -> None:
    found = await host(tmp_path).facts(by_cdi(tmp_path), GPUS, RUNTIME)
    assert found.cdi_classes == {"gpu"}
    [(name, spec)] = specs(tmp_path).items()
    assert name == "k8s.device-plugin.nvidia.com-gpu.json"
    assert spec["kind"] == "k8s.device-plugin.nvidia.com/gpu"
    assert "hooks" not in json.dumps(spec)


@pytest.mark.fault("X08")
async def test_a_spec_replaces_what_was_there_as_a_whole_and_follows_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/k8s.device-plugin.nvidia.com-gpu.json").symlink_to(victim)
    (tmp_path / f"cdi/.k8s.device-plugin.nvidia.com-gpu.json.{os.getpid()}").symlink_to(victim)
    await host(tmp_path).facts(by_cdi(tmp_path), GPUS, RUNTIME)
    assert victim.read_text() == "precious"
    assert list(specs(tmp_path)) == ["k8s.device-plugin.nvidia.com-gpu.json"]


@pytest.mark.parametrize("runtime", ["", "containerd://1.6.20", "docker://24.0.0", "cri-o://1.22.0", "nonsense"])
async def test_a_runtime_that_has_no_cdi_or_is_not_known_is_refused_and_nothing_is_written(
    tmp_path: Path, runtime: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await host(tmp_path).facts(by_cdi(tmp_path), GPUS, runtime)
    assert refused.value.hint
    assert not (tmp_path / "cdi").exists()


async def test_a_folder_that_cannot_be_written_is_a_refusal_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("a file")
    with pytest.raises(InvalidInput, match="the CDI spec cannot be written") as refused:
        await host(tmp_path).facts(by_cdi(tmp_path), GPUS, RUNTIME)
    assert "mount the host's" in refused.value.hint


@pytest.fixture
def ctk(tmp_path: Path) -> Callable[[str], Path]:
    """Puts a stand-in for `nvidia-ctk` below the driver root; it notes its arguments and environment."""

    def put(body: str) -> Path:
        program = tmp_path / "driver/usr/bin/nvidia-ctk"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\nenv > {tmp_path}/env\n{body}\n')
        program.chmod(0o755)
        return program

    return put


SPEC = '{"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {"hooks": [1]}}]}'


async def test_with_nvml_the_spec_is_what_nvidia_ctk_prints_its_hooks_included(
    tmp_path: Path, ctk: Callable[[str], Path]
) -> None:
    ctk(f"echo '{SPEC}'")
    told = host(tmp_path, simulated=False, cdi_feature_flags=["a"], cdi_disable_hooks=["chmod", "ldcache"])
    found = await told.facts(by_cdi(tmp_path, device_id_strategy="index"), GPUS, RUNTIME)
    assert found.cdi_classes == {"gpu"}
    assert specs(tmp_path) == {"k8s.device-plugin.nvidia.com-gpu.json": json.loads(SPEC)}
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:2] == ["cdi", "generate"]
    assert {"--device-name-strategy=index", "--vendor=k8s.device-plugin.nvidia.com", "--class=gpu"} < set(arguments)
    assert {"--feature-flags=a", "--disable-hook=chmod", "--disable-hook=ldcache"} < set(arguments)
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "PWD", "SHLVL", "_"}


@pytest.mark.parametrize(
    "body", ["exit 1", "echo nonsense", "echo '[]'", "echo '{\"devices\": []}'", "echo '{\"devices\":'"]
)
async def test_an_nvidia_ctk_that_fails_refuses_the_config_and_leaves_the_spec_before(
    tmp_path: Path, ctk: Callable[[str], Path], body: str
) -> None:
    ctk(body)
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/k8s.device-plugin.nvidia.com-gpu.json").write_text("{}")
    with pytest.raises(InvalidInput, match="there is no CDI spec"):
        await host(tmp_path, simulated=False).facts(by_cdi(tmp_path), GPUS, RUNTIME)
    assert specs(tmp_path) == {"k8s.device-plugin.nvidia.com-gpu.json": {}}


async def test_an_nvidia_ctk_that_is_no_program_or_hangs_is_one_that_fails(
    tmp_path: Path, ctk: Callable[[str], Path]
) -> None:
    program = ctk("exec sleep 60")
    impatient = host(tmp_path, simulated=False, ctk_seconds=0.2)
    with pytest.raises(InvalidInput, match="there is no CDI spec"):
        await impatient.facts(by_cdi(tmp_path), GPUS, RUNTIME)
    program.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(InvalidInput, match="there is no CDI spec"):
        await impatient.facts(by_cdi(tmp_path), GPUS, RUNTIME)


async def test_without_nvidia_ctk_cdi_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        await host(tmp_path, simulated=False).facts(
            by_cdi(tmp_path, nvidia_ctk_path="/nowhere/nvidia-ctk"), GPUS, RUNTIME
        )
    assert "install the NVIDIA container toolkit" in refused.value.hint


# --- MPS


async def test_an_mps_daemon_is_ready_if_its_marker_says_this_config(tmp_path: Path) -> None:
    served = config(tmp_path, mps_root=str(tmp_path))
    (tmp_path / "nvidia.com/gpu").mkdir(parents=True)
    marker = tmp_path / "nvidia.com/gpu/ready"
    there = host(tmp_path)
    assert not there.mps_ready(served, "nvidia.com/gpu")
    marker.write_text(f"{served.config.digest()}\n")
    assert there.mps_ready(served, "nvidia.com/gpu")
    marker.write_text("another")
    assert not there.mps_ready(served, "nvidia.com/gpu")


@pytest.mark.fault("X08")
async def test_a_marker_that_is_a_link_does_not_count(tmp_path: Path) -> None:
    served = config(tmp_path, mps_root=str(tmp_path))
    (tmp_path / "nvidia.com/gpu").mkdir(parents=True)
    (tmp_path / "elsewhere").write_text(served.config.digest())
    (tmp_path / "nvidia.com/gpu/ready").symlink_to(tmp_path / "elsewhere")
    assert not host(tmp_path).mps_ready(served, "nvidia.com/gpu")
