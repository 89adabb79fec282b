"""A unix socket that passes bytes on to another: it can be left behind without a listener, as a dead kubelet's is.

gRPC removes its socket file when it stops; the kubelet does not, and the file's inode and times must stay as they are.
"""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path


class Relay:
    """Listens on a new socket file and passes connections on to an abstract socket."""

    def __init__(self, path: Path, target: str) -> None:
        self._path = path
        self._target = f"\0{target}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[socket.socket] = set()

    async def start(self) -> None:
        """Make the file, and listen."""
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.setblocking(False)
        self._listening.bind(str(self._path))
        self._listening.listen(128)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def stop(self) -> None:
        """Cut everything; the file stays."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients:  # of tasks that ended before they began
            client.close()

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            client, _ = self._listening.accept()
            client.setblocking(False)
            self._clients.add(client)
            task = asyncio.create_task(self._pass_on(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as target:
            target.setblocking(False)
            with suppress(OSError):  # the kubelet died just now
                await asyncio.get_running_loop().sock_connect(target, self._target)
                await asyncio.gather(_copy(client, target), _copy(target, client))
        self._clients.discard(client)


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await loop.sock_recv(source, 1 << 16):
            await loop.sock_sendall(sink, data)
        sink.shutdown(socket.SHUT_WR)
