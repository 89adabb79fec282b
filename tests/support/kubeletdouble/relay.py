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
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Make the file, and listen."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        listening.bind(str(self._path))
        self._server = await asyncio.start_server(self._accept, sock=listening)

    async def stop(self) -> None:
        """Cut everything; the file stays."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_unix_connection(f"\0{self._target}")
        except OSError:  # the kubelet died just now
            writer.transport.abort()
            return
        self._writers |= {writer, forth}
        for source, sink in ((reader, forth), (back, writer)):
            task = asyncio.create_task(_copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()
