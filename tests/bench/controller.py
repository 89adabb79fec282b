"""The controller under measurement: `python -m gpusharing controller` with the defaults that users get."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from tests.bench.processes import Process

SCRAPE_SECONDS = 1.0


class BenchController:
    """The process, and the longest stall of its event loop so far."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self._port = port
        self.longest_stall = 0.0

    async def watch_stalls(self) -> None:
        """Read the loop's lag each second: the metric fades, the longest is kept here."""
        async with aiohttp.ClientSession() as session:
            while True:
                await asyncio.sleep(SCRAPE_SECONDS)
                async with session.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
                    found = re.search(r"^gpusharing_loop_lag_seconds (\S+)$", await answer.text(), re.MULTILINE)
                if found:
                    self.longest_stall = max(self.longest_stall, float(found[1]))


@asynccontextmanager
async def controller(kubeconfig: Path, **settings: str) -> AsyncIterator[BenchController]:
    """Run a controller until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = {"kubeconfig": str(kubeconfig), "listen": f"127.0.0.1:{port}", **settings}
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    process = await Process.start("gpusharing", "controller", *arguments)
    running = BenchController(process, port)
    watching = asyncio.create_task(_watch(running))
    try:
        yield running
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await process.stop()


async def _watch(running: BenchController) -> None:
    await running.process.says("leading")
    await running.watch_stalls()
