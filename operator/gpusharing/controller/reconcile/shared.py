"""Key `("shared", "")`: the one ConfigMap of layout `shared`."""

from datetime import UTC, datetime, timedelta

from gpusharing.controller.context import Context
from gpusharing.controller.keys import SHARED_KEY
from gpusharing.core.sharedconfig import plan_shared, read_shared, shared_object
from gpusharing.kube.apply import apply_shared
from gpusharing.observability.logs import logger

log = logger(__name__)


async def reconcile_shared(context: Context, _: str) -> None:
    """Write the configs in use; drop those whose time is over. Nodes that wait for a key are looked at again."""
    target = context.settings.shared_target
    if target is None:
        return
    cache, namespace, name = context.cache, *target
    if not cache.shared.ours:
        log.error("ConfigMap is not ours", namespace=namespace, name=name, hint="delete it, or set --target-configmap")
        return
    configs, labelled = cache.configs_in_use()
    plan = plan_shared(
        cache.shared,
        configs,
        labelled,
        default=context.settings.shared_default,
        now=datetime.now(UTC),
        retention=timedelta(seconds=context.settings.shared_key_retention),
    )
    if plan.write:
        answer = await context.write(lambda: apply_shared(context.client, shared_object(plan.wanted, name, namespace)))
        log.info("shared ConfigMap written", keys=sorted(plan.wanted.data))
        context.enqueue(cache.put_shared(read_shared(answer)) - {SHARED_KEY})
    if plan.due is not None:
        context.queue.add_later(SHARED_KEY, plan.due.total_seconds() + 1)
