"""A controller's context around a client double, and objects in its cache."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from gpusharing.api import names
from gpusharing.controller.cache import Cache
from gpusharing.controller.context import Context
from gpusharing.controller.pace import Pace
from gpusharing.controller.placing import Placing
from gpusharing.controller.queue import WorkQueue
from gpusharing.controller.settings import Settings
from gpusharing.kube.events import EventRecorder
from gpusharing.kube.lease import LeaseGuard
from gpusharing.observability.metrics import Metrics


def loop_time() -> float:
    """The loop's clock, virtual under looptime."""
    return asyncio.get_running_loop().time()


def make_context(client: Any = None, *, clock: Callable[[], float] = loop_time, **settings: Any) -> Context:
    """What `app.make_context` makes, on the loop's clock."""
    chosen = Settings(**settings)
    return Context(
        settings=chosen,
        client=client,
        cache=Cache(
            chosen.layout,
            sync_delay=timedelta(seconds=chosen.shared_sync_delay),
            plugin_gone_after=chosen.plugin_gone_after,
            placing=Placing(on=chosen.placement, lost_after=timedelta(seconds=chosen.node_lost_after)),
        ),
        queue=WorkQueue(),
        pace=Pace(chosen.workers_max),
        guard=LeaseGuard(client, chosen.namespace, "us", clock=clock),
        recorder=EventRecorder(client, clock=clock),
        metrics=Metrics(),
        clock=clock,
    )


def take_in(context: Context, *objects: dict[str, Any]) -> None:
    """Put objects into the cache and decide about every node."""
    cache = context.cache
    for obj in objects:
        match obj["kind"]:
            case names.POLICY_KIND:
                cache.put_policy(obj)
            case names.NODE_KIND:
                cache.put_report(obj)
            case names.PLACEMENT_KIND:
                cache.placing.put_placement(obj)
            case "ConfigMap":
                cache.put_record(obj)
            case _:
                cache.put_node(obj)
    for name in cache.nodes:
        cache.evaluate(name, context.clock())
