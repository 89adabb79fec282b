"""The files of the state folder: whole or not at all, ours or none, and a disk that fails is a sentence.

All of it is the same for both, and is asserted on the checkpoint; the ledger's own is that it reads what it wrote.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpusharing.core.checkpoint import Checkpoint, SavedConfig
from gpusharing.core.ledger import Claim, Ledger
from gpusharing.deviceplugin.statefile import CHECKPOINT, LEDGER, MAX_BYTES

NAME, load, save = CHECKPOINT.name, CHECKPOINT.load, CHECKPOINT.save


def checkpoint(text: str = "version: v1\n") -> Checkpoint:
    config = SavedConfig(name="one", text=text, rendered=True)
    return Checkpoint(served=config, runtime="containerd://2.1.4", configs=[config], lists=[])


ONE, TWO = checkpoint(), checkpoint("version: v1\nflags: {migStrategy: mixed}\n")


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A folder with a good checkpoint."""
    folder = tmp_path / "state"
    assert save(folder, ONE) == ""
    return folder


def test_what_is_saved_is_loaded(state: Path) -> None:
    assert load(state) == (ONE, "")
    assert save(state, TWO) == ""
    assert load(state) == (TWO, "")
    assert files(state) == [NAME]


def test_both_files_lie_beside_one_another(state: Path) -> None:
    ledger = Ledger({"GPU-1": Claim("reserved", "team/p", ("place.gpusharing.io/a.p.team",))}, {}, 7)
    assert LEDGER.load(state) == (None, "")
    assert LEDGER.save(state, ledger) == ""
    assert (LEDGER.load(state), load(state)) == ((ledger, ""), (ONE, ""))
    assert files(state) == [NAME, "reservations.json"]


def test_without_a_folder_or_a_file_there_is_none_and_nothing_is_wrong(tmp_path: Path) -> None:
    assert load(tmp_path / "none") == (None, "")
    assert load(tmp_path) == (None, "")


def test_nobody_else_may_look_at_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert save(tmp_path / "new" / "state", ONE) == ""
    finally:
        os.umask(before)
    folder = tmp_path / "new" / "state"
    assert (mode_of(folder), mode_of(folder / NAME)) == (0o700, 0o600)
    folder.chmod(0o755)
    assert save(folder, ONE) == ""
    assert mode_of(folder) == 0o700


@pytest.mark.fault("F18")
@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "binary", "newer", "huge"])
def test_a_damaged_checkpoint_is_ignored_reported_and_replaced(state: Path, damage: str) -> None:
    file = state / NAME
    content = file.read_bytes()
    match damage:
        case "empty":
            file.write_bytes(b"")
        case "truncated":
            file.write_bytes(content[: len(content) // 2])
        case "flipped":
            file.write_bytes(content.replace(b"containerd", b"containere"))
        case "binary":
            file.write_bytes(b"\xff\x00" * 50)
        case "newer":
            file.write_bytes(content.replace(b'"schema":1', b'"schema":9'))
        case _:
            os.truncate(file, MAX_BYTES + 1)
    found, problem = load(state)
    assert found is None
    assert problem.startswith(f"checkpoint {file} ")
    assert save(state, TWO) == ""
    assert load(state) == (TWO, "")


def test_a_damaged_ledger_is_ignored_and_replaced(state: Path) -> None:
    assert LEDGER.save(state, Ledger(generation=7)) == ""
    file = state / LEDGER.name
    file.write_bytes(file.read_bytes().replace(b"7", b"8"))
    assert LEDGER.load(state) == (
        None,
        f"reservations {file} is ignored: the checksum is wrong. hint: it is made anew from what pods hold, "
        "once the API server says what is reserved",
    )
    file.write_bytes(CHECKPOINT.encode(ONE).encode())
    assert LEDGER.load(state)[0] is None


# --- what somebody planted (X08)


@pytest.mark.fault("X08")
def test_a_link_in_its_place_is_not_followed_and_reported(state: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copy(state / NAME, other)
    (state / NAME).unlink()
    (state / NAME).symlink_to(other)
    assert load(state) == (
        None,
        f"checkpoint {state / NAME} cannot be read: it is a symbolic link, which is not followed",
    )
    before = other.read_bytes()
    assert save(state, TWO) == ""
    assert other.read_bytes() == before
    assert load(state) == (TWO, "")


@pytest.mark.fault("X08")
def test_a_link_in_the_folders_place_is_not_followed_and_reported(state: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(state)
    said = "it is a symbolic link, which is not followed"
    assert load(link) == (None, f"checkpoint {link / NAME} cannot be read: {said}")
    assert save(link, TWO) == f"checkpoint {link / NAME} cannot be written: {said}"
    assert load(state) == (ONE, "")


@pytest.mark.fault("X08")
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_neither_read_nor_waited_for(state: Path, kind: str) -> None:
    (state / NAME).unlink()
    os.mkfifo(state / NAME) if kind == "pipe" else (state / NAME).mkdir()
    found, problem = load(state)
    assert found is None
    assert "cannot be read: " in problem


@pytest.mark.fault("X08")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_of_somebody_elses_is_not_trusted(state: Path) -> None:
    os.chown(state / NAME, 12345, 12345)
    assert load(state) == (None, f"checkpoint {state / NAME} cannot be read: it belongs to user 12345")


def test_what_an_ended_process_left_half_written_is_removed(state: Path) -> None:
    (state / ".checkpoint-0123456789abcdef").write_text("half")
    (state / "somebody-elses").write_text("")
    assert load(state) == (ONE, "")
    assert files(state) == [NAME, "somebody-elses"]


# --- disks that fail (F25)

SAVE = """
import sys
from pathlib import Path
from tests.unit.deviceplugin.test_statefile import checkpoint
from gpusharing.deviceplugin.statefile import CHECKPOINT
{before}
print(CHECKPOINT.save(Path(sys.argv[1]), checkpoint("x" * 200_000)))
"""


def saved_elsewhere(folder: Path, *, before: str = "", mount: str = "") -> str:
    """What another process says that saves 200 KB into the folder; `mount` runs first, where nobody else sees it."""
    command = [sys.executable, "-c", SAVE.format(before=before), str(folder)]
    if mount:
        command = ["unshare", "--mount", "sh", "-ec", f'{mount}\nexec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.fault("F25")
def test_a_limit_on_files_is_said_and_the_old_checkpoint_stays(state: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    assert saved_elsewhere(state, before=limit) == f"checkpoint {state / NAME} cannot be written: File too large"
    assert load(state) == (ONE, "")
    assert files(state) == [NAME]


@pytest.mark.fault("F25")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ("mount -t tmpfs -o size=64k tmpfs {folder}", "No space left on device"),
        ("mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}", "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_is_full_or_read_only_is_said_and_the_old_checkpoint_stays(
    state: Path, mount: str, said: str
) -> None:
    assert saved_elsewhere(state, mount=mount.format(folder=state)) == (
        f"checkpoint {state / NAME} cannot be written: {said}"
    )
    assert load(state) == (ONE, "")
    assert files(state) == [NAME]


@pytest.mark.fault("F25")
def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written: " in save(tmp_path / "file" / "state", ONE)
