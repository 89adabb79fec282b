"""A config file: its content counts, however it is replaced. On a fake clock (looptime)."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpusharing.api.yamltext import MAX_BYTES
from gpusharing.core.configtext import read_foreign
from gpusharing.core.errors import InvalidInput
from gpusharing.deviceplugin.config_source import ConfigFileSource, Desired, read_text

pytestmark = pytest.mark.looptime
ONE, TWO = "version: v1\n", "version: v1\nflags: {migStrategy: mixed}\n"


@asynccontextmanager
async def following(path: Path) -> AsyncIterator[tuple[ConfigFileSource, list[Desired]]]:
    """A source that is followed, and what it has told so far."""
    source, told = ConfigFileSource(path), list[Desired]()
    task = asyncio.create_task(source.follow(told.append))
    await asyncio.sleep(0.01)
    try:
        yield source, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def texts(told: list[Desired]) -> list[str | None]:
    return [desired.text for desired in told]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(ONE)
    return path


async def test_it_is_told_at_once_and_never_again_while_it_stays(file: Path) -> None:
    async with following(file) as (_, told):
        await asyncio.sleep(60)
        os.utime(file)
        await asyncio.sleep(60)
    assert told == [Desired("config.yaml", ONE)]


async def test_a_change_is_told_within_two_looks(file: Path) -> None:
    async with following(file) as (_, told):
        file.write_text(TWO)
        await asyncio.sleep(1.3)
        assert texts(told) == [ONE, TWO]


async def test_a_signal_makes_it_look_at_once(file: Path) -> None:
    async with following(file) as (source, told):
        file.write_text(TWO)
        source.reread()
        await asyncio.sleep(0.25)
        assert texts(told) == [ONE, TWO]
        source.reread()
        await asyncio.sleep(0.25)
        assert len(told) == 2


@pytest.mark.fault("F20")
async def test_a_file_that_is_still_being_written_does_not_count(file: Path) -> None:
    async with following(file) as (_, told):
        await asyncio.sleep(0.95)  # a look follows in 40 ms
        file.write_text("")
        await asyncio.sleep(0.15)  # what it sees is empty, which would be plain GPUs
        file.write_text(TWO)
        await asyncio.sleep(2)
    assert texts(told) == [ONE, TWO]


@pytest.mark.fault("F20")
async def test_a_file_that_goes_is_missing_and_counts_again_when_it_is_back(file: Path) -> None:
    async with following(file) as (_, told):
        file.unlink()
        await asyncio.sleep(2)
        file.write_text(ONE)
        await asyncio.sleep(2)
    missing = Desired("config.yaml", missing=f"config file {file}: No such file or directory")
    assert told == [Desired("config.yaml", ONE), missing, Desired("config.yaml", ONE)]


async def test_a_file_that_was_never_there_is_told_to_be_missing_and_so_is_its_folder(tmp_path: Path) -> None:
    async with following(tmp_path / "none" / "config.yaml") as (_, told):
        pass
    [desired] = told
    assert (desired.text, desired.missing) == (
        None,
        f"config file {tmp_path}/none/config.yaml: No such file or directory",
    )


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "unreadable-folder"])
async def test_what_is_no_file_is_missing_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.yaml"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case _:
            (tmp_path / "file").write_text("")
            path = tmp_path / "file" / "config.yaml"
    async with following(path) as (_, told):
        pass
    [desired] = told
    assert desired.text is None
    assert desired.missing.startswith(f"config file {path}: ")


async def test_the_empty_config_of_nvidias_config_manager_is_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").symlink_to("/dev/null")
    assert read_text(tmp_path / "config.yaml") == ""


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    "raw", [b"x" * (MAX_BYTES * 3), b"\xff\xfe\x00", "version: v1".encode("utf-16")], ids=["big", "bytes", "utf-16"]
)
async def test_a_file_that_is_too_big_or_not_utf_8_is_told_as_it_is_and_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "c").write_bytes(raw)
    text = read_text(tmp_path / "c")
    assert len(text) <= MAX_BYTES + 1
    with pytest.raises(InvalidInput):
        read_foreign(text)


# --- swapped as the kubelet does it


class Volume:
    """A mounted ConfigMap: `config.yaml` → `..data/config.yaml`, and `..data` → a folder that is swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "config.yaml"
        self.file.symlink_to("..data/config.yaml")
        self._number = 0

    def swap(self, text: str) -> None:
        """Put in a new content, and remove the old one, as the kubelet's atomic writer does."""
        old, new = self.folder / f"..{self._number}", self.folder / f"..{self._number + 1}"
        self._number += 1
        new.mkdir()
        (new / "config.yaml").write_text(text)
        (self.folder / "..tmp").symlink_to(new.name)
        (self.folder / "..tmp").rename(self.folder / "..data")
        if old.exists():
            (old / "config.yaml").unlink()
            old.rmdir()


@pytest.mark.fault("F20")
async def test_a_swapped_volume_is_told(tmp_path: Path) -> None:
    volume = Volume(tmp_path)
    volume.swap(ONE)
    async with following(volume.file) as (_, told):
        volume.swap(TWO)
        await asyncio.sleep(2)
    assert texts(told) == [ONE, TWO]


@pytest.mark.fault("F20")
def test_a_volume_that_is_swapped_in_a_loop_is_always_read_whole(tmp_path: Path) -> None:
    volume, contents, stop = Volume(tmp_path), [ONE, TWO * 2000], threading.Event()
    volume.swap(ONE)

    def swap_on() -> None:
        while not stop.is_set():
            volume.swap(contents[volume._number % 2])

    swapping = threading.Thread(target=swap_on)
    swapping.start()
    try:
        seen = {read_text(volume.file) for _ in range(2_000)}
    finally:
        stop.set()
        swapping.join()
    assert seen == set(contents)
