"""What changed on a node between two reports, as Events: problems, devices that are well again, advice not taken."""

from collections.abc import Iterator

from gpusharing.api.reasons import Reason
from gpusharing.core import events
from gpusharing.core.events import Event
from gpusharing.core.nodeproblems import Observed, named_sick, problems

# Kubernetes itself passes through these, or the condition alone says enough.
_QUIET = {Reason.CAPACITY_MISMATCH, Reason.DEVICES_RETIRING}


def node_events(before: Observed | None, after: Observed, node: str, uid: str) -> tuple[Event, ...]:
    """Return the Events on the Node for what is new since `before`; None = since the plugin started."""
    return (
        *_problems(before, after, node, uid),
        *_recoveries(before, after, node, uid),
        *_overruled(before, after, node, uid),
    )


def _problems(before: Observed | None, after: Observed, node: str, uid: str) -> Iterator[Event]:
    known = set(problems(before)) if before else set()
    for problem in problems(after):
        if problem.reason not in _QUIET and problem not in known:
            yield events.node_problem(node, uid, problem.reason, problem.sentence)


def _recoveries(before: Observed | None, after: Observed, node: str, uid: str) -> Iterator[Event]:
    if before is None:
        return
    still = named_sick(after)
    well = [name for name in named_sick(before) if name not in still]
    if well:
        yield events.gpu_recovered(node, uid, well)


def _overruled(before: Observed | None, after: Observed, node: str, uid: str) -> Iterator[Event]:
    if after.overruled and (before is None or after.overruled != before.overruled):
        yield events.preference_ignored(node, uid, after.overruled)
