"""Who holds which ids, and which ids the kubelet counts as allocatable: its pod resources API (contract 10; F23).

There is no watch: the plugin polls. The answer is a lower bound: what plain init containers hold is not in it, nor
what was given out before the kubelet lost its checkpoint.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import grpc

from gpusharing.core.occupancy import PodDevices
from gpusharing.deviceplugin.podresources_v1 import podresources_v1_pb2 as pb
from gpusharing.deviceplugin.podresources_v1.podresources_v1_pb2_grpc import PodResourcesListerStub
from gpusharing.deviceplugin.translate import allocatable_ids, pod_devices, pod_names

# 60,000 devices are 4.19 MB; gRPC's own limit is 4 MiB
MAX_ANSWER_BYTES = 64 << 20
T = TypeVar("T")


class PodResources:
    """A client of the kubelet's socket; None instead of an answer wherever there is none, and `problem` says why."""

    def __init__(self, socket: Path, *, deadline: float = 5.0) -> None:
        self._socket = socket
        self._deadline = deadline
        self._channel: grpc.aio.Channel | None = None
        self.problem = ""
        # namespace/name of every pod of the last answer
        self.names: frozenset[str] = frozenset()

    async def pods(self) -> tuple[PodDevices, ...] | None:
        """Return who holds which ids; None = unreadable, which must count as "held" wherever it matters."""
        request = pb.ListPodResourcesRequest()
        answer = await self._ask(lambda stub: stub.List(request, timeout=self._deadline), lambda answer: answer)
        if answer is None:
            return None
        self.names = pod_names(answer)
        return pod_devices(answer)

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        """Return the healthy ids that the kubelet has of each resource, free or not; None = unreadable."""
        request = pb.AllocatableResourcesRequest()
        return await self._ask(
            lambda stub: stub.GetAllocatableResources(request, timeout=self._deadline), allocatable_ids
        )

    async def close(self) -> None:
        """Hang up."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close(None)

    async def _ask(self, call: Callable[[Any], Awaitable[Any]], translate: Callable[[Any], T]) -> T | None:
        try:
            answer = await call(PodResourcesListerStub(self._open()))
        except grpc.aio.AioRpcError as error:
            self.problem = self._why(error)
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                await self.close()
            return None
        self.problem = ""
        return translate(answer)

    def _open(self) -> grpc.aio.Channel:
        """Return the channel. It is made anew after a failure: gRPC backs off, and the kubelet's socket is replaced."""
        if self._channel is None:
            options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES), ("grpc.use_local_subchannel_pool", 1)]
            self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=options)
        return self._channel

    def _why(self, error: grpc.aio.AioRpcError) -> str:
        code, details = error.code(), " ".join((error.details() or "").split())[:200]
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return f"the kubelet's pod resources API refuses the call ({details}); trying again with the next poll"
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer from the kubelet's pod resources API within {self._deadline:g} s"
        return f"cannot read the kubelet's pod resources at {str(self._socket)!r}: {details or code.name}"
