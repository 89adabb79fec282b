"""Imports beside the event loop."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gpusharing.deviceplugin.imports import import_beside


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[threading.Event]:
    """What the import of the module `slow_to_import` waits for."""
    sys.modules["its_gate"] = its_gate = ModuleType("its_gate")
    vars(its_gate)["gate"] = gate = threading.Event()
    (tmp_path / "slow_to_import.py").write_text("from its_gate import gate\nwent_on = gate.wait(20)\n")
    sys.path.insert(0, str(tmp_path))
    yield gate
    sys.path.remove(str(tmp_path))
    del sys.modules["its_gate"], sys.modules["slow_to_import"]


@pytest.mark.obligation("P5")
@pytest.mark.fault("F08")
async def test_the_loop_turns_while_a_library_is_imported(gate: threading.Event) -> None:
    asyncio.get_running_loop().call_soon(gate.set)
    await import_beside("slow_to_import")
    assert sys.modules["slow_to_import"].went_on
