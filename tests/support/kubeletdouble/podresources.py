"""The pod resources API of the double: one entry for each device, plain init containers left out, a rate limit."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from gpusharing.deviceplugin.podresources_v1 import podresources_v1_pb2 as pb
from gpusharing.deviceplugin.podresources_v1.podresources_v1_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)

if TYPE_CHECKING:
    from tests.support.kubeletdouble.kubelet import KubeletDouble

_BURST = 10.0


class PodResourcesDouble(PodResourcesListerServicer):
    """Reads the double's sets. `padding` adds so many foreign pods, `limited=False` takes the rate limit away."""

    def __init__(self, kubelet: "KubeletDouble") -> None:
        self._kubelet = kubelet
        self._tokens = _BURST
        self._at = 0.0
        self.padding = 0
        self.per_second = 100.0
        self.limited = True

    async def start(self, socket: Path) -> None:
        """Serve on a new socket."""
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        """Serve no more."""
        await self._server.stop(0)

    async def List(self, request: pb.ListPodResourcesRequest, context: Any) -> pb.ListPodResourcesResponse:
        await self._spend(context)
        answer = pb.ListPodResourcesResponse()
        for pod in self._kubelet.admission.active.values():
            entry = answer.pod_resources.add(name=pod.name, namespace=pod.namespace)
            for container in pod.containers:
                if container.kind == "init":
                    continue
                shown = entry.containers.add(name=container.name)
                for resource in container.limits:
                    held = self._kubelet.manager.pods.get((pod.uid, container.name, resource), frozenset())
                    self._add(shown.devices, resource, held)
        for number in range(self.padding):
            entry = answer.pod_resources.add(name=f"padding-{number}-{'x' * 1000}", namespace="default")
        return answer

    async def GetAllocatableResources(
        self, request: pb.AllocatableResourcesRequest, context: Any
    ) -> pb.AllocatableResourcesResponse:
        await self._spend(context)
        answer = pb.AllocatableResourcesResponse()
        for resource, ids in self._kubelet.manager.healthy.items():
            self._add(answer.devices, resource, frozenset(ids))
        return answer

    def _add(self, entries: Any, resource: str, ids: frozenset[str]) -> None:
        for device in sorted(ids):
            for node in self._kubelet.manager.devices[resource].get(device, ()) or (None,):
                entry = entries.add(resource_name=resource, device_ids=[device])
                if node is not None:
                    entry.topology.nodes.add(ID=node)

    async def _spend(self, context: Any) -> None:
        now = asyncio.get_running_loop().time()
        self._tokens = min(_BURST, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        if self.limited and self._tokens < 1:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self._tokens -= 1
