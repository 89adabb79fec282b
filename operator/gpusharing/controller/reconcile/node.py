"""Key `("node", name)`: what its plugin is told of placements; the node's record, then its label."""

from collections.abc import Awaitable, Callable

from gpusharing.api import names
from gpusharing.api.meta import rfc3339
from gpusharing.controller.context import Context
from gpusharing.core import events
from gpusharing.core.errors import ApiError
from gpusharing.core.matching import Node
from gpusharing.core.placement.observed import SeenGpuNode
from gpusharing.core.placement.projection import has_ownerless
from gpusharing.core.plan import (
    Action,
    ApplyRecord,
    Change,
    DeleteRecord,
    NodePlan,
    ReleaseLabel,
    RestoreLabel,
    SetLabel,
)
from gpusharing.core.repairs import Repairs
from gpusharing.kube import read
from gpusharing.kube.apply import apply_action, apply_reservations
from gpusharing.kube.client import JsonObject
from gpusharing.observability.logs import logger

log = logger(__name__)


async def reconcile_node(context: Context, name: str) -> None:
    """Bring one node to where its owner wants it. Raises ApiError where it has to be tried again."""
    cache = context.cache
    await _tell(context, name)
    node = cache.nodes.get(name)
    if node is None:
        await _forget(context, name)
        return
    context.enqueue(cache.evaluate(name, context.clock()))
    plan = cache.states[name].plan
    if plan.change is Change.MANUAL:
        owner = cache.states[name].owner
        await context.recorder.post(events.manually_configured(name, node.uid, plan.before, owner))
    if plan.actions and await _may_start(context, node, plan):
        await _carry_out(context, node, plan)
    _look_again(context, name)


async def _tell(context: Context, name: str) -> None:
    """Tell the node's plugin what the stored plans say, where that differs from what it was told."""
    placing = context.cache.placing
    if not placing.to_be_told(name):
        return
    gpu_node, wanted = placing.gpu_nodes[name], placing.wanted.get(name, ())
    if has_ownerless(gpu_node, placing.placements) and not await _placements_are_gone(context, gpu_node):
        return  # as it is, whole: after a write of ours nobody could tell that the CRD is younger than its entries
    answer = await context.write(lambda: apply_reservations(context.client, name, gpu_node.uid, wanted))
    if answer is None:
        return  # it was deleted, or created anew: its own event brings the node back
    log.info("reservations written", node=name, resources=[each.resource for each in wanted])
    context.enqueue(context.cache.put_report(answer) - {("node", name)})


async def _placements_are_gone(context: Context, gpu_node: SeenGpuNode) -> bool:
    """Whether placements were deleted, and not their whole CRD (deleting a CRD deletes its objects first)."""
    crd = await read.read_crd(context.client, names.PLACEMENTS_CRD)
    if crd.knows_what_is_gone(gpu_node.told_at):
        return True
    node = context.cache.nodes.get(gpu_node.name)
    if context.say_once(f"held {gpu_node.name}", rfc3339(crd.created) if crd.created else "gone"):
        log.warning("reservations held: the placements' CRD was deleted or replaced", node=gpu_node.name)
    if node is not None:
        await context.recorder.post(events.reservations_held(node.name, node.uid))
    return False


async def _may_start(context: Context, node: Node, plan: NodePlan) -> bool:
    """Whether the plan may be carried out now: repairs are spaced, releases wait for a CRD that can be trusted."""
    if plan.change is Change.REPAIR:
        wait = context.cache.repairs.get(node.name, Repairs()).wait(context.clock())
        if wait > 0:
            context.queue.add_later(("node", node.name), wait)
            return False
    if plan.change is Change.RELEASE:
        return await _release_is_meant(context, node)
    return True


async def _release_is_meant(context: Context, node: Node) -> bool:
    """Whether the policy is gone, and not its whole CRD (deleting a CRD deletes its objects first)."""
    cache, record = context.cache, context.cache.records.get(node.name)
    if record is not None and record.policy in cache.policies:
        return True  # the policy is there and no longer names the node
    crd = await read.read_crd(context.client)
    if crd.knows_what_is_gone(record.applied_at if record is not None else None):
        return True
    if node.name not in cache.held:
        cache.held.add(node.name)
        since = rfc3339(crd.created) if crd.created else "gone"
        log.warning("release held: the policies' CRD was deleted or replaced", node=node.name, crd_created=since)
        await context.recorder.post(events.release_held(node.name, node.uid))
    return False


async def _carry_out(context: Context, node: Node, plan: NodePlan) -> None:
    """Make the plan's writes in order; each answer goes into the cache at once, so that its echo is a no-op."""
    cache, name = context.cache, node.name
    conflict = ""
    for action in plan.actions:
        try:
            answer = await context.write(_request(context, action))
        except ApiError as error:
            if error.conflicting_managers:
                conflict = "; ".join(error.conflicting_managers)
                break
            _note_refusal(context, name, error)
            raise
        if not _take_in(context, node, action, answer):
            return  # the node is gone, or a new one of its name is there: its own event brings it back
    if conflict:
        # Somebody wrote the label between our last look and our write: look at it as it is now, and decide anew.
        log.info("label conflict, looking again", node=name, managers=conflict)
        fresh = await read.read_node_object(context.client, name, full=cache.full_nodes)
        context.enqueue(cache.put_node(fresh) if fresh else cache.drop_node(name, node.uid))
        raise ApiError(f"the label of {name} is owned by somebody else: {conflict}", status=409)
    cache.write_errors.pop(name, None)
    await _report(context, node, plan)
    context.enqueue(cache.evaluate(name, context.clock()))


def _request(context: Context, action: Action) -> Callable[[], Awaitable[JsonObject | None]]:
    return lambda: apply_action(context.client, action, context.settings.namespace)


def _take_in(context: Context, node: Node, action: Action, answer: JsonObject | None) -> bool:
    """Put the server's answer into the cache. Returns whether the node is still the one we meant."""
    cache = context.cache
    match action:
        case ApplyRecord():
            if answer is not None:
                cache.put_record(answer)
            return True
        case DeleteRecord(node=name):
            cache.deleted_record(name)
            return True
        case SetLabel() | ReleaseLabel() | RestoreLabel():
            if answer is None:
                context.enqueue(cache.drop_node(node.name, node.uid))
                return isinstance(action, ReleaseLabel)
            cache.put_node(answer, in_scope=node.in_scope)
            return True


def _note_refusal(context: Context, name: str, error: ApiError) -> None:
    """Show a refusal that trying again will hardly change in the owner's status."""
    if error.retry or error.status == 409:
        return
    log.error("write refused", node=name, error=error.message, hint=error.hint)
    context.cache.write_errors[name] = error.message[:300]
    context.enqueue(context.cache.evaluate(name, context.clock()))


async def _report(context: Context, node: Node, plan: NodePlan) -> None:
    """Log what was done, and post an Event for everything but a normal assignment."""
    cache, recorder, name = context.cache, context.recorder, node.name
    log.info("node written", node=name, change=str(plan.change), before=plan.before, after=plan.after)
    if plan.change is Change.REPAIR:
        others = [manager for manager in node.label_managers if manager != names.FIELD_MANAGER]
        manager = ", ".join(others) if plan.before != plan.after else ""
        repairs = cache.repairs.get(name, Repairs()).made(context.clock(), manager)
        cache.repairs[name] = repairs
        context.metrics.repairs_total.inc()
        await recorder.post(events.drift_repaired(name, node.uid, plan.before, plan.after, manager))
        if repairs.contested(context.clock()):
            await recorder.post(events.label_contested(name, node.uid, manager))
    if plan.change is Change.RELEASE:
        await recorder.post(events.released(name, node.uid, plan.before, plan.after))
        if plan.dropped:
            await recorder.post(events.restore_dropped(name, node.uid, plan.dropped))


def _look_again(context: Context, name: str) -> None:
    """Come back when the clock alone changes what there is to do."""
    state = context.cache.states.get(name)
    if state is not None and state.plan.wait is not None:
        context.queue.add_later(("node", name), state.plan.wait.total_seconds() + 0.01)
    if state is not None and state.contested_by:
        context.queue.add_later(("node", name), context.cache.repairs[name].quiet_in(context.clock()) + 0.01)
    if (gone_in := context.cache.patience.ends_in(name, context.clock())) is not None and gone_in > 0:
        context.queue.add_later(("node", name), gone_in + 0.01)


async def _forget(context: Context, name: str) -> None:
    """End what is left of a node that is gone, or that the node selector no longer names."""
    cache = context.cache
    context.enqueue(cache.forget_state(name))
    record = cache.records.get(name)
    if record is None or not record.ours:
        return
    if context.settings.node_selector and record.node_uid:
        await context.write(_request(context, ReleaseLabel(name, record.node_uid)))
    await context.write(_request(context, DeleteRecord(name)))
    cache.deleted_record(name)
