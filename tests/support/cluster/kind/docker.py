"""A Docker for kind: one that runs already, or one of our own in a machine within this machine."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster import ClusterError
from tests.support.cluster.keeper import Keeper
from tests.support.cluster.kind.machine import Machine, missing
from tests.support.cluster.kind.tools import bring_docker, docker_environment
from tests.support.install import ROOT

_START_SECONDS = 30
_ENOUGH_BYTES = 6 * 2**30
_SYS_RESOURCE = 24
_OTHER_NETWORKS = {"bip": "172.29.0.1/24", "default-address-pools": [{"base": "172.28.0.0/16", "size": 24}]}


class Docker:
    """A Docker, by its command line; `machine` is the one it has to itself, if it is ours."""

    def __init__(self, environment: Mapping[str, str], folder: Path, machine: Machine | None = None) -> None:
        settings = folder / "docker-client"
        settings.mkdir()
        self.environment = {**environment, "DOCKER_CONFIG": str(settings), "TMPDIR": str(folder)}
        self.machine = machine

    def __call__(self, *args: str, check: bool = True, **variables: str) -> str:
        """Standard output of a docker command; with `check` a failing one is a `ClusterError` with its last words."""
        return self.run("docker", *args, check=check, **variables)

    def run(self, *command: str, check: bool = True, **variables: str) -> str:
        """Standard output of a command that talks to this Docker."""
        settings = {**self.environment, **variables}
        program = shutil.which(command[0], path=settings["PATH"])
        if program is None:
            raise ClusterError(f"{command[0]!r} is not on this machine. hint: install it, or run as root on Linux")
        done = subprocess.run(
            command,
            executable=program,
            env=settings,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if check and done.returncode:
            last_words = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
            raise ClusterError(f"{' '.join(command[:3])} failed ({done.returncode}): {last_words}")
        return done.stdout

    def assert_alive(self) -> None:
        """Raise if a Docker of ours ended although nobody asked it to."""
        if self.machine and not self.machine.running:
            raise ClusterError(f"dockerd ended by itself: {self.machine.log()}")

    def end(self) -> None:
        """End a Docker of ours, with all that runs in it; one that ran before stays as it is."""
        if self.machine:
            self.machine.end()


def find_docker(folder: Path, keeper: Keeper, environment: Mapping[str, str]) -> Docker:
    """The Docker of this user if one answers, else one of our own below `folder`, which the keeper ends."""
    return running_docker(folder, environment) or _start(folder, keeper, environment)


def running_docker(folder: Path, environment: Mapping[str, str]) -> Docker | None:
    """The Docker of this user; None = none answers, but one of our own can be started."""
    if not (said := _refusal(environment)):
        return Docker(environment, folder)
    if environment.get("DOCKER_HOST"):
        raise ClusterError(f"the Docker at DOCKER_HOST does not answer: {said}. hint: start it, or unset DOCKER_HOST")
    if lacking := missing():
        raise ClusterError(
            f"GPUSHARING_CLUSTER=kind needs a Docker that runs, or {lacking} to start one; {said}. "
            "hint: start Docker, or leave GPUSHARING_CLUSTER unset"
        )
    _require_room(Path(tempfile.gettempdir()))
    return None


def _refusal(environment: Mapping[str, str]) -> str:
    """Why no Docker answers this user; empty = one does."""
    if not (program := shutil.which("docker", path=environment["PATH"])):
        return "there is no `docker`"
    asked = [program, "info", "--format", "{{json .ServerErrors}}"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode == 0 and done.stdout.strip() in ("null", "[]"):
        return ""
    return (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]


def _start(folder: Path, keeper: Keeper, outer: Mapping[str, str]) -> Docker:
    packages = bring_docker()
    home = folder / "docker"
    home.mkdir()
    machine = Machine(folder, keeper)
    socket = f"unix://{home}/docker.sock"
    settings = {
        "data-root": str(home / "data"),
        "exec-root": str(home / "exec"),
        "pidfile": str(home / "dockerd.pid"),
        "hosts": [socket],
        "storage-driver": "overlay2",
        "cgroup-parent": f"/{machine.cgroup}",
        **_OTHER_NETWORKS,
        **_runtime(),
    }
    (home / "daemon.json").write_text(json.dumps(settings))
    environment = docker_environment(packages)
    machine.start([str(packages / "usr/sbin/dockerd"), f"--config-file={home}/daemon.json"], environment)
    docker = Docker({**outer, **environment, "DOCKER_HOST": socket}, folder, machine)
    _wait(docker)
    return docker


def _wait(docker: Docker) -> None:
    """Wait until it answers."""
    end = time.monotonic() + _START_SECONDS
    while not docker("version", "--format", "{{.Server.Version}}", check=False).strip():
        docker.assert_alive()
        if time.monotonic() > end:
            raise ClusterError(f"dockerd does not answer: {docker.machine.log() if docker.machine else ''}")
        time.sleep(0.1)


def _require_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _ENOUGH_BYTES:
        raise ClusterError(
            f"{folder} has {free / 2**30:.1f} GiB left, three nodes take {_ENOUGH_BYTES / 2**30:.0f}. "
            "hint: make room, or set TMPDIR to a folder with more"
        )


def _runtime() -> dict[str, object]:
    """The settings of a runtime that asks for nothing that this machine cannot give."""
    status = Path("/proc/self/status").read_text()
    bounding = next(line for line in status.splitlines() if line.startswith("CapBnd:"))
    if int(bounding.split()[1], 16) >> _SYS_RESOURCE & 1:
        return {}
    runtime = {"bounded": {"path": str(ROOT / "hack/kind/runc-bounded")}}
    return {"runtimes": runtime, "default-runtime": "bounded"}
