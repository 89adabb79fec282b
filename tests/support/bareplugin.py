"""The least that can be a device plugin: what ours is measured against, and what tests of the node itself start with.

``python -m tests.support.bareplugin FOLDER RESOURCE COUNT`` serves the ids ``0``, ``1``, … to the kubelet of a
device-plugins folder, and registers again when that kubelet does. It knows no config, no health and no NVML.
"""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as wire
from gpusharing.deviceplugin.v1beta1.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)


class BarePlugin(DevicePluginServicer):
    """Serves a fixed list of ids."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._list = wire.ListAndWatchResponse(devices=[wire.Device(ID=each, health="Healthy") for each in ids])

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return wire.DevicePluginOptions()

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield self._list
        await asyncio.Event().wait()

    async def Allocate(self, request: Any, context: Any) -> Any:
        envs = [{"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(each.devices_ids))} for each in request.container_requests]
        return wire.AllocateResponse(container_responses=[wire.ContainerAllocateResponse(envs=env) for env in envs])


async def serve(folder: Path, resource: str, ids: Sequence[str]) -> None:
    """Serve for ever; a new `kubelet.sock` gets a new socket of ours."""
    known = None
    while True:
        kubelet = folder / "kubelet.sock"
        if kubelet.exists() and (now := kubelet.stat().st_ctime_ns) != known:
            known, endpoint = now, f"bare-{secrets.token_hex(4)}.sock"
            server = grpc.aio.server()
            add_DevicePluginServicer_to_server(BarePlugin(ids), server)
            server.add_insecure_port(f"unix://{folder / endpoint}")
            await server.start()
            async with grpc.aio.insecure_channel(f"unix://{kubelet}") as channel:
                register = wire.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
                await RegistrationStub(channel).Register(register)
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], [str(number) for number in range(int(sys.argv[3]))]))
