"""Key `("policy", name)`: the policy's status, and the Events of its conditions."""

from datetime import UTC, datetime

from gpusharing.api.meta import Condition
from gpusharing.api.policy import PlanSummary, PolicyStatus
from gpusharing.api.reasons import BY_WORD, ConditionType, Reason
from gpusharing.controller.cache import SeenPolicy
from gpusharing.controller.context import Context
from gpusharing.controller.turns import in_turns
from gpusharing.core import events
from gpusharing.core.desired_state import Policy, as_enforced
from gpusharing.core.errors import ApiError
from gpusharing.core.status import Tally, plan_summary, policy_status
from gpusharing.kube.apply import apply_status
from gpusharing.observability.logs import logger

log = logger(__name__)


async def reconcile_policy(context: Context, name: str) -> None:
    """Write the policy's status where it differs, at most once in `status-pace`."""
    cache = context.cache
    seen = cache.policies.get(name)
    if seen is None:
        context.status_due.pop(name, None)
        return
    now = context.clock()
    if (due := context.status_due.get(name, now)) > now:
        context.queue.add_later(("policy", name), due - now)
        return
    policy = seen.policy
    counted = await _count(context, name)
    plan = await _plan(context, policy) if policy.spec and not policy.enforced else None
    seen = cache.policies.get(name)
    if seen is None or seen.policy is not policy:
        return  # it is gone, or has a new spec and with it its own key
    status = policy_status(policy, counted, seen.status, datetime.now(UTC), layout=cache.layout, plan=plan)
    if status == seen.status:
        return
    context.status_due[name] = now + context.settings.status_pace
    await _write(context, name, seen, status)
    await _tell(context, seen, status)


async def _count(context: Context, name: str) -> Tally:
    counted = Tally(name)
    async for state in in_turns(list(context.cache.states_of(name))):
        counted.add(state)
    return counted


async def _plan(context: Context, policy: Policy) -> PlanSummary:
    """Plan a dry-run policy as if it were enforced."""
    enforced = as_enforced(policy)
    plans = [
        plan
        async for node in in_turns(sorted(context.cache.nodes))
        if node in context.cache.nodes and (plan := context.cache.plan_as_if_enforced(node, enforced)) is not None
    ]
    return plan_summary(plans)


async def _write(context: Context, name: str, seen: SeenPolicy, status: PolicyStatus) -> None:
    wire = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    try:
        answer = await context.write(lambda: apply_status(context.client, name, seen.resource_version, wire))
    except ApiError as error:
        if error.gone:
            return
        if error.status == 409:
            error.message = f"the status of {name} was written on an older version; looking again"
        raise
    if answer is not None:
        context.enqueue(context.cache.put_policy(answer) - {("policy", name)})


async def _tell(context: Context, seen: SeenPolicy, status: PolicyStatus) -> None:
    """Post an Event where a condition has a new reason, and one summary when a config is written everywhere."""
    policy, was = seen.policy, {condition.type: condition for condition in seen.status.conditions}
    if status.nodes.owned and status.nodes.updated == status.nodes.owned:
        before = seen.status
        if (before.config_name, before.nodes.updated) != (status.config_name, status.nodes.updated):
            await context.recorder.post(
                events.assigned(policy.name, policy.uid, status.config_name, status.nodes.updated)
            )
    for condition in status.conditions:
        if condition.type in _TOLD and _news(was.get(condition.type), condition):
            log.info(
                "condition", policy=policy.name, type=condition.type, status=condition.status, reason=condition.reason
            )
            await context.recorder.post(
                events.condition_changed(
                    policy.name, policy.uid, condition.status, BY_WORD[condition.reason], condition.message
                )
            )


_TOLD = {ConditionType.READY, ConditionType.CONFLICTED, ConditionType.DEGRADED}


def _news(before: Condition | None, after: Condition) -> bool:
    """Whether a condition is worth an Event: it has a new reason, and waiting for reports is none."""
    if after.reason == Reason.AWAITING_REPORT:
        return False
    return before is None or (before.status, before.reason) != (after.status, after.reason)
