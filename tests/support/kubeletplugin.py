"""The plugin's kubelet side as its process runs it, at a tenth of the product's durations, against the double."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from tests.support.kubeletdouble import KubeletDouble
from tests.support.kubeletview import GPU, StubView, devices

from gpusharing.deviceplugin.kubelet import KubeletWatcher, PollTimes
from gpusharing.deviceplugin.registration import RegistrationTimes, ResourceServer
from gpusharing.deviceplugin.servicer import AnswerTimes
from gpusharing.deviceplugin.sockets import PluginFolder

TENTH = RegistrationTimes(
    register=1.5,
    stream=1.0,
    trial=3.0,
    margin=0.05,
    backoff=0.01,
    backoff_cap=1.0,
    grace=0.2,
    close=0.05,
    answers=AnswerTimes(answer=0.2, coalesce=0.02),
)
POLL = PollTimes(steady=0.1, hurried=0.005, patient=0.01, hurry=6.0)


class Plugin:
    """What the plugin's process does around its resources, and nothing more."""

    def __init__(self, folder: Path, *views: StubView, times: RegistrationTimes = TENTH) -> None:
        self.view = views[0]
        self.watcher = KubeletWatcher(PluginFolder(folder), POLL)
        self.servers = [ResourceServer(view, self.watcher, times) for view in views]

    async def __aenter__(self) -> "Plugin":
        self._watching = asyncio.create_task(self.watcher.run())
        for server in self.servers:
            server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers:
            await server.stop()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self.watcher.folder.close()

    @property
    def server(self) -> ResourceServer:
        return self.servers[0]

    def show(self, count: int, *, sick: tuple[str, ...] = ()) -> None:
        self.view.show(devices(count), sick=sick)
        self.server.changed()


async def serving(kubelet: KubeletDouble, count: int, resource: str = GPU) -> None:
    await kubelet.until(
        lambda: kubelet.count().get(resource) == (count, count) and kubelet.streams(resource) == 1,
        f"{count} devices of {resource}",
    )


async def eventually(holds: Callable[[], object], what: str, guard: float = 20.0) -> None:
    try:
        async with asyncio.timeout(guard):
            while not holds():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {guard:g} s: {what}") from None


def own_sockets(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith("gpusharing-")]
