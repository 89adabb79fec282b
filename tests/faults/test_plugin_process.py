"""Faults of a node, played on the real plugin process beside a kubelet double (guide of faults, level P).

Outcomes are asserted, never times; every wait has a guard.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.fakenvml import FakeDriver
from tests.support.frozen import freeze
from tests.support.kubeletdouble.admission import AdmissionFailed, Pod
from tests.support.pluginprocess import GPU, Bench, bench, gpus

from gpusharing.deviceplugin.app import EXIT_FOLDER_GONE

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
# what a file must not be read as: each is refused, or means no GPUs at all
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{one}: &{one} [{','.join([f'*{before}'] * 9)}]" for before, one in zip("abcdefgh", "bcdefghi", strict=True)
)
UNUSABLE = {
    "cut off": "version: v1\nsharing: {timeSlicing: {resources: [",
    "1 MiB": "version: v1\n" + "#" * (1 << 20) + "\n",
    "bomb": BOMB,
    "deep": "version: v1\nsharing: " + "[" * 500 + "]" * 500,
    "not UTF-8": "version: v1\n\udcff: 1\n",
    "wrong version": "version: v2\n",
    "no shares": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 0}]}}\n",
}


def shared(replicas: int, more: str = "") -> str:
    """A config with so many shares of each GPU."""
    entry = f"{{name: {GPU}, replicas: {replicas}}}"
    return f"version: v1\nsharing: {{timeSlicing: {{resources: [{entry}]}}}}\n{more}"


def refused(status: int, text: str) -> bool:
    """Whether /metrics says that a config is refused."""
    return status == 200 and 'gpusharing_plugin_problem{reason="InvalidConfig"} 1.0' in text


def well(status: int, text: str) -> bool:
    """Whether /metrics says that nothing is wrong."""
    return status == 200 and "gpusharing_plugin_problem{" not in text


def alive(status: int, text: str) -> bool:
    """Whether /livez is content."""
    return (status, text) == (200, "ok\n")


@pytest.fixture
async def node() -> AsyncIterator[Bench]:
    """Four GPUs, four shares each."""
    async with bench(shared(4), gpus(4), forked=True) as made:
        yield made


async def test_what_a_kubelet_makes_of_preferences_is_counted_and_the_node_said_to_be_scattered(node: Bench) -> None:
    node.configure(shared(4, "gpusharing: {allocation: {policy: packed, keepTogether: preferred}}\n"))

    def says(**metrics: int) -> Callable[[int, str], bool]:
        return lambda _, text: all(f"gpusharing_plugin_{name} {value}.0\n" in text for name, value in metrics.items())

    async with node.plugin() as plugin:
        await node.listed(16, 16)
        for number in range(3):
            await node.kubelet.admit(Pod(f"pod-{number}", limits={GPU: 1}))
        chosen = f'preferences_total{{policy="packed",resource="{GPU}",result="chosen"}}'
        packed = {chosen: 3, 'whole_gpus{state="free"}': 3, f'largest_request{{resource="{GPU}"}}': 4}
        text = await plugin.page("/metrics", says(**packed), "packed onto one GPU")
        assert f'gpusharing_plugin_preferences_ignored_total{{resource="{GPU}"}} 0.0' in text
        assert plugin.logged("the kubelet did not take the preferred devices") == []
        node.kubelet.behaviour.takes_no_advice = True
        await node.kubelet.admit(Pod("split", limits={GPU: 4}))
        scattered = {
            f'preferences_ignored_total{{resource="{GPU}"}}': 1,
            f'avoidable_splits_total{{choice="kubelet",resource="{GPU}"}}': 1,
            'whole_gpus{state="possible"}': 2,
        }
        await plugin.page("/metrics", says(**scattered), "split although one GPU had room")
        assert len(plugin.logged("the kubelet did not take the preferred devices")) == 1


@pytest.mark.fault("F01")
@pytest.mark.fault("F02")
@pytest.mark.obligation("P2")
@pytest.mark.obligation("P3")
@pytest.mark.obligation("P11")
async def test_whatever_happens_to_kubelet_and_socket_there_is_one_registration_and_at_the_end_none(
    node: Bench,
) -> None:
    async with node.plugin() as plugin:
        await node.listed(16, 16)
        before = plugin.descriptors()
        pod = Pod("web", limits={GPU: 2})
        await node.kubelet.admit(pod)
        for down in (0.0, 0.3, 0.0, 0.0, 0.0):
            await node.kubelet.restart(down=down)
            await node.listed(16, 16)
        await node.kubelet.restart()
        await node.kubelet.restart(down=0.1)  # twice within a second
        await node.listed(16, 16)
        await node.kubelet.readmit()
        assert node.kubelet.failed == {}
        await node.listed(16, 16)
        [socket] = node.sockets()
        (node.kubelet.folder / socket).unlink()
        await node.kubelet.until(lambda: node.sockets() not in ([], [socket]), "a new socket")
        await node.listed(16, 16)
        assert node.kubelet.streams(GPU) == 1
        names = [endpoint for _, endpoint in node.kubelet.registers]
        assert len(names) == len(set(names))
        assert plugin.descriptors() <= before + 4
        assert await plugin.stop() == 0
        assert node.sockets() == []


@pytest.mark.fault("F03")
@pytest.mark.obligation("P9")
async def test_a_folder_that_was_removed_and_made_again_ends_the_process_with_its_own_status(node: Bench) -> None:
    async with node.plugin(environment={}) as plugin:
        await node.listed(16, 16)
        shutil.rmtree(node.kubelet.folder)
        node.kubelet.folder.mkdir()
        assert await plugin.ends() == EXIT_FOLDER_GONE
        assert "was removed" in plugin.logged("the kubelet's folder is gone")[0]["error"]


@pytest.mark.fault("F08")
@pytest.mark.fault("F27")
@pytest.mark.obligation("P12")
async def test_a_stopped_process_fails_its_probe_and_one_that_goes_on_looks_at_everything_at_once(node: Bench) -> None:
    async with node.plugin() as plugin:
        await node.listed(16, 16)
        await plugin.page("/livez", alive, "alive")
        freeze(plugin.pid)
        with pytest.raises(TimeoutError):
            await plugin.http("/livez", timeout=1.0)
        node.configure(shared(2))
        node.have(gpus(4, {"gpu": 3, "lost": True}))
        await node.kubelet.restart()
        plugin.send(signal.SIGCONT)
        await node.listed(16, 6)  # what retires is listed for 10 s more
        await plugin.page("/livez", alive, "alive")


@pytest.mark.fault("F18")
@pytest.mark.fault("F19")
@pytest.mark.fault("F29")
async def test_no_config_however_bad_takes_anything_away_now_or_after_a_restart(node: Bench) -> None:
    async with node.plugin() as plugin:
        await node.listed(16, 16)
        for text in UNUSABLE.values():
            node.config_file.write_bytes(text.encode(errors="surrogateescape"))
            await plugin.page("/metrics", refused, f"refused: {text[:40]!r}")
            assert node.kubelet.count() == {GPU: (16, 16)}
            node.configure(shared(4))
            await plugin.page("/metrics", well, "all is well")
        counted = f'config_changes_total{{result="refused"}} {len(UNUSABLE)}.0'
        await plugin.page("/metrics", lambda _, text: counted in text, "each refusal was counted")
        node.configure(UNUSABLE["wrong version"])
        await plugin.page("/metrics", refused, "refused")
        await plugin.kill()
    async with node.plugin() as plugin:  # nothing but the checkpoint says what was good
        await node.listed(16, 16)
        await plugin.page("/metrics", refused, "refused")
        assert node.kubelet.failed == {}
        node.configure(shared(8))
        await node.listed(32, 32)
        assert await plugin.stop() == 0


@pytest.mark.fault("F18")
@pytest.mark.parametrize("spoil", ["cut off", "wrong checksum"])
async def test_without_a_usable_checkpoint_a_bad_config_registers_nothing_and_a_good_one_heals(
    node: Bench, spoil: str
) -> None:
    good = json.dumps({"schema": 1, "checksum": "sha256:0", "checkpoint": {"served": None}})
    node.state_dir.mkdir(mode=0o700)
    (node.state_dir / "checkpoint.json").write_text(good[:30] if spoil == "cut off" else good)
    node.configure("version: v2\n")
    async with node.plugin() as plugin:
        await plugin.page("/metrics", refused, "refused")
        assert node.kubelet.registers == []
        await plugin.page("/livez", alive, "alive")
        assert plugin.logged("no checkpoint")
        node.configure(shared(4))
        await node.listed(16, 16)


@pytest.mark.fault("F09")
@pytest.mark.fault("F10")
@pytest.mark.fault("F11")
@pytest.mark.fault("F12")
async def test_a_driver_that_is_absent_hangs_or_loses_a_gpu_stops_no_list_and_no_pod(node: Bench) -> None:
    node.have(gpus(4, {"nvml": "absent"}))
    async with node.plugin() as plugin:
        await plugin.page("/readyz", lambda status, text: status == 503 and "NVML" in text, "not ready")
        assert node.kubelet.registers == []
        node.have(gpus(4))
        await node.listed(16, 16)
        await plugin.page("/readyz", lambda status, _: status == 200, "ready")
        node.have(gpus(4, {"gpu": 2, "lost": True}))
        await node.listed(16, 12)
        node.have(gpus(4, {"gpu": 2, "lost": True}, {"nvml": "hang"}))
        await node.kubelet.admit(Pod("while-it-hangs", limits={GPU: 2}))
        await node.kubelet.restart()
        await node.listed(16, 0)
        await plugin.page("/livez", alive, "alive")
        await plugin.kill()
    async with node.plugin("--fail-on-init-error=false") as plugin:
        await node.listed(16, 0)  # the old ids, from the checkpoint
        node.have(gpus(4))
        await node.listed(16, 16)


@pytest.mark.fault("F20")
async def test_a_mounted_volume_that_is_swapped_all_the_time_is_read_whole(node: Bench) -> None:
    volume = node.folder / "volume"
    texts = {"one": shared(4), "two": shared(5), "last": shared(6)}
    for name, text in texts.items():
        (volume / name).mkdir(parents=True)
        (volume / name / "config.yaml").write_text(text + "#" * 50_000 + "\n")
    (volume / "config.yaml").symlink_to("..data/config.yaml")

    def swap(name: str) -> None:
        (volume / "..tmp").symlink_to(name)
        (volume / "..tmp").replace(volume / "..data")

    swap("one")
    async with node.plugin(f"--config-file={volume / 'config.yaml'}", "--config-poll=0.02s") as plugin:
        await node.listed(16, 16)
        for n in range(400):
            swap("two" if n % 2 else "one")
            await asyncio.sleep(0.003)
        swap("last")
        await node.listed(24, 24)
        assert not plugin.logged("config refused")
        shutil.rmtree(volume)  # the folder itself is gone: what was served stays
        await plugin.page("/metrics", lambda _, text: 'reason="ConfigMissing"' in text, "missing")
        assert node.kubelet.count() == {GPU: (24, 24)}


@pytest.mark.fault("F22")
@pytest.mark.obligation("P13")
async def test_shares_in_use_survive_a_smaller_config_and_the_kubelet_never_crashes(node: Bench) -> None:
    node.have(gpus(1))
    node.configure(shared(8))
    async with node.plugin():
        await node.listed(8, 8)
        pods = [Pod(f"p{n}", limits={GPU: 1}) for n in range(6)]
        for pod in pods:
            await node.kubelet.admit(pod)
        node.configure(shared(4))
        await node.listed(8, 4)
        held = sum(f"::{n}" in device for n in range(4, 8) for device in node.kubelet.admission.in_use[GPU])
        await node.listed(4 + held, 4)
        with suppress(AdmissionFailed):  # with many admissions while ids leave
            while True:
                await node.kubelet.admit(Pod("more", limits={GPU: 1}))
        for pod in pods:
            await node.kubelet.delete(pod)
        with suppress(AdmissionFailed):
            await node.kubelet.admit(Pod("last", limits={GPU: 1}))  # the kubelet counts anew only now
        await node.listed(4, 4)


@pytest.mark.fault("F07")
@pytest.mark.fault("X10")
async def test_a_second_plugin_waits_for_the_first_to_end_and_a_foreign_one_is_reported(node: Bench) -> None:
    async with node.plugin() as first:
        await node.listed(16, 16)
        second = await node.plugin().__aenter__()
        await second.page("/livez", alive, "alive")
        [socket] = node.sockets()
        assert await first.stop() == 0
        await node.kubelet.until(lambda: node.sockets() not in ([], [socket]), "the second registers")
        await node.listed(16, 16)
        foreign = node.folder / "foreign.yaml"
        foreign.write_text(shared(2))
        async with node.plugin(f"--config-file={foreign}", f"--state-dir={node.folder / 'other'}"):
            await second.page("/metrics", lambda _, text: 'reason="CapacityMismatch"' in text, "a mismatch")
            assert len(node.sockets()) == 2


# --- disks, links, environment, memory


@contextmanager
def memory_limit(mib: int) -> Iterator[Path]:
    """A memory cgroup, of version 1 or 2; put a process into it by its `cgroup.procs`."""
    root = Path("/sys/fs/cgroup")
    version_1 = (root / "memory").is_dir()
    group = (root / "memory" if version_1 else root) / f"gpusharing-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(mib << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield group
    finally:
        group.rmdir()


@contextmanager
def full_tmpfs(folder: Path) -> Iterator[None]:
    """A file system without space."""
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=8", "tmpfs", str(folder)], check=True)
    try:
        with suppress(OSError), (folder / "ballast").open("wb") as ballast:
            while ballast.write(b"x" * 4096):
                ballast.flush()
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A file system that takes no writes."""
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@needs_root
@pytest.mark.fault("F25")
@pytest.mark.fault("F01")
@pytest.mark.parametrize("disk", [full_tmpfs, read_only])
async def test_without_a_disk_everything_is_served_and_the_log_says_so(node: Bench, disk: object) -> None:
    with disk(node.state_dir):  # type: ignore[operator]
        async with node.plugin() as plugin:
            await node.listed(16, 16)
            await plugin.says("what is served may be lost with a restart")
            node.configure(shared(8))
            await node.listed(32, 32)
            await node.kubelet.restart()
            await node.listed(32, 32)
            assert await plugin.stop() == 0


@pytest.mark.fault("X08")
async def test_links_that_were_planted_are_not_followed(node: Bench) -> None:
    victim = node.folder / "victim"
    victim.write_text("precious")
    node.state_dir.mkdir(mode=0o700)
    (node.state_dir / "checkpoint.json").symlink_to(victim)
    (node.state_dir / "lock").symlink_to(victim)
    planted = node.kubelet.folder / "gpusharing-gpu-01234567.sock"
    planted.symlink_to(victim)
    async with node.plugin() as plugin:
        await node.listed(16, 16)
        assert "link" in plugin.logged("no checkpoint")[0]["why"]
        assert plugin.logged("not alone on this host")
        assert await plugin.stop() == 0
    assert victim.read_text() == "precious"
    assert planted.is_symlink()
    assert not (node.state_dir / "checkpoint.json").is_symlink()


@pytest.mark.fault("X11")
@pytest.mark.fault("F08")
async def test_the_process_that_asks_nvml_has_no_environment_and_both_are_small(node: Bench) -> None:
    driver = FakeDriver(node.folder / "nvidia", gpus(8))
    node.configure(shared(10))
    hostile = {
        "LD_PRELOAD": "/nowhere/evil.so",
        "PYTHONINSPECT": "",
        "HTTP_PROXY": "http://10.0.0.1:1",
        "all_proxy": "x",
    }
    flags = ("--discovery=nvml", "--inventory=", f"--container-driver-root={driver.root}")
    async with node.plugin(*flags, environment=hostile) as plugin:
        await node.listed(80, 80)
        await plugin.page("/readyz", alive, "ready")
        [worker] = plugin.children()
        assert Path(f"/proc/{worker}/environ").read_bytes() == b""
        assert b"\0-I\0" in Path(f"/proc/{worker}/cmdline").read_bytes()
        for _ in range(20):
            await node.kubelet.restart()
            await node.listed(80, 80)
        assert plugin.rss_anon_mib() <= 70
        counted = 'gpusharing_plugin_streams_total{resource="nvidia.com/gpu"} 21.0'
        await plugin.page("/metrics", lambda _, text: counted in text, "every stream was counted")
        driver.remove()
        os.kill(worker, signal.SIGKILL)
        await node.listed(80, 0)
        restarts = "gpusharing_plugin_nvml_restarts_total 0.0"
        await plugin.page("/metrics", lambda _, text: restarts not in text, "another process was started")
        assert await plugin.stop() == 0


@needs_root
@pytest.mark.fault("F08")
async def test_the_worst_that_can_happen_at_once_fits_into_128_mib(node: Bench) -> None:
    node.have(gpus(16))
    node.configure(shared(128))
    with memory_limit(128) as group:
        async with node.plugin(within=group) as plugin:
            await node.listed(2048, 2048)
            storm = [{"gpu": gpu, "xid": 79} for gpu in range(16)]
            for n in range(10):
                node.have(gpus(16, *storm[:n], {"nvml": "hang"}))
                node.configure(UNUSABLE["1 MiB"] if n % 2 else BOMB)
                await node.kubelet.restart()
                await node.listed(2048, 0)
            node.configure(shared(64))
            await node.listed(2048, 0)
            assert plugin.running
            assert (await plugin.http("/livez"))[0] == 200


# --- sizes


@pytest.mark.obligation("P7")
async def test_sixty_thousand_devices_are_served_and_seventy_thousand_refused(node: Bench) -> None:
    node.have(gpus(16))
    node.configure(shared(128))
    async with node.plugin() as plugin:
        await node.listed(2048, 2048)
        await node.kubelet.admit(Pod("web", limits={GPU: 16}))
        node.configure(shared(3750))
        await node.listed(60_000, 60_000)
        node.configure(shared(4375))
        await plugin.page("/metrics", refused, "refused")
        assert node.kubelet.count() == {GPU: (60_000, 60_000)}
        assert "70000 devices make a list of" in plugin.logged("config refused")[0]["error"]
        await node.kubelet.admit(Pod("more", limits={GPU: 1}))
        await node.kubelet.restart()
        await node.listed(60_000, 60_000)
