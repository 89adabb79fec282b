"""Kopf's part: the watch streams. A handler notes what it saw and enqueues; it never decides and never writes."""

from typing import Any

import kopf

from gpusharing.api import names
from gpusharing.controller.context import Context
from gpusharing.controller.settings import Settings
from gpusharing.kube.client import PAGE
from gpusharing.kube.watch import WatchStamps, watch_session


class _NoDiffBase(kopf.DiffBaseStorage):
    """Nothing to remember: without it Kopf copies and diffs every node on every event."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Nothing to remember: Kopf cannot write anything on our objects."""

    def fetch(self, *, key: Any, body: kopf.Body) -> Any:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def kopf_settings(ours: Settings) -> kopf.OperatorSettings:
    """Return Kopf's settings."""
    settings = kopf.OperatorSettings()
    settings.queueing.idle_timeout = 0.5
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.finalizer = f"{names.GROUP}/never-used"
    settings.watching.chunk_size = PAGE
    settings.watching.server_timeout = round(ours.server_timeout)  # the API server takes whole seconds only
    settings.watching.inactivity_timeout = ours.inactivity_timeout
    settings.watching.connect_timeout = 10
    if ours.node_selector:
        settings.watching.label_selectors["", "v1", "nodes"] = ours.node_selector
    settings.networking.request_timeout = ours.request_timeout
    settings.networking.trust_env = False
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    return settings


def kopf_registry(context: Context, stamps: WatchStamps) -> kopf.OperatorRegistry:
    """Return a registry with our login and one handler per kind."""
    registry = kopf.OperatorRegistry()
    cache = context.cache

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        session = watch_session(context.client, stamps, full_nodes=cache.full_nodes)
        return kopf.AiohttpSession(
            server=context.client.server, aiohttp_session=session, default_namespace=context.settings.namespace
        )

    # The raw event: Kopf's views of it cost as much as all the rest of a handler.
    @kopf.on.event(names.GROUP, names.VERSION, names.POLICIES, registry=registry)
    async def policy(event: kopf.RawEvent, **_: Any) -> None:
        kind, obj = event["type"], event["object"]
        context.metrics.watch_events_total.labels("gpusharingpolicies", kind or "LISTED").inc()
        context.enqueue(cache.bury("policy", obj["metadata"]) if kind == "DELETED" else cache.put_policy(obj))

    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def node(event: kopf.RawEvent, **_: Any) -> None:
        kind, obj = event["type"], event["object"]
        context.metrics.watch_events_total.labels("nodes", kind or "LISTED").inc()
        context.enqueue(cache.bury("node", obj["metadata"]) if kind == "DELETED" else cache.put_node(obj))

    @kopf.on.event(names.GROUP, names.VERSION, names.GPU_NODES, registry=registry)
    async def gpu_node(event: kopf.RawEvent, **_: Any) -> None:
        kind, obj = event["type"], event["object"]
        context.metrics.watch_events_total.labels("gpunodes", kind or "LISTED").inc()
        context.enqueue(cache.bury("report", obj["metadata"]) if kind == "DELETED" else cache.put_report(obj))

    cache.placing.watched = cache.placing.known
    if cache.placing.watched:
        _watch_placements(registry, context)
    return registry


def _watch_placements(registry: kopf.OperatorRegistry, context: Context) -> None:
    """Add what placements are planned from. Kopf must not wait for a kind, or a right, that was not there at start."""
    placing = context.cache.placing

    @kopf.on.event(names.GROUP, names.VERSION, names.PLACEMENTS, registry=registry)
    async def placement(event: kopf.RawEvent, **_: Any) -> None:
        kind, obj = event["type"], event["object"]
        context.metrics.watch_events_total.labels("gpuplacements", kind or "LISTED").inc()
        gone = kind == "DELETED"
        context.enqueue(placing.bury("placement", obj["metadata"]) if gone else placing.put_placement(obj))

    @kopf.on.event("", "v1", "resourcequotas", registry=registry)
    async def quota(event: kopf.RawEvent, **_: Any) -> None:
        kind, obj = event["type"], event["object"]
        context.metrics.watch_events_total.labels("resourcequotas", kind or "LISTED").inc()
        context.enqueue(placing.bury("quota", obj["metadata"]) if kind == "DELETED" else placing.put_quota(obj))
