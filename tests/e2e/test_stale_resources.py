"""Names of resources that nothing serves: how a real kubelet keeps them, and what becomes of one that is taken away."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.cluster.api import NODES
from tests.support.cluster.node import GPU
from tests.support.gpunode import GPUS, GpuNode
from tests.support.manifests import CONFIG, overlay, render
from tests.support.oddplugin import OddPlugin
from tests.support.pods import PODS, Pod, pod_object

from gpusharing.api import names
from gpusharing.controller.settings import Settings
from gpusharing.controller.staleresources import run

pytestmark = pytest.mark.fault("F51")
SHARED = "nvidia.com/gpu.shared"
# which no test has our plugin serve: it would hold on to its retiring ids for a while, also in place of another plugin
OTHERS = "nvidia.com/mig-3g.20gb"
"""A resource of a plugin that is not ours."""


@pytest.fixture
def node(gpu_node: GpuNode, tmp_path: Path) -> Iterator[GpuNode]:
    """The node, where config/components/stale-resources is installed."""
    component = CONFIG / "components" / "stale-resources"
    documents = [
        document
        for document in render(overlay(tmp_path, components=[component]))
        if document["metadata"]["name"].endswith("stale-resources") and document["kind"] != "CronJob"
    ]
    text = yaml.safe_dump_all(documents)
    gpu_node.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    yield gpu_node
    gpu_node.cluster.kubectl("delete", "--wait=false", "-f", "-", stdin=text)


def forget(node: GpuNode) -> None:
    """Have the kubelet forget resources without a plugin, as it does by itself after five minutes."""
    node.kubelet.kill()
    node.kubelet.checkpoint.unlink(missing_ok=True)
    node.kubelet.start()
    node.becomes_ready()


def take(node: GpuNode, resource: str) -> None:
    """Take a name from the Node as an administrator."""
    status = node.object()["status"]
    key = resource.replace("/", "~1")
    parts = [part for part in ("capacity", "allocatable") if resource in status[part]]
    steps = [{"op": "remove", "path": f"/status/{part}/{key}"} for part in parts]
    node.api.patch(NODES, node.name, steps, kind="json", subresource="status")


def remove_stale(node: GpuNode) -> None:
    """Run the command under the account of the component, without its wait."""
    account = node.cluster.kubeconfig_for("gpu-sharing-stale-resources", names.NAMESPACE)
    assert asyncio.run(run(Settings(kubeconfig=str(account), stale_after=0))) == 0


def shows(node: GpuNode, resource: str, count: str | None) -> None:
    """Wait until the Node shows so many, in capacity and allocatable; None = not even the name."""

    def check() -> None:
        status = node.object()["status"]
        assert (status["capacity"].get(resource), status["allocatable"].get(resource)) == (count, count)

    node.eventually(check, f"the node shows {resource}: {count}")


def is_stale(node: GpuNode, resource: str) -> None:
    """Wait until the plugin calls it stale."""

    def check() -> None:
        assert resource in node.report().get("staleResources", [])

    node.eventually(check, f"{resource} is stale")


def renamed(replicas: int) -> dict[str, object]:
    """Sharing under the name with `.shared`."""
    resources = [{"name": GPU, "replicas": replicas}]
    return {"strategy": "time-slicing", "renameByDefault": True, "resources": resources}


def bound_by_hand(node: GpuNode, name: str) -> Pod:
    """A pod of one share that no scheduler has placed."""
    body = pod_object(name, {GPU: 1})
    body["spec"]["nodeName"] = node.name
    node.api.create(PODS, body)
    return Pod(node.api, node.enclosure.inside("/var/log/pods"), name)


def test_a_renamed_resource_leaves_a_name_that_goes_and_stays_away(node: GpuNode) -> None:
    node.policy(replicas=4)
    node.offers(4 * GPUS)
    node.policy(sharing=renamed(4))
    node.offers(4 * GPUS, SHARED)
    shows(node, GPU, "0")
    is_stale(node, GPU)

    take(node, GPU)
    shows(node, GPU, "0")  # the kubelet, which knows it for five minutes more, writes it back

    forget(node)
    node.offers(4 * GPUS, SHARED)
    shows(node, GPU, "0")  # nobody takes it away
    assert "OutOfnvidia.com/gpu" in bound_by_hand(node, "before").fails()

    remove_stale(node)

    shows(node, GPU, None)
    node.policy(sharing=renamed(8))
    node.offers(8 * GPUS, SHARED)  # the kubelet has written the status since
    shows(node, GPU, None)
    # the one thing that the name was good for: docs/guides/uninstall.md
    assert "NVIDIA_VISIBLE_DEVICES" not in bound_by_hand(node, "after").runs().env()


async def test_the_kubelet_writes_back_what_a_living_plugin_of_others_has(node: GpuNode) -> None:
    plugin = OddPlugin(OTHERS)
    await plugin.start(node.kubelet.folder)  # without devices so far
    try:
        await asyncio.to_thread(shows, node, OTHERS, "0")
        await asyncio.to_thread(is_stale, node, OTHERS)  # by its name it could be ours
        await asyncio.to_thread(remove_stale, node)
        await asyncio.to_thread(shows, node, OTHERS, "0")
        plugin.show([("a", "Healthy")])
        await asyncio.to_thread(shows, node, OTHERS, "1")
        await asyncio.to_thread(take, node, OTHERS)
        await asyncio.to_thread(shows, node, OTHERS, "1")
    finally:
        await plugin.stop()
