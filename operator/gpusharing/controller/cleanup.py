"""`gpusharing cleanup`: releases everything before an uninstall, and says what it did and what is left to do."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from gpusharing.api import names
from gpusharing.controller.app import connect_client, make_context
from gpusharing.controller.context import Context
from gpusharing.controller.departure import Departure
from gpusharing.controller.resync import ListState, resync
from gpusharing.controller.settings import Settings, read_settings
from gpusharing.core.desired_state import Assignment, Outcome
from gpusharing.core.errors import ApiError
from gpusharing.core.placement.projection import has_to_be_told
from gpusharing.core.plan import Change, Situation, plan_node
from gpusharing.kube import paths
from gpusharing.kube.apply import apply_action, apply_reservations
from gpusharing.observability.logs import configure_logs
from gpusharing.observability.metrics import Metrics

WHAT = "Releases every node and ends the device plugins; run it before you uninstall. Safe to repeat."
AT_ONCE = 16


def main(arguments: Sequence[str]) -> int:
    """Run `gpusharing cleanup`. Returns 0, or 1 where something could not be released."""
    settings = read_settings(arguments, program="gpusharing cleanup", what=WHAT)
    configure_logs("console", "WARNING")
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    client = await connect_client(settings, Metrics())
    try:
        context = make_context(settings, client, Metrics())
        settling = await context.guard.take_over()
        holding = asyncio.create_task(context.guard.hold())
        _say(f"took the lease over; a controller that still runs stops within {settling:.0f} s")
        await asyncio.sleep(settling)
        try:
            failures = await release_all(context)
            failures += await Departure(client, settings.namespace, settings.node_selector, _say).run()
        finally:
            holding.cancel()
            until = await context.guard.keep_for_cleanup()
        _say(f"the lease stays with cleanup until {until:%H:%M:%SZ}, so that no controller writes everything back")
        _say("now delete the rest: kubectl delete -k config/default")
        return 1 if failures else 0
    finally:
        await client.close()


async def release_all(context: Context) -> int:
    """Release nodes (skipped ones too), then delete records and the shared ConfigMap. Returns how many failed."""
    try:
        await resync(context, ListState())
    except ApiError as error:
        if error.status != 404:  # without our CRDs there are still labels and records
            raise
    gate = asyncio.Semaphore(AT_ONCE)
    placing = context.cache.placing
    told = await asyncio.gather(*(_release_gpus(context, name, gate) for name in sorted(placing.gpu_nodes)))
    nodes = sorted({*context.cache.nodes, *(record.node for record in context.cache.records.values())})
    results = await asyncio.gather(*(_release(context, name, gate) for name in nodes))
    released, failed = sum(done is True for done in results), sum(done is None for done in (*results, *told))
    _say(f"released {released} nodes" + (f", {failed} failed" if failed else ""))
    target = context.settings.shared_target
    if target is not None and context.cache.shared.exists and context.cache.shared.ours:
        namespace, name = target
        await context.client.delete(f"{paths.configmaps(namespace)}/{name}")
        _say(f"deleted ConfigMap {namespace}/{name}")
    return failed


async def _release_gpus(context: Context, name: str, gate: asyncio.Semaphore) -> bool | None:
    """Tell the node's plugin to release what placements have, once no pod has it. Returns as `_release` does."""
    gpu_node = context.cache.placing.gpu_nodes[name]
    if not has_to_be_told(gpu_node, ()):
        return False
    async with gate:
        try:
            await apply_reservations(context.client, name, gpu_node.uid, ())
            _say(f"{name}: reservations of placements are released as soon as no pod has their GPUs")
            return True
        except ApiError as error:
            _say(f"{name}: {error}")
            return None


async def _release(context: Context, name: str, gate: asyncio.Semaphore) -> bool | None:
    """Release one node. Returns whether there was anything to release; None = it failed."""
    cache, settings = context.cache, context.settings
    node, record = cache.nodes.get(name), cache.records.get(name)
    async with gate:
        try:
            if node is None:
                if record is not None and record.ours:
                    await context.client.delete(f"{paths.configmaps(settings.namespace)}/{record.name}")
                return False
            situation = Situation(layout=settings.layout, now=datetime.now(UTC), shared=cache.shared)
            plan = plan_node(node, Assignment(Outcome.UNCLAIMED), record, situation)
            for action in plan.actions:
                await apply_action(context.client, action, settings.namespace)
            if plan.before != plan.after:
                _say(f"{name}: {names.CONFIG_LABEL}={plan.before} " + (f"→ {plan.after}" if plan.after else "removed"))
            return plan.change is Change.RELEASE
        except ApiError as error:
            _say(f"{name}: {error}")
            return None


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
