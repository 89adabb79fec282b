"""`gpusharing remove-stale-resources`: what it says and does between and after its two looks."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from gpusharing.controller.settings import Settings
from gpusharing.controller.staleresources import remove_stale_resources
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths
from gpusharing.kube.client import Client, Page

pytestmark = pytest.mark.fault("F51")
SHARED = "nvidia.com/gpu.shared"


def node(name: str, uid: str = "1", **shown: str) -> dict[str, Any]:
    """A Node that shows these resources."""
    return {"metadata": {"name": name, "uid": uid}, "status": {"capacity": shown, "allocatable": shown}}


class Server:
    """Shows other Nodes at each look; every node's plugin calls `nvidia.com/gpu.shared` stale."""

    def __init__(self, *looks: list[dict[str, Any]]) -> None:
        self.looks = list(looks)
        self.selectors: list[str] = []
        self.changed: list[tuple[str, list[dict[str, Any]]]] = []
        self.refuses: dict[str, ApiError] = {}
        self.status: Any = {"staleResources": [SHARED]}

    async def list(self, path: str) -> "list[dict[str, Any]]":
        assert path == paths.GPU_NODES
        found = {item["metadata"]["name"] for nodes in self.looks for item in nodes} - {"without-report"}
        return [{"metadata": {"name": name}, "status": self.status} for name in sorted(found)]

    async def pages(self, path: str, *, selector: str) -> AsyncIterator[Page]:
        assert path == paths.NODES
        self.selectors.append(selector)
        for item in self.looks.pop(0):
            yield Page([item], 1)

    async def change(self, path: str, steps: "list[dict[str, Any]]", *, only_metadata: bool) -> dict[str, Any]:
        name = path.removeprefix(f"{paths.NODES}/").removesuffix("/status")
        if name in self.refuses:
            raise self.refuses[name]
        self.changed.append((name, steps))
        return {}


async def run(server: Server, **settings: Any) -> int:
    """Run it without the wait."""
    return await remove_stale_resources(cast(Client, server), Settings(stale_after=0, **settings))


async def test_what_has_0_devices_at_both_looks_goes(capsys: pytest.CaptureFixture[str]) -> None:
    stale = node("gpu-a", **{SHARED: "0", "nvidia.com/gpu": "8"})
    server = Server([stale], [stale])
    assert await run(server) == 0
    [(name, steps)] = server.changed
    assert name == "gpu-a"
    assert steps == [
        {"op": "test", "path": "/metadata/uid", "value": "1"},
        {"op": "test", "path": "/status/capacity/nvidia.com~1gpu.shared", "value": "0"},
        {"op": "remove", "path": "/status/capacity/nvidia.com~1gpu.shared"},
        {"op": "test", "path": "/status/allocatable/nvidia.com~1gpu.shared", "value": "0"},
        {"op": "remove", "path": "/status/allocatable/nvidia.com~1gpu.shared"},
    ]
    assert capsys.readouterr().out == (
        "gpu-a: nvidia.com/gpu.shared has 0 devices\n"
        "looking again in 0 s: what has 0 devices then too goes\n"
        "gpu-a: nvidia.com/gpu.shared removed\n"
    )


async def test_what_changed_between_the_looks_stays_and_the_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    before = [node(name, **{SHARED: "0"}) for name in ("again", "anew", "gone", "removed")]
    now = [node("again", **{SHARED: "8"}), node("anew", uid="2", **{SHARED: "0"}), node("removed")]
    server = Server(before, now)
    assert await run(server) == 0
    assert server.changed == []
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "again: nvidia.com/gpu.shared stays: the Node has 8 of it, 8 of them for pods",
        "anew: nvidia.com/gpu.shared stays: the Node is another one by now, or none",
        "gone: nvidia.com/gpu.shared stays: the Node is another one by now, or none",
        "removed: nvidia.com/gpu.shared stays: it is served again, or gone",
    ]


async def test_without_anything_to_remove_it_does_not_wait_and_says_what_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    served, unknown = node("gpu-a", **{SHARED: "8"}), node("without-report", **{SHARED: "0"})
    assert await run(Server([served, unknown])) == 0
    assert capsys.readouterr().out == (
        "gpu-a: nvidia.com/gpu.shared stays: the Node has 8 of it, 8 of them for pods\nthere is nothing to remove\n"
    )


async def test_only_selected_nodes_are_looked_at() -> None:
    server = Server([])
    await run(server, node_selector="pool=a")
    assert server.selectors == ["pool=a"]


async def test_a_node_whose_plugin_says_what_cannot_be_read_is_left_alone() -> None:
    server = Server([node("gpu-a", **{SHARED: "0"})])
    server.status = {"staleResources": [SHARED], "gpus": "many"}
    assert await run(server) == 0


@pytest.mark.parametrize("status", [404, 422], ids=["gone", "changed"])
async def test_a_node_that_changes_under_the_write_is_left_alone(
    capsys: pytest.CaptureFixture[str], status: int
) -> None:
    nodes = [node("gpu-a", **{SHARED: "0"}), node("gpu-b", **{SHARED: "0"})]
    server = Server(nodes, nodes)
    server.refuses["gpu-a"] = ApiError("no", status=status)
    assert await run(server) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "gpu-a: nvidia.com/gpu.shared stays: the Node has changed just now",
        "gpu-b: nvidia.com/gpu.shared removed",
    ]


async def test_a_write_that_fails_is_told_the_others_are_made_and_the_exit_code_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = [node("gpu-a", **{SHARED: "0"}), node("gpu-b", **{SHARED: "0"})]
    server = Server(nodes, nodes)
    server.refuses["gpu-a"] = ApiError("patch: 500 InternalError", status=500)
    assert await run(server) == 1
    assert "gpu-a: patch: 500 InternalError" in capsys.readouterr().out
    assert [name for name, _ in server.changed] == ["gpu-b"]


async def test_a_missing_right_ends_it_at_once() -> None:
    nodes = [node("gpu-a", **{SHARED: "0"}), node("gpu-b", **{SHARED: "0"})]
    server = Server(nodes, nodes)
    server.refuses["gpu-a"] = ApiError("forbidden", status=403)
    with pytest.raises(ApiError, match="forbidden"):
        await run(server)
    assert server.changed == []
