"""What a plugin that ends for good leaves on its host: nothing of its own, and everything of others."""

import os
from pathlib import Path

import pytest

from gpusharing.deviceplugin import leave
from gpusharing.deviceplugin.sockets import HostLock
from gpusharing.deviceplugin.statefile import CHECKPOINT, LEDGER, StateFile

CDI = "k8s.device-plugin.nvidia.com-gpu.json"


def leave_node(host: Path) -> int:
    return leave.main([f"--state-dir={host / 'state'}", f"--cdi-dir={host / 'cdi'}"])


async def kept(host: Path) -> None:
    """What a plugin keeps, written by what writes it; and what one left that was killed while it wrote."""
    state, cdi = host / "state", host / "cdi"
    for file in (CHECKPOINT, LEDGER):
        assert not StateFile(file.kind, str, str).save(state, "content")
    assert await HostLock(state / "lock").take()
    (state / ".checkpoint-0123456789abcdef").touch()
    cdi.mkdir()
    for name in (CDI, f".{CDI}.7"):
        (cdi / name).touch()


async def test_everything_that_a_plugin_keeps_goes_with_its_folders(tmp_path: Path) -> None:
    await kept(tmp_path)
    assert leave_node(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


async def test_what_others_put_there_stays(tmp_path: Path) -> None:
    await kept(tmp_path)
    foreign = [tmp_path / "state/notes.txt", tmp_path / "cdi/vendor.example.com-net.json", tmp_path / "cdi/lock"]
    for file in foreign:
        file.touch()
    assert leave_node(tmp_path) == 0
    assert sorted(file for file in tmp_path.rglob("*") if file.is_file()) == sorted(foreign)


def test_where_nothing_is_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert leave_node(tmp_path) == 0
    assert leave.main([]) == 0
    assert list(tmp_path.iterdir()) == []


def test_no_link_is_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "checkpoint.json").touch()
    (tmp_path / "state").symlink_to(other)
    assert leave_node(tmp_path) == 1
    assert "state cannot be opened: Not a directory" in capsys.readouterr().err
    assert os.listdir(other) == ["checkpoint.json"]


def test_what_cannot_be_removed_is_named_and_the_rest_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state/checkpoint.json").mkdir(parents=True)
    (tmp_path / "state/lock").touch()
    assert leave_node(tmp_path) == 1
    assert "checkpoint.json cannot be removed: " in capsys.readouterr().err
    assert os.listdir(tmp_path / "state") == ["checkpoint.json"]
