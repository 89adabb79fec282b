"""Ends the device plugins for good, and leaves each node as it was before them. The part of `cleanup` for our plugin.

A plugin that ends cannot know whether another one follows, which goes on from the files it finds: so it leaves them.
Here it is known. The DaemonSet is told to be nowhere; on each node a pod of the same image then removes the plugin's
files (`gpusharing leave-node`). The Node's condition goes last: what still has it is not finished, for a second run.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gpusharing.api.node import READY_CONDITION
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths
from gpusharing.kube.apply import remove_node_condition
from gpusharing.kube.client import Client, JsonObject

PLUGINS = "app.kubernetes.io/name=gpu-sharing-operator,app.kubernetes.io/component=device-plugin"
LEAVING = "gpu-sharing-leave"
# seconds for the plugins to end, and then for each node's pod to do its work
PATIENCE = 120.0
AT_ONCE = 16
_LOOK_AGAIN = 0.5
# a term without expressions matches no node; applying the manifest again brings the former ones back
_NOWHERE: JsonObject = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}
_ENDED = {"Succeeded", "Failed"}
# of the DaemonSet's pods, what another pod on the same nodes needs to start there
_ALIKE = ("imagePullSecrets", "priorityClassName", "securityContext")
# volume of the DaemonSet → how `leave-node` calls its folder
_FOLDERS = {"state": "--state-dir", "cdi": "--cdi-dir"}


@dataclass(frozen=True, slots=True)
class Departure:
    """Takes our device plugins off their nodes. `say` hears a sentence for each thing done, or not done."""

    client: Client
    namespace: str
    node_selector: str
    say: Callable[[str], None]

    async def run(self) -> int:
        """End all plugins and clear their nodes. Returns how many nodes, or steps before, failed."""
        try:
            daemon_sets = await self._select(paths.daemon_sets(self.namespace))
            served = await self._served()
            nodes = {node: uid for node, (uid, marked) in (await self._nodes()).items() if marked or node in served}
            for daemon_set in daemon_sets:
                await self.client.merge(self._path(daemon_set), _nowhere())
            running = await self._end()
        except ApiError as error:
            self.say(f"the device plugins stay, with what they keep on their nodes: {error}")
            return 1
        if not nodes:
            return 0
        if not daemon_sets:
            self.say(
                f"the device plugins' DaemonSet is gone, and their files stay on {len(nodes)} nodes: "
                "apply it again and repeat this"
            )
            return len(nodes)
        gate = asyncio.Semaphore(AT_ONCE)
        work = (self._clear(node, uid, daemon_sets, running, gate) for node, uid in sorted(nodes.items()))
        cleared = await asyncio.gather(*work)
        self.say(f"ended the device plugins; {sum(cleared)} nodes are as they were before")
        return cleared.count(False)

    async def _end(self) -> set[str]:
        """Wait until the plugins have ended. Returns the nodes on which one has not."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while running := await self._served():
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(_LOOK_AGAIN)
        return running

    async def _clear(
        self, node: str, uid: str, daemon_sets: list[JsonObject], running: set[str], gate: asyncio.Semaphore
    ) -> bool:
        """Take the plugin's files and then its condition from one node. Returns whether nothing is left."""
        async with gate:
            problem = "it has not ended" if node in running else ""
            try:
                for daemon_set in daemon_sets:
                    problem = problem or await self._run_pod(leaving_pod(daemon_set, node))
                if not problem:
                    await remove_node_condition(self.client, node, uid)
            except ApiError as error:
                problem = str(error)
        if problem:
            self.say(f"{node}: what the device plugin keeps there stays: {problem}")
        return not problem

    async def _run_pod(self, pod: JsonObject) -> str:
        """Run a pod to its end and remove it. Returns what went wrong; empty = nothing."""
        path = self._path(pod)
        await self.client.delete(path)  # of a run that was cut off
        await self.client.create(paths.pods(self.namespace), pod)
        try:
            async with asyncio.timeout(PATIENCE):
                while (status := (await self.client.get(path)).get("status") or {}).get("phase") not in _ENDED:
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            return f"{pod['metadata']['name']} did not end within {PATIENCE:.0f} s"
        finally:
            await self.client.delete(path)
        return "" if status["phase"] == "Succeeded" else _last_words(status)

    async def _served(self) -> set[str]:
        """Return the nodes on which plugins run; one that is not placed yet is on the node without a name."""
        pods = await self._select(paths.pods(self.namespace))
        return {str(pod["spec"].get("nodeName") or "") for pod in pods}

    async def _select(self, path: str) -> list[JsonObject]:
        return [item async for page in self.client.pages(path, selector=PLUGINS) for item in page.items]

    async def _nodes(self) -> dict[str, tuple[str, bool]]:
        """Return node → its uid, and whether it has our condition."""
        found = {}
        async for page in self.client.pages(paths.NODES, selector=self.node_selector):
            for node in page.items:
                conditions = (node.get("status") or {}).get("conditions") or []
                marked = any(condition["type"] == READY_CONDITION for condition in conditions)
                found[node["metadata"]["name"]] = (node["metadata"]["uid"], marked)
        return found

    def _path(self, obj: Mapping[str, Any]) -> str:
        collection = paths.pods if obj.get("kind") == "Pod" else paths.daemon_sets
        return f"{collection(self.namespace)}/{obj['metadata']['name']}"


def leaving_pod(daemon_set: Mapping[str, Any], node: str) -> JsonObject:
    """Return the pod that removes from a node what the DaemonSet's pods keep there: their image, for this one task.

    It sees the folders beside the plugin's, because what is mounted cannot be removed from inside.
    """
    plugin = daemon_set["spec"]["template"]["spec"]
    [container, *_] = plugin["containers"]
    folders = {
        _FOLDERS[volume["name"]]: PurePosixPath(volume["hostPath"]["path"])
        for volume in plugin.get("volumes", ())
        if volume["name"] in _FOLDERS and "hostPath" in volume
    }
    parents = sorted({str(folder.parent) for folder in folders.values()})
    leave = {
        "name": "leave",
        "image": container["image"],
        "imagePullPolicy": container.get("imagePullPolicy", "IfNotPresent"),
        "args": ["leave-node", *(f"{option}=/host{folder}" for option, folder in folders.items())],
        "securityContext": container.get("securityContext", {}),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": f"host-{i}", "mountPath": f"/host{each}"} for i, each in enumerate(parents)],
    }
    metadata = {"name": f"{LEAVING}-{node}"[:253].rstrip("-."), "labels": {"app.kubernetes.io/component": LEAVING}}
    spec = {
        **{key: plugin[key] for key in _ALIKE if key in plugin},
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,  # one on a node that does not answer is gone once it is deleted
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [leave],
        "volumes": [
            {"name": f"host-{i}", "hostPath": {"path": each, "type": "Directory"}} for i, each in enumerate(parents)
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _nowhere() -> JsonObject:
    return {"spec": {"template": {"spec": {"affinity": _NOWHERE}}}}


def _last_words(status: Mapping[str, Any]) -> str:
    """Return why a pod failed."""
    ends: Iterable[Mapping[str, Any]] = (
        container.get("state", {}).get("terminated") or {} for container in status.get("containerStatuses") or ()
    )
    said = "; ".join(" ".join(str(end.get("message") or "").split()) for end in ends)
    return said or str(status.get("message") or status.get("reason") or "its pod failed")
