"""What kstatus, and with it Flux, concludes from recorded policies and placements; a small Go test asks it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RECORDED = REPOSITORY / "tests/vectors/kstatus"

# the first run on a machine fetches and compiles kstatus
pytestmark = pytest.mark.timeout(600)


def ask_kstatus(objects: Path) -> subprocess.CompletedProcess[str]:
    """Compare kstatus' verdict on each object of a folder with the one in its file name."""
    environment = {**os.environ, "KSTATUS_OBJECTS": str(objects), "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    # built as the API server is, so that what both need is compiled once
    command = ["go", "test", "-trimpath", "-vet=off", "-count=1", "./..."]
    module = REPOSITORY / "hack/kstatus"
    return subprocess.run(command, cwd=module, env=environment, capture_output=True, text=True, check=False)


def test_kstatus_says_of_each_recorded_object_what_its_file_name_claims() -> None:
    run = ask_kstatus(RECORDED)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_wrong_claim_is_noticed(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "conflicting.Failed.yaml", tmp_path / "conflicting.Current.yaml")
    run = ask_kstatus(tmp_path)
    assert run.returncode == 1
    assert "kstatus says Failed" in run.stdout
