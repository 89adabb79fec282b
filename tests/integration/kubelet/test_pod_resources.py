"""Who holds what, read from the double's pod resources API."""

import asyncio
from pathlib import Path

import pytest
from tests.support.kubeletdouble import KubeletDouble, Pod
from tests.support.kubeletplugin import Plugin, serving
from tests.support.kubeletview import GPU, StubView

from gpusharing.deviceplugin.pod_resources import PodResources


@pytest.mark.fault("F23")
async def test_pod_resources_say_who_holds_what(kubelet: KubeletDouble, folder: Path) -> None:
    pods = PodResources(kubelet.pod_resources_socket)
    async with Plugin(folder, StubView()):
        await serving(kubelet, 8)
        assert await pods.pods() == ()
        await kubelet.admit(Pod("a", limits={GPU: 2}, namespace="team"))
        [row] = await pods.pods() or ()
        assert (row.namespace, row.pod, row.container, row.resource) == ("team", "a", "main", GPU)
        assert sorted(row.ids) == ["GPU-0", "GPU-1"]
        await kubelet.restart()
        await serving(kubelet, 8)
        assert len(await pods.allocatable() or {}) == 1
    await pods.close()


@pytest.mark.fault("F23")
async def test_pod_resources_that_are_missing_limited_or_large(kubelet: KubeletDouble) -> None:
    missing = PodResources(kubelet.pod_resources_socket.with_name("missing.sock"))
    assert await missing.pods() is None
    assert "cannot read the kubelet's pod resources" in missing.problem
    await missing.close()

    pods = PodResources(kubelet.pod_resources_socket)
    kubelet.pod_resources.per_second = 0.0
    assert [await pods.pods() for _ in range(12)] == [()] * 10 + [None] * 2
    assert "rejected by rate limit" in pods.problem
    kubelet.pod_resources.limited = False
    assert await pods.pods() == ()
    assert pods.problem == ""
    kubelet.pod_resources.padding = 20_000
    assert await pods.pods() == ()
    await pods.close()


@pytest.mark.fault("F23")
async def test_pod_resources_that_do_not_answer_are_given_up_after_the_deadline(tmp_path: Path) -> None:
    connections: list[asyncio.StreamWriter] = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    silent = await asyncio.start_unix_server(swallow, tmp_path / "s")
    pods = PodResources(tmp_path / "s", deadline=0.05)
    assert await pods.allocatable() is None
    assert pods.problem == "no answer from the kubelet's pod resources API within 0.05 s"
    await pods.close()
    for writer in connections:
        writer.transport.abort()
    silent.close()
    await silent.wait_closed()
