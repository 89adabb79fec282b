"""gRPC over unix sockets: serve a resource, register it with the kubelet."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import grpc

from gpusharing.deviceplugin.sockets import is_refused
from gpusharing.deviceplugin.translate import register_request
from gpusharing.deviceplugin.v1beta1.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

# the ids of all free devices must fit: 60,000 of them are almost gRPC's own 4 MiB
MAX_REQUEST_BYTES = 16 << 20

# Stops a server: waits so many seconds for calls that are open.
StopServer = Callable[[float], Awaitable[None]]


class RegisterFailed(Exception):
    """The kubelet refused, or did not answer; the text is the kubelet's or gRPC's."""


class Transport(Protocol):
    """What the registration needs of the network."""

    async def serve(self, socket: Path, servicer: DevicePluginServicer) -> StopServer:
        """Serve on a new socket; return what stops it. Raises OSError or RuntimeError where it cannot be bound."""

    def listens(self, kubelet_socket: Path) -> bool:
        """Whether a kubelet listens there: its socket file outlives it."""

    async def register(self, kubelet_socket: Path, resource: str, endpoint: str, deadline: float) -> None:
        """Call `Register`. Raises RegisterFailed."""


class GrpcTransport:
    """The real one."""

    async def serve(self, socket: Path, servicer: DevicePluginServicer) -> StopServer:
        """Serve on a new socket; return what stops it. Raises RuntimeError where it cannot be bound."""
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_REQUEST_BYTES)])
        add_DevicePluginServicer_to_server(servicer, server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        return server.stop

    def listens(self, kubelet_socket: Path) -> bool:
        """Whether a kubelet listens there: its socket file outlives it."""
        return not is_refused(kubelet_socket)

    async def register(self, kubelet_socket: Path, resource: str, endpoint: str, deadline: float) -> None:
        """Call `Register` on a connection of its own. Raises RegisterFailed."""
        # a shared one would remember for a second that the last attempt failed, and not try
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{kubelet_socket}", options=options) as channel:
            try:
                await RegistrationStub(channel).Register(register_request(resource, endpoint), timeout=deadline)
            except grpc.aio.AioRpcError as error:
                raise RegisterFailed(error.details() or error.code().name) from error
