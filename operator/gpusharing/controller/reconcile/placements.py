"""Key `("placements", "")`: all placements, planned one after the other; a plan is stored before any node is told."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from gpusharing.api.meta import Condition
from gpusharing.api.placementobject import PlacementStatus
from gpusharing.api.reasons import BY_WORD, ConditionType, Reason
from gpusharing.controller.context import Context
from gpusharing.controller.keys import PLACEMENTS_KEY
from gpusharing.core import events
from gpusharing.core.errors import ApiError
from gpusharing.core.placement.envmaps import EnvWrites, emptied_maps, env_maps
from gpusharing.core.placement.replanning import Decision, replan
from gpusharing.core.placement.standing import placement_status
from gpusharing.core.placement.stored import Placement
from gpusharing.kube.apply import apply_env_map, apply_placement_status
from gpusharing.observability.logs import logger

log = logger(__name__)
# after which a ConfigMap that was refused is tried again
ENV_AGAIN_SECONDS = 30.0


async def reconcile_placements(context: Context, _: str) -> None:
    """Plan every placement on what the others have. Raises ApiError where one has to be tried again."""
    placing = context.cache.placing
    failed: ApiError | None = None
    for placement in sorted(placing.placements.values(), key=lambda each: each.rank):
        if not placing.known:
            return
        await asyncio.sleep(0)  # each plan takes milliseconds; others want the loop, too
        try:
            await _reconcile(context, placement.key)
        except ApiError as error:
            failed = error
    if placing.taken:
        context.queue.add_later(PLACEMENTS_KEY, max(placing.taken.values()) - context.clock() + 0.01)
    if failed is not None:
        raise failed


async def _reconcile(context: Context, key: str) -> None:
    """Plan one placement, and store the plan with all that is to be said about it."""
    cache = context.cache
    placement = cache.placing.placements.get(key)
    if placement is None:
        context.status_due.pop(key, None)
        return
    now = context.clock()
    cluster = cache.placing.cluster(cache.nodes, cache.states, clock=now, now=datetime.now(UTC))
    decision = replan(cluster, placement)
    if decision.look_again is not None:
        context.queue.add_later(PLACEMENTS_KEY, decision.look_again.total_seconds() + 0.01)
    await _empty_env(context, placement, decision)
    env = await _write_env(context, placement, moved=decision.moved)
    status = placement_status(cluster, decision, env)
    if status == placement.status:
        return
    if (due := context.status_due.get(key, now)) > now:
        context.queue.add_later(PLACEMENTS_KEY, due - now)
        return
    context.status_due[key] = now + context.settings.status_pace
    if not await _write(context, placement, status):
        return
    if decision.moved:
        log.info("placement planned", placement=key, plan=decision.plan_hash[:8])
    await _tell(context, placement, status)


async def _write_env(context: Context, placement: Placement, *, moved: bool) -> EnvWrites:
    """Write the ConfigMaps of a stored plan with `enforcement: env`, once. Returns how far that is.

    `moved`: another plan is about to be stored, so that these would be those of the former one.
    """
    if placement.spec is None or placement.spec.enforcement != "env" or moved:
        return EnvWrites(pending=moved and placement.spec is not None and placement.spec.enforcement == "env")
    written, wanted = context.cache.placing.env_written, list(env_maps(placement))
    if written.get(placement.key) == wanted:
        return EnvWrites()
    for body in wanted:
        try:
            await context.write(partial(apply_env_map, context.client, body))
        except ApiError as error:
            if error.retry:
                raise
            context.queue.add_later(PLACEMENTS_KEY, ENV_AGAIN_SECONDS)
            return EnvWrites(refused=f"ConfigMap {body['metadata']['name']} cannot be written: {error.message}")
    written[placement.key] = wanted
    return EnvWrites()


async def _empty_env(context: Context, placement: Placement, decision: Decision) -> None:
    """Empty the ConfigMaps of services that the next plan has not, before that is stored and they are forgotten."""
    for body in emptied_maps(placement, decision.services):
        context.cache.placing.env_written.pop(placement.key, None)
        try:
            await context.write(partial(apply_env_map, context.client, body))
        except ApiError as error:
            if error.retry:
                raise
            log.warning("ConfigMap cannot be emptied", name=body["metadata"]["name"], why=error.message)


async def _write(context: Context, placement: Placement, status: PlacementStatus) -> bool:
    """Write the status. Returns whether the placement is still there."""
    wire = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    namespace, name, version = placement.namespace, placement.name, placement.resource_version
    try:
        answer = await context.write(lambda: apply_placement_status(context.client, namespace, name, version, wire))
    except ApiError as error:
        if error.gone or error.status == 404:
            return False  # the event of its deletion is under way
        raise
    if answer is not None:
        context.enqueue(context.cache.placing.put_placement(answer))
    return True


async def _tell(context: Context, placement: Placement, status: PlacementStatus) -> None:
    """Post an Event where Ready or Degraded has a new reason, and for a plan that shares GPUs.

    A reservation that goes its way is no news, and neither is what the status said before.
    """
    event = partial(events.placement_news, placement.namespace, placement.name, placement.uid)
    was = {condition.type: condition for condition in placement.status.conditions}
    for condition in _news(was, status):
        log.info(
            "condition",
            placement=placement.key,
            type=condition.type,
            status=condition.status,
            reason=condition.reason,
        )
        await context.recorder.post(event(BY_WORD[condition.reason], condition.message))
    for problem in status.problems:
        if problem.code == Reason.SHARED_NO_ISOLATION and problem not in placement.status.problems:
            await context.recorder.post(event(Reason.SHARED_NO_ISOLATION, problem.message))


def _news(was: dict[str, Condition], status: PlacementStatus) -> Iterator[Condition]:
    for condition in status.conditions:
        before = was.get(condition.type)
        told = condition.type in _TOLD and condition.reason not in _QUIET
        if told and (before is None or (before.status, before.reason) != (condition.status, condition.reason)):
            yield condition


_TOLD = {ConditionType.READY, ConditionType.DEGRADED}
_QUIET = {Reason.PLANNING, Reason.RESERVING}
