"""The kubelet's own device manager as a process (hack/cluster/oracle): it says whether the kubelet double is right."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.cluster.binaries import bring, cache_folder, kubernetes_version, run
from tests.support.kubeletdouble import Pod

_MODULE = Path(__file__).parents[2] / "hack/cluster"


def bring_oracle() -> Path:
    """The program, built first if the cache lacks it; its source is part of its name there."""
    source = b"".join(path.read_bytes() for path in sorted((_MODULE / "oracle").iterdir()))
    name = f"oracle-{hashlib.sha256(source).hexdigest()[:8]}"
    return bring(cache_folder() / "k8s" / kubernetes_version() / name, "about a minute, once", _build)


def _build(part: Path) -> Path:
    built = part / "oracle"
    run(
        *("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(built), "./oracle"),
        cwd=_MODULE,
        env={"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
        hint="install Go 1.24 or later with access to its module proxy",
    )
    return built


class Oracle:
    """A device manager on a folder; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __aenter__(self) -> "Oracle":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self, *, active: Sequence[str] = ()) -> None:
        """Start on what is in the folder; these pods still run."""
        self._process = await asyncio.create_subprocess_exec(
            *(str(bring_oracle()), str(self.folder)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout
        await self._process.stdout.readline()
        await self._ask(do="active", active=list(active))

    async def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        await self._process.communicate()

    async def admit(self, pod: Pod) -> dict[str, Any]:
        """Admit; `ids` by container/resource, or `error`."""
        containers = [{"name": one.name, "kind": one.kind, "limits": dict(one.limits)} for one in pod.containers]
        return await self._ask(do="admit", pod=pod.name, containers=containers)

    async def delete(self, name: str) -> None:
        """End a pod."""
        await self._ask(do="delete", pod=name)

    async def counts(self) -> dict[str, tuple[int, int]]:
        """(capacity, allocatable) of each resource that it knows."""
        answer = await self._ask(do="list")
        allocatable = answer.get("allocatable", {})
        return {name: (count, allocatable.get(name, 0)) for name, count in answer.get("capacity", {}).items()}

    async def age(self, seconds: int) -> None:
        """Make every endpoint that has stopped look as if it had done so earlier."""
        await self._ask(do="age", seconds=seconds)

    async def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer
