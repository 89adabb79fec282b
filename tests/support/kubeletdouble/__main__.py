"""The double as a process: ``python -m tests.support.kubeletdouble FOLDER [--rule 1.37]``.

Each change is one JSON line on standard output: ``{"node": {resource: [capacity, allocatable]}, "streams": …,
"pods": {name: {container/resource: [ids]}}, "failed": {name: text}}``. Commands are JSON lines on standard input, each
answered by a line with its ``id``::

    {"id": 1, "admit": "web-0", "limits": {"nvidia.com/gpu": 2}}     -> {"id": 1, "held": …, "envs": …} or "error"
    {"id": 2, "delete": "web-0"}
    {"id": 3, "restart": {"down": 0.5, "checkpoint": false}}

The pod resources socket is ``FOLDER/../pod-resources/kubelet.sock``. It ends with its standard input.
"""

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.kubeletdouble import AdmissionFailed, KubeletDouble, Pod
from tests.support.kubeletdouble.admission import Held


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line, sort_keys=True), flush=True)


def _held(held: Held) -> dict[str, Any]:
    return {
        "held": {f"{container}/{resource}": sorted(ids) for (container, resource), ids in held.ids.items()},
        "envs": {name: value for answer in held.answers.values() for name, value in _envs(answer)},
        "devices": [
            spec.host_path for answer in held.answers.values() for spec in answer.container_responses[0].devices
        ],
    }


def _envs(answer: Any) -> list[tuple[str, str]]:
    return sorted(answer.container_responses[0].envs.items())


class Console:
    """Carries out commands, and shows what changed."""

    def __init__(self, kubelet: KubeletDouble) -> None:
        self._kubelet = kubelet
        self._pods: dict[str, tuple[Pod, Held]] = {}
        self._shown: dict[str, Any] = {}

    def show(self) -> None:
        """Print the state, if it is another one."""
        kubelet = self._kubelet
        if not kubelet.running:
            return
        node = kubelet.count()
        state = {
            "node": node,
            "streams": {name: kubelet.streams(name) for name in node},
            "pods": {name: _held(held)["held"] for name, (_, held) in self._pods.items()},
            "failed": dict(kubelet.failed),
        }
        if state != self._shown:
            self._shown = state
            _say(state)

    async def obey(self, command: dict[str, Any]) -> None:
        """Carry out one command and answer it."""
        answer: dict[str, Any] = {"id": command.get("id")}
        try:
            answer |= await self._do(command)
        except (AdmissionFailed, KeyError, TypeError) as error:
            answer["error"] = str(error)
        _say(answer)

    async def _do(self, command: dict[str, Any]) -> dict[str, Any]:
        if "admit" in command:
            pod = Pod(command["admit"], limits=command["limits"], namespace=command.get("namespace", "default"))
            held = await self._kubelet.admit(pod)
            self._pods[pod.name] = (pod, held)
            return _held(held)
        if "delete" in command:
            pod, _ = self._pods.pop(command["delete"])
            await self._kubelet.delete(pod)
            return {}
        await self._kubelet.restart(**command["restart"])
        return {}


async def _run(arguments: argparse.Namespace) -> None:
    async with KubeletDouble(arguments.folder, rule=arguments.rule) as kubelet:
        console = Console(kubelet)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        showing = asyncio.create_task(_show(console))
        while line := await reader.readline():
            await console.obey(json.loads(line))
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing


async def _show(console: Console) -> None:
    while True:
        console.show()
        await asyncio.sleep(0.05)


def main() -> None:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser(prog="kubeletdouble", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rule", choices=("1.34", "1.37"), default="1.34")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
