"""What MPS control daemons a config asks for, and what to do about those that run (contract 11, 12.5; decision 39)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpusharing.core.devices import Inventory
from gpusharing.core.resources import Resource
from gpusharing.core.serving import ServedConfig

PROBE = "get_default_active_thread_percentage"

# start     set the GPUs' compute mode, start the daemon, set its limits
# stop      end it, and set the compute mode back; its clients die
# limit     set new limits: servers that are started from now on have them
# mark      write the ready marker, for which the plugin waits
# unmark    remove it
Step = Literal["start", "stop", "limit", "mark", "unmark"]


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """One control daemon: it serves one resource."""

    resource: str
    # UUIDs, by index
    gpus: tuple[str, ...]
    # control commands that set the limits of every client
    limits: tuple[str, ...]
    # of the config, for the ready marker
    digest: str


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon that we started."""

    daemon: MpsDaemon
    # whether it answers
    alive: bool = True
    # whether a process uses its GPUs through it
    clients: bool = False
    # whether a server of it may still have limits from before
    outdated: bool = False


def mps_daemons(config: ServedConfig, resources: Sequence[Resource], inventory: Inventory) -> tuple[MpsDaemon, ...]:
    """Return the daemons that the config asks for, one for each resource that MPS shares."""
    return tuple(_daemon(config, resource, inventory) for resource in resources if resource.mps)


def next_steps(running: RunningDaemon | None, wanted: MpsDaemon | None) -> tuple[Step, ...]:
    """Return what to do now, in order; what has to wait until no client is left comes at a later call."""
    if running is None:
        return () if wanted is None else ("start", "mark")
    if wanted is None:
        return ("unmark",) if running.clients else ("unmark", "stop")
    if not running.alive:
        return ("unmark", "start", "mark")
    if running.daemon.gpus != wanted.gpus:
        return ("unmark",) if running.clients else ("unmark", "stop", "start", "mark")
    if running.clients:
        return _beside_clients(running.daemon, wanted)
    if running.outdated or running.daemon.limits != wanted.limits:
        return ("unmark", "stop", "start", "mark")
    return () if running.daemon == wanted else ("mark",)


def _beside_clients(current: MpsDaemon, wanted: MpsDaemon) -> tuple[Step, ...]:
    """A server keeps the limits that it started with: the daemon is started anew as soon as nobody is left."""
    if current.limits != wanted.limits:
        return ("unmark", "limit", "mark")
    return () if current == wanted else ("mark",)


def _daemon(config: ServedConfig, resource: Resource, inventory: Inventory) -> MpsDaemon:
    uuids = {device.gpu for device in resource.devices}
    gpus = sorted((gpu for gpu in inventory.gpus if gpu.uuid in uuids), key=lambda gpu: gpu.index)
    # addressed by index; a GPU whose memory is not known has no limit
    memory = tuple(
        f"set_default_device_pinned_mem_limit {gpu.index} {gpu.memory_mib // resource.replicas}M"
        for gpu in gpus
        if gpu.memory_mib
    )
    threads = f"set_default_active_thread_percentage {100 // resource.replicas}"
    return MpsDaemon(resource.name, tuple(gpu.uuid for gpu in gpus), (*memory, threads), config.config.digest())
