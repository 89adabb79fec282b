"""Wiring of the controller: health, lease, caches, workers, Kopf, stop. The only place that makes the edges."""

import asyncio
import gc
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta

import kopf

from gpusharing.controller.cache import Cache
from gpusharing.controller.context import Context
from gpusharing.controller.health import Health
from gpusharing.controller.keys import Key
from gpusharing.controller.pace import Pace
from gpusharing.controller.placing import Placing
from gpusharing.controller.queue import WorkQueue
from gpusharing.controller.resync import ListState, fill, resync_forever
from gpusharing.controller.settings import Settings, read_settings
from gpusharing.controller.watch import kopf_registry, kopf_settings
from gpusharing.controller.workers import Workers
from gpusharing.core.errors import ApiError
from gpusharing.kube.client import Call, Client, connect
from gpusharing.kube.events import EventRecorder
from gpusharing.kube.lease import LeaseGuard, LeaseTimes
from gpusharing.kube.read import read_version
from gpusharing.kube.watch import WatchStamps
from gpusharing.observability.http import serve_http
from gpusharing.observability.logs import configure_logs, logger
from gpusharing.observability.metrics import Metrics

log = logger(__name__)
WHAT = "Turns GpuSharingPolicies into per-node device-plugin configs."
DRAIN_SECONDS = 5.0
STOP_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run `gpusharing controller`. Returns the exit code."""
    settings = read_settings(arguments, program="gpusharing controller", what=WHAT)
    configure_logs(settings.log_format, settings.log_level)
    gc.set_threshold(10_000, 10, 20)  # a watch event makes thousands of short-lived containers; a pass stops the loop
    gc.freeze()  # what was imported stays: 100,000 objects that no pass has to look through
    return asyncio.run(run(settings))


async def run(settings: Settings) -> int:
    """Run until a signal (0) or until the lease is lost (1)."""
    metrics = Metrics()
    client = await connect_client(settings, metrics)
    context = make_context(settings, client, metrics)
    relisted, lists = asyncio.Event(), ListState()
    stamps = WatchStamps(relisted.set)
    health = Health(lists, stamps, settings.watchdog)
    http = await serve_http(settings.listen, metrics.registry, live=health.live, ready=health.ready)
    watching = asyncio.create_task(health.watch(context))
    stop = asyncio.Event()
    on_signals(stop.set)
    try:
        return await lead(context, health, lists, relisted, stamps, stop)
    finally:
        watching.cancel()
        await http.cleanup()
        await client.close()


async def lead(
    context: Context,
    health: Health,
    lists: ListState,
    relisted: asyncio.Event,
    stamps: WatchStamps,
    stop: asyncio.Event,
) -> int:
    """Stand by, then lead. Our own tasks start before Kopf's, which waits 5 s for any that is younger."""
    guard = context.guard
    if not await _unless(stop, _get_ready(context)):
        return 0
    log.info("leading")
    health.leading = True
    context.metrics.leader.set(1)
    holding = asyncio.create_task(guard.hold())
    halt = asyncio.create_task(_either(stop, guard.lost, context.outdated))
    workers: Workers | None = None
    resyncing: asyncio.Task[None] | None = None
    try:
        if await _unless(halt, _fill(context, lists)):
            workers = Workers(context)
            resyncing = asyncio.create_task(resync_forever(context, lists, relisted))
            await _watch(context, stamps, stop, halt)
    finally:
        for task in (halt, resyncing):
            if task is not None:
                task.cancel()
        if workers is not None:
            await workers.drain(DRAIN_SECONDS)
        holding.cancel()
        lost = guard.lost.is_set()
        await guard.release()
    log.info("stopped", lease="lost" if lost else "released")
    return 1 if lost else 0


async def _get_ready(context: Context) -> None:
    """Wait for an API server that is new enough, then for the lease."""
    while True:
        try:
            log.info("API server", version=await read_version(context.client), url=context.client.server)
            break
        except ApiError as error:
            log.warning("waiting for the API server", error=error.message, hint=error.hint)
            await asyncio.sleep(1)
    await context.guard.acquire()


async def _fill(context: Context, lists: ListState) -> None:
    """Fill the caches, whose content stays: a pass of the garbage collector over 10,000 nodes stops the loop 0.2 s."""
    gc.disable()
    try:
        await fill(context, lists)
        gc.freeze()
    finally:
        gc.enable()


async def _watch(context: Context, stamps: WatchStamps, stop: asyncio.Event, halt: "asyncio.Task[None]") -> None:
    """Run Kopf until the halt. Its signal handlers are replaced by ours, which do not trust it to end."""
    ready, ended = asyncio.Event(), asyncio.Event()
    halt.add_done_callback(lambda _: ended.set())

    async def take_signals_back() -> None:
        await ready.wait()
        on_signals(stop.set)

    taking = asyncio.create_task(take_signals_back())
    try:
        await kopf.operator(
            registry=kopf_registry(context, stamps),
            settings=kopf_settings(context.settings),
            clusterwide=True,
            # else Kopf looks up the user's name, and the image has none; its type has no public name
            identity="gpu-sharing-operator",  # type: ignore[arg-type]
            stop_flag=ended,
            ready_flag=ready,
        )
    finally:
        taking.cancel()


async def connect_client(settings: Settings, metrics: Metrics) -> Client:
    """Return the client of this process."""

    def count(call: Call) -> None:
        metrics.observe_call(call.verb, call.path, call.code, call.seconds)

    return await connect(settings.kubeconfig, settings.context, timeout=settings.request_timeout, on_call=count)


def make_context(settings: Settings, client: Client, metrics: Metrics) -> Context:
    """Make what every worker needs."""
    times = LeaseTimes(settings.lease_duration, settings.lease_deadline, settings.lease_period)
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    queue: WorkQueue[Key] = WorkQueue()
    return Context(
        settings=settings,
        client=client,
        cache=Cache(
            settings.layout,
            sync_delay=timedelta(seconds=settings.shared_sync_delay),
            plugin_gone_after=settings.plugin_gone_after,
            placing=Placing(on=settings.placement, lost_after=timedelta(seconds=settings.node_lost_after)),
        ),
        queue=queue,
        pace=Pace(settings.workers_max),
        guard=LeaseGuard(client, settings.namespace, identity, times, on_wait=_say_once()),
        recorder=EventRecorder(client, on_drop=lambda why: metrics.events_dropped_total.inc()),
        metrics=metrics,
        clock=time.monotonic,
    )


def _say_once() -> Callable[[str], None]:
    """Log why the lease is not ours, once per reason."""
    said = ""

    def say(why: str) -> None:
        nonlocal said
        if why != said:
            said = why
            log.info("waiting for the lease", why=why)

    return say


def on_signals(stop: Callable[[], object]) -> None:
    """On SIGTERM or SIGINT stop; ten seconds later end the process whatever hangs."""
    loop = asyncio.get_running_loop()

    def ask() -> None:
        log.info("asked to stop")
        stop()
        loop.call_later(STOP_SECONDS, os._exit, 1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _unless(halt: "asyncio.Event | asyncio.Task[None]", job: Coroutine[None, None, None]) -> bool:
    """Run the job, unless the halt comes first. Returns whether the job was done."""
    task = asyncio.ensure_future(job)
    halting = asyncio.create_task(halt.wait()) if isinstance(halt, asyncio.Event) else halt
    await asyncio.wait({task, halting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        if isinstance(halt, asyncio.Event):
            halting.cancel()
        task.result()
        return True
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return False
