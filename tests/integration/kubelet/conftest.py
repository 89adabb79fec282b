"""A kubelet double in a folder of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.kubeletdouble import Behaviour, KubeletDouble


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubelet's folder for device plugins."""
    path = tmp_path_factory.mktemp("k") / "dp"
    path.mkdir()
    return path


@pytest.fixture(params=["1.34", "1.37"])
async def kubelet(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[KubeletDouble]:
    """A kubelet of either way to treat two endpoints of one resource; it admits pods anew when a test says so."""
    async with KubeletDouble(folder, rule=request.param, behaviour=Behaviour(dial_limit=1.0, readmit=3600)) as double:
        yield double
