"""Socket names, what a dead plugin left behind, and the lock of the host."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.core.errors import InvalidInput
from gpusharing.deviceplugin.sockets import (
    MAX_NAME_BYTES,
    FolderGone,
    HostLock,
    LockTimes,
    PluginFolder,
    new_socket_name,
)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginFolder]:
    opened = PluginFolder(tmp_path_factory.mktemp("k"))
    yield opened
    opened.close()


def bind(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    return made


def dead(path: Path) -> None:
    bind(path).close()


@given(short=st.text(alphabet="abcXYZ09-_.", min_size=1, max_size=63))
def test_a_name_is_new_each_time_and_at_most_75_bytes(short: str) -> None:
    one, other = new_socket_name(f"nvidia.com/{short}"), new_socket_name(f"nvidia.com/{short}")
    assert one != other
    assert len(one.encode()) <= MAX_NAME_BYTES
    assert one.startswith(f"gpusharing-{short[:50]}-")
    assert one.endswith(".sock")


@given(length=st.integers(1, 200))
def test_the_whole_path_has_at_most_107_bytes_or_the_folder_is_refused(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    path = tmp_path_factory.getbasetemp() / ("d" * length)
    path.mkdir(exist_ok=True)
    try:
        folder = PluginFolder(path)
    except InvalidInput:
        assert len(os.fsencode(path)) >= 107 - len("gpusharing--01234567.sock") - 1
        return
    assert len(os.fsencode(path / folder.new_name(f"nvidia.com/{'r' * 63}"))) <= 107
    folder.close()


def test_only_dead_sockets_of_our_pattern_are_removed(folder: PluginFolder) -> None:
    dead(folder.path / "gpusharing-gpu-01234567.sock")
    dead(folder.path / "gpusharing-mig-1g.5gb-89abcdef.sock")
    dead(folder.path / "nvidia-gpu.sock")
    dead(folder.path / "kubelet.sock")
    dead(folder.path / "gpusharing-gpu-0123456.sock")
    dead(folder.path / "gpusharing-gpu-0123456X.sock")
    (folder.path / "gpusharing-gpu-00000000.sock").write_text("a file")
    (folder.path / "kubelet_internal_checkpoint").write_text("{}")
    with bind(folder.path / "gpusharing-gpu-11111111.sock") as alive:
        alive.listen()
        kept = folder.names() - {"gpusharing-gpu-01234567.sock", "gpusharing-mig-1g.5gb-89abcdef.sock"}
        assert folder.remove_stale() == ("gpusharing-gpu-01234567.sock", "gpusharing-mig-1g.5gb-89abcdef.sock")
        assert folder.names() == kept


def test_a_listener_with_a_full_queue_is_alive(folder: PluginFolder) -> None:
    path = folder.path / "gpusharing-gpu-01234567.sock"
    with bind(path) as busy:
        busy.listen(0)
        waiting = []
        for _ in range(8):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.setblocking(False)
            client.connect_ex(str(path))
            waiting.append(client)
        assert folder.remove_stale() == ()
        for client in waiting:
            client.close()


@pytest.mark.fault("X08")
def test_a_link_with_a_name_of_ours_is_neither_followed_nor_removed(
    folder: PluginFolder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = tmp_path_factory.mktemp("t") / "s"
    dead(target)
    link = folder.path / "gpusharing-gpu-01234567.sock"
    link.symlink_to(target)
    assert folder.remove_stale() == ()
    folder.remove(link.name)
    assert link.is_symlink()
    assert target.exists()


@pytest.mark.fault("X08")
async def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    lock = HostLock(tmp_path / "lock")
    assert not await lock.take()
    assert "cannot open the lock" in lock.problem
    assert not (tmp_path / "victim").exists()


def test_another_kubelet_is_told_from_the_last_and_only_a_socket_counts(folder: PluginFolder) -> None:
    assert folder.kubelet() is None
    folder.kubelet_socket.write_text("")
    assert folder.kubelet() is None
    folder.kubelet_socket.unlink()
    dead(folder.kubelet_socket)
    first = folder.kubelet()
    assert first == folder.kubelet()
    folder.kubelet_socket.unlink()
    dead(folder.kubelet_socket)
    assert folder.kubelet() not in {None, first}


@pytest.mark.fault("F03")
def test_a_folder_that_was_removed_is_gone_although_a_new_one_stands_there(folder: PluginFolder) -> None:
    folder.check()
    folder.path.rmdir()
    folder.path.mkdir()
    with pytest.raises(FolderGone, match="was removed"):
        folder.check()


def test_a_folder_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(FolderGone, match="cannot open the device-plugins folder"):
        PluginFolder(tmp_path / "missing")


@pytest.mark.fault("F07")
@pytest.mark.looptime
async def test_the_second_plugin_waits_30_s_for_the_lock_then_goes_on_and_says_so(tmp_path: Path) -> None:
    first, second = HostLock(tmp_path / "lock"), HostLock(tmp_path / "lock")
    assert await first.take()
    began = asyncio.get_running_loop().time()
    assert not await second.take()
    assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=0.2)
    assert "another device plugin holds" in second.problem
    first.release()
    assert second.try_take()
    assert second.problem == ""
    second.release()


@pytest.mark.fault("F07")
@pytest.mark.looptime
async def test_serving_beside_another_plugin_is_said_until_that_one_has_ended(tmp_path: Path) -> None:
    first, second, told = HostLock(tmp_path / "lock"), HostLock(tmp_path / "lock"), list[str]()
    assert await first.take()
    assert not await second.take()
    trying = asyncio.create_task(second.until_ours(told.append))
    await asyncio.sleep(60)
    assert told == [second.problem]
    first.release()
    await trying
    assert told[1:] == [""]
    second.release()


@pytest.mark.fault("F07")
@pytest.mark.looptime
async def test_the_second_plugin_has_the_lock_as_soon_as_the_first_is_gone(tmp_path: Path) -> None:
    first, second = HostLock(tmp_path / "lock"), HostLock(tmp_path / "lock", LockTimes())
    await first.take()
    taking = asyncio.create_task(second.take())
    await asyncio.sleep(12)
    first.release()
    assert await taking
    assert asyncio.get_running_loop().time() < 12.3
    second.release()


@pytest.mark.fault("F25")
async def test_no_place_for_the_lock_is_no_reason_to_wait(tmp_path: Path) -> None:
    lock = HostLock(tmp_path / "missing" / "lock")
    assert not await lock.take()
    assert "serving without it" in lock.problem
    assert not lock.try_take()
    lock.release()
