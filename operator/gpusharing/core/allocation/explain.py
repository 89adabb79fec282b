"""Why a request gets these ids, in sentences; made only when somebody asks."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpusharing.core.allocation.buckets import Buckets, GpuSet
from gpusharing.core.allocation.choose import Rule
from gpusharing.core.allocation.policies import aligned
from gpusharing.core.allocation.prefer import Preferences, gpus_to_use, prefer
from gpusharing.core.allocation.request import AllocationRequest, Choice, Load, Refusal, slices_and_ids

SENTENCES: dict[Refusal, str] = {
    "size": "nothing is asked for",
    "must-include": "more must be included than is asked for, or something that is not available",
    "insufficient": "fewer are free than are asked for",
    "split": "no single GPU can hold the request, and keepTogether: required forbids to split it",
}


def explain(request: AllocationRequest, preferences: Preferences) -> list[str]:
    """Return the rule, what it saw of each GPU, and what came of it; `prefer` decides, this only tells."""
    choice = prefer(request, preferences)
    buckets, rule = Buckets(preferences.table, request), preferences.rule
    whole = rule.policy.NAME == aligned.NAME
    lines = [_rule(rule), *(_whole_gpus(buckets) if whole else _gpus(buckets))]
    if choice.unknown:
        count = len(choice.unknown)
        lines.append(f"left out, as the resource does not have them: {count} id{'s' if count > 1 else ''}")
    if choice.refusal:
        return [*lines, f"no preference: {SENTENCES[choice.refusal]}"]
    return [*lines, *(_of_whole_gpus(buckets, choice) if whole else _of_shares(buckets, rule, choice))]


def _rule(rule: Rule) -> str:
    also = [f"keepTogether: {rule.keep_together}"] if rule.keep_together != "none" else []
    also += ["topology: preferred"] if rule.linked else []
    return ", ".join([f"{rule.policy.NAME}: {rule.policy.RULE}", *also])


def _gpus(buckets: Buckets) -> Iterator[str]:
    for at, gpu in enumerate(buckets.table.gpus):
        slices, ids = slices_and_ids(Load(buckets.load[at]))
        load = f"{slices} slices and {ids} ids" if slices else f"{ids}"
        required = f", {buckets.required[at]} to be included" if buckets.required[at] else ""
        sick = ", has a sick id: last" if buckets.sick[at] else ""
        free = f"{buckets.free[at]} of {len(gpu.ids)} free"
        yield f"{_named(buckets, [at])} ({gpu.uuid}): {free}, load {load}{required}{sick}"


def _whole_gpus(buckets: Buckets) -> Iterator[str]:
    for at, gpu in enumerate(buckets.table.gpus):
        state = "free" if buckets.free[at] else "sick: left out" if buckets.sick[at] else "in use"
        yield f"{_named(buckets, [at])} ({gpu.uuid}): {'to be included' if buckets.required[at] else state}"


def _of_whole_gpus(buckets: Buckets, choice: Choice) -> Iterator[str]:
    """Yield how the free GPUs were divided, which set was chosen, and which others have as many points."""
    chosen = tuple(sorted(_chosen(buckets, choice)))
    alike: list[GpuSet] = []
    if buckets.need and len(chosen) == 1:
        yield "of single GPUs the one with the lowest index goes first"
    elif buckets.need:
        sets = aligned.divide(buckets, buckets.candidates())
        points = {one: buckets.table.links.score(one) for one in sets}
        parts = " and ".join(f"{_named(buckets, one)} ({points[one]})" for one in sets)
        yield f"divided for the most points, {sum(points.values())} in all: {parts}"
        answers = aligned.answers(buckets, sets)
        alike = [one for one in answers if one != chosen and points[one] == points[chosen]]
    yield f"chosen: {_named(buckets, chosen)}"
    if alike:
        others = " and ".join(_named(buckets, one) for one in alike)
        yield f"{others}: as many points, but the lower index goes first"


def _of_shares(buckets: Buckets, rule: Rule, choice: Choice) -> Iterator[str]:
    yield from _narrowed(buckets, rule)
    chosen = sorted(_chosen(buckets, choice).items())
    yield "chosen: " + ", ".join(f"{count} on {_named(buckets, [gpu])}" for gpu, count in chosen)
    yield from _tie(buckets, choice)


def _narrowed(buckets: Buckets, rule: Rule) -> Iterator[str]:
    """Yield which GPUs were looked at, where keepTogether or topology left some out."""
    if buckets.need > 0 and (rule.keep_together != "none" or rule.linked):
        yield f"only on {_named(buckets, gpus_to_use(buckets, rule))}"


def _tie(buckets: Buckets, choice: Choice) -> Iterator[str]:
    """Yield where only the index decided between a chosen GPU and others."""
    chosen = _chosen(buckets, choice)
    for gpu in sorted(chosen):
        tied = [other for other in buckets.candidates() if other > gpu and _alike(buckets, gpu, other)]
        if tied and not set(tied) <= set(chosen):
            yield f"{_named(buckets, [gpu])} and {_named(buckets, tied)} are alike: the lower index goes first"
            return


def _chosen(buckets: Buckets, choice: Choice) -> Counter[int]:
    return Counter(map(buckets.table.gpu_of.__getitem__, choice.ids))


def _alike(buckets: Buckets, one: int, other: int) -> bool:
    """Whether only the index tells the two apart."""
    return all(values[one] == values[other] for values in (buckets.sick, buckets.load, buckets.free, buckets.required))


def _named(buckets: Buckets, gpus: Sequence[int]) -> str:
    indices = [buckets.table.indices[gpu] for gpu in gpus]
    return "GPU " + ", ".join("?" if index < 0 else str(index) for index in indices)
