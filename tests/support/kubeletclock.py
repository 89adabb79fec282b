"""A kubelet for the fake clock: real files in the folder, no network; it is the plugin's `Transport` itself."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusharing.deviceplugin.kubelet import KubeletWatcher, PollTimes
from gpusharing.deviceplugin.registration import RegistrationTimes, ResourceServer
from gpusharing.deviceplugin.servicer import ResourceServicer, ResourceView
from gpusharing.deviceplugin.sockets import PluginFolder
from gpusharing.deviceplugin.transport import RegisterFailed, StopServer
from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb


def now() -> float:
    """The fake time."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class Served:
    """A socket that the plugin serves on."""

    servicer: Any
    streams: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of `Register`."""

    at: float
    resource: str
    endpoint: str


class ClockKubelet:
    """`on_register` decides on an answer; `streams` says how many it opens. It knows when what happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "kubelet.sock"
        self.running = False
        self.streams = 1
        self.stream_delay = 0.0
        self.on_register: Callable[[str, str], Awaitable[None]] | None = None
        self.calls: list[Call] = []
        self.lists: list[tuple[float, str, pb.ListAndWatchResponse]] = []
        self.served: dict[str, Served] = {}
        self.stopped: list[str] = []

    # --- the kubelet's life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Remove the sockets in the folder, and make a new `kubelet.sock`."""
        for entry in self.folder.iterdir():
            entry.unlink()
        _bind(self.socket)
        self.running = True

    def die(self) -> None:
        """End all streams; the file stays."""
        self.running = False
        for served in self.served.values():
            for stream in served.streams:
                stream.cancel()

    def restart(self) -> None:
        """Both at once."""
        self.die()
        self.start()

    # --- the plugin's transport --------------------------------------------------------------------------------

    async def serve(self, path: Path, servicer: Any) -> StopServer:
        _bind(path)
        served = self.served[path.name] = Served(servicer)

        async def stop(grace: float) -> None:
            if served.streams:
                _, left = await asyncio.wait(served.streams, timeout=grace)
                for stream in left:
                    stream.cancel()
            del self.served[path.name]
            self.stopped.append(path.name)

        return stop

    def listens(self, kubelet_socket: Path) -> bool:
        return self.running

    async def register(self, kubelet_socket: Path, resource: str, endpoint: str, deadline: float) -> None:
        self.calls.append(Call(now(), resource, endpoint))
        if not self.running:
            raise RegisterFailed("failed to connect to all addresses: connection refused")
        if self.on_register:
            await self.on_register(resource, endpoint)
        if endpoint not in self.folder_names():
            await asyncio.sleep(10)
            raise RegisterFailed("failed to dial device plugin: context deadline exceeded")
        for _ in range(self.streams):
            self.open_stream(resource, endpoint)

    def open_stream(self, resource: str, endpoint: str) -> None:
        """Open a stream to this socket."""
        served = self.served[endpoint]
        served.streams.append(asyncio.create_task(self._read(resource, served.servicer)))

    async def _read(self, resource: str, servicer: ResourceServicer) -> None:
        await asyncio.sleep(self.stream_delay)
        lists = servicer.ListAndWatch(pb.Empty(), None)
        try:
            async for message in lists:
                self.lists.append((now(), resource, message))
        finally:
            await lists.aclose()  # type: ignore[attr-defined]

    # --- what a test asks --------------------------------------------------------------------------------------

    def folder_names(self) -> set[str]:
        """What is in the folder."""
        return {entry.name for entry in self.folder.iterdir()}

    def open_streams(self, resource: str = "") -> int:
        """How many streams are open."""
        return sum(not stream.done() for served in self.served.values() for stream in served.streams)

    def end_streams(self) -> None:
        """Close every stream, and live on."""
        for served in self.served.values():
            for stream in served.streams:
                stream.cancel()


@asynccontextmanager
async def plugin(
    kubelet: ClockKubelet,
    *views: ResourceView,
    times: RegistrationTimes | None = None,
    poll: PollTimes | None = None,
    register: bool = True,
    jitter: float = 0.0,
) -> AsyncIterator[list[ResourceServer]]:
    """The resources with their watcher; durations are the product's unless given."""
    folder = PluginFolder(kubelet.folder)
    watcher = KubeletWatcher(folder, poll or PollTimes())
    servers = [
        ResourceServer(
            view, watcher, times or RegistrationTimes(), register=register, transport=kubelet, jitter=lambda: jitter
        )
        for view in views
    ]
    watching = asyncio.create_task(watcher.run())
    for server in servers:
        server.start()
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        folder.close()


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(str(path))
