"""What cleanup releases of placements; nodes and records are released against the real server (tests/faults)."""

from typing import Any

import pytest
from tests.unit.controller.apidouble import ApiDouble
from tests.unit.controller.making import make_context

from gpusharing.api import names
from gpusharing.controller.cleanup import release_all
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths

pytestmark = pytest.mark.looptime
ENTRY = {"resource": "place.gpusharing.io/x.p.team-a", "gpus": ["GPU-0"]}
WANTED = {**ENTRY, "placement": "team-a/p", "service": "x", "exclusive": True}


def gpu_node(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": names.NODE_KIND, "metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": "7"}, **more}


async def test_every_node_that_has_reservations_is_told_to_release_them(capsys: pytest.CaptureFixture[str]) -> None:
    api = ApiDouble()
    api.lists[paths.GPU_NODES] = [
        gpu_node("told", spec={"reservations": [WANTED]}),
        gpu_node("kept", status={"reservations": [{**ENTRY, "state": "Active"}]}),
        gpu_node("free", spec={"reservations": []}),
        gpu_node("never"),
    ]
    assert await release_all(make_context(api)) == 0
    written = {write.path: write.body["spec"] for write in api.written() if write.path.startswith(paths.GPU_NODES)}
    assert written == {f"{paths.GPU_NODES}/{name}": {"reservations": []} for name in ("told", "kept")}
    assert "told: reservations of placements are released as soon as no pod has their GPUs" in capsys.readouterr().out


async def test_a_node_that_cannot_be_told_is_a_failure() -> None:
    api = ApiDouble()
    api.lists[paths.GPU_NODES] = [gpu_node("told", spec={"reservations": [WANTED]})]
    api.fails(f"{paths.GPU_NODES}/told", ApiError("no", status=403))
    assert await release_all(make_context(api)) == 1
