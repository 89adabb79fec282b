"""A bare device plugin that answers as a test tells it, rightly or not: for what a kubelet makes of odd answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc

from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb
from gpusharing.deviceplugin.v1beta1.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

Entry = tuple[str, str]
Prefer = Callable[[pb.ContainerPreferredAllocationRequest], Sequence[Sequence[str]] | str]
Answer = Callable[[Sequence[str]], int | str]


def first_of_the_available(request: pb.ContainerPreferredAllocationRequest) -> Sequence[Sequence[str]]:
    """A good answer."""
    must = list(request.must_include_deviceIDs)
    rest = sorted(set(request.available_deviceIDs) - set(must))
    return [[*must, *rest][: request.allocation_size]]


class OddPlugin(DevicePluginServicer):
    """`prefer` returns lists of ids, or an error's text; `answer` how many responses, or an error's text."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.entries: Sequence[Entry] = ()
        self.prefer: Prefer = first_of_the_available
        self.answer: Answer = lambda ids: 1
        self.offered: list[tuple[int, int, int]] = []
        self._server: grpc.aio.Server | None = None

    async def start(self, folder: Path) -> None:
        """Serve on a new socket, register, and wait until the list is asked for."""
        self._changed, self._asked, self._ending = asyncio.Event(), asyncio.Event(), False
        name = f"odd-{uuid4().hex[:8]}.sock"
        self._server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{folder / name}")
        await self._server.start()
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{folder / 'kubelet.sock'}", options=options) as channel:
            request = pb.RegisterRequest(version="v1beta1", endpoint=name, resource_name=self.resource)
            await RegistrationStub(channel).Register(request)
        async with asyncio.timeout(20):
            await self._asked.wait()

    async def stop(self) -> None:
        """End the stream and the server."""
        if self._server is not None:
            self._ending = True
            self._changed.set()
            await self._server.stop(0.1)
            self._server = None

    def show(self, entries: Sequence[Entry]) -> None:
        """Send this list."""
        self.entries = entries
        if self._server is not None:
            self._changed.set()

    async def GetDevicePluginOptions(self, request: pb.Empty, context: Any) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions(get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: pb.Empty, context: Any) -> AsyncIterator[pb.ListAndWatchResponse]:
        changed = self._changed
        while not self._ending:
            changed.clear()
            yield pb.ListAndWatchResponse(devices=[pb.Device(ID=name, health=health) for name, health in self.entries])
            self._asked.set()
            await changed.wait()

    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: Any
    ) -> pb.PreferredAllocationResponse:
        [each] = request.container_requests
        self.offered.append((len(each.available_deviceIDs), len(each.must_include_deviceIDs), each.allocation_size))
        chosen = self.prefer(each)
        if isinstance(chosen, str):
            await context.abort(grpc.StatusCode.INTERNAL, chosen)
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen]
        )

    async def Allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:
        [each] = request.container_requests
        given = self.answer(each.devices_ids)
        if isinstance(given, str):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, given)
        assert isinstance(given, int)
        responses = [pb.ContainerAllocateResponse(envs={"N": str(number)}) for number in range(given)]
        return pb.AllocateResponse(container_responses=responses)
