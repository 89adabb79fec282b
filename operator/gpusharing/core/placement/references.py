"""Step 1 of the checks: names that are used twice, or that name nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpusharing.api import placementrules as rules
from gpusharing.api.placement import PlacementSpec
from gpusharing.api.problems import nearest
from gpusharing.core.placement.demand import Demand
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.request import Request

# What a resource name of 63 characters leaves to the namespace (guide, section 8.1).
MAX_NAMESPACE = 54


def reference_problems(request: Request, demands: Sequence[Demand]) -> Iterator[Problem]:
    """Yield what is wrong with names, pools, lead and share targets."""
    spec = request.spec
    yield from _duplicates(spec, demands)
    yield from _pools(spec)
    yield from _lead(spec, demands)
    yield from _share_targets(demands)
    if request.enforced_by == "reserve" and len(request.namespace) > MAX_NAMESPACE:
        message = (
            f"namespace '{request.namespace}' has more than {MAX_NAMESPACE} characters, so no resource name fits; "
            "use a shorter namespace or enforcement: env"
        )
        yield Problem(Code.NAME_TOO_LONG, message)


def stopped_pools(spec: PlacementSpec, problems: Sequence[Problem]) -> frozenset[str]:
    """Return the pools that are not looked at any further; one pool's errors never hide another's."""
    every = frozenset(pool.name for pool in spec.pools)
    stopped = {each.pool for each in problems if each.pool}
    for each in problems:
        if each.code == Code.DUPLICATE_SERVICE:
            named = [service.pool for service in spec.services if service.name in each.services and service.deploy]
            stopped |= every if None in named else {name for name in named if name}
    return every & stopped


def _duplicates(spec: PlacementSpec, demands: Sequence[Demand]) -> Iterator[Problem]:
    for name, count in Counter(each.name for each in demands).items():
        if count > 1:
            yield Problem(Code.DUPLICATE_SERVICE, f"service '{name}' is declared {count} times", services=(name,))
    for name, count in Counter(each.name for each in spec.pools).items():
        if count > 1:
            yield Problem(Code.DUPLICATE_POOL, f"pool '{name}' is declared {count} times", pool=name)


def _pools(spec: PlacementSpec) -> Iterator[Problem]:
    names = list(dict.fromkeys(pool.name for pool in spec.pools))
    listed = ", ".join(names)
    for service in spec.services:
        if not service.deploy:
            continue
        if service.pool is None and len(names) > 1:
            message = rules.POOL_REQUIRED.format(service=service.name, count=len(names), pools=listed)
            yield Problem(Code.POOL_REQUIRED, message, services=(service.name,))
        elif service.pool is not None and service.pool not in names:
            message = rules.UNKNOWN_POOL.format(service=service.name, pool=service.pool, pools=listed)
            yield Problem(Code.UNKNOWN_POOL, message, _did_you_mean(service.pool, names), services=(service.name,))


def _lead(spec: PlacementSpec, demands: Sequence[Demand]) -> Iterator[Problem]:
    names = list(dict.fromkeys(each.name for each in demands))
    if spec.lead is not None and spec.lead not in names:
        message = f"{rules.UNKNOWN_LEAD.format(lead=spec.lead)} ({', '.join(names)})"
        yield Problem(Code.UNKNOWN_LEAD, message, _did_you_mean(spec.lead, names))


def _share_targets(demands: Sequence[Demand]) -> Iterator[Problem]:
    targets = {each.name: each for each in demands}
    for each in demands:
        if not each.share_with:
            continue
        target, hint, more = targets.get(each.share_with), "", ""
        if target is None:
            sentence = rules.UNKNOWN_TARGET
            hint = _did_you_mean(each.share_with, list(targets))
        elif not target.owner:
            sentence = rules.TARGET_WITHOUT_GPUS
        elif each.pool and target.pool and target.pool != each.pool:
            sentence, more = rules.TARGET_ELSEWHERE, f" ('{target.pool}')"
        else:
            continue
        message = sentence.format(service=each.name, target=each.share_with) + more
        yield Problem(Code.UNKNOWN_SHARE_TARGET, message, hint, services=(each.name,), pool=each.pool)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    meant = nearest(word, known)
    return f"did you mean {meant}?" if meant else ""
