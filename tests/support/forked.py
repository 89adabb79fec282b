"""Processes of the product, forked from one that has imported everything already.

Starting Python and importing Kopf, gRPC and the client costs more than most tests. What is about the start itself (the
environment, memory, an exit code of our own) and what is measured starts a Python of its own instead.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "__main__",
        "gpusharing.controller.app",
        "gpusharing.deviceplugin.app",
        "gpusharing.deviceplugin.cluster",
        "gpusharing.observability.http",
        "tests.support.forked",
    ]
)
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000


@dataclass(frozen=True)
class Place:
    """Where a process runs: `cgroup.procs` files that take it in, and the mount namespace that it enters."""

    cgroups: Sequence[Path]
    mounts: Path


def fork(
    arguments: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None, place: Place | None = None
) -> BaseProcess:
    """Start `gpusharing ARGUMENTS`, which ends with the tests; its output goes to `log`.

    It has this process's environment without our variables, or `environment`. Does not wait.
    """
    process = _PROCESSES.Process(target=_run, args=(list(arguments), log, environment, place))
    process.start()
    return process


def _run(arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None, place: Place | None) -> None:
    from gpusharing.__main__ import main

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    os.close(output)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUSHARING_")}
    os.environ.clear()
    os.environ.update(kept if environment is None else environment)
    if place:
        _enter(place)
    main(arguments)


def _enter(place: Place) -> None:
    """Go where `Enclosure.command` goes."""
    for cgroup in place.cgroups:
        cgroup.write_text("0")
    libc = ctypes.CDLL(None, use_errno=True)
    with place.mounts.open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "setns")
