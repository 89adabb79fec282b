"""Where a node is, in one word: the states that `status` and `explain` show."""

from enum import StrEnum

from gpusharing.core.desired_state import Outcome
from gpusharing.core.plan import Change
from gpusharing.core.progress import Progress
from gpusharing.core.records import record_name
from gpusharing.core.status import NodeState


class Standing(StrEnum):
    """Where a node is; each word carries its meaning."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> "Standing":
        """Make a member of the word, and keep its meaning beside it."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    APPLIED = "Applied", "the plugin serves the wanted config and the kubelet confirms its devices"
    AWAITING = "AwaitingReport", "written; the plugin has not reported yet that it serves it"
    NO_INVENTORY = "NoInventory", "written; no label tells how many devices there should be"
    REFUSED = "ConfigRefused", "written; the plugin refuses the config and serves its last good one"
    MISMATCH = "CapacityMismatch", "served; the kubelet confirms another number of devices than the config implies"
    GONE = "PluginGone", "written; no devices are allocatable"
    PENDING = "Pending", "record or label are not written yet; the controller does it"
    RELEASING = "Releasing", "no policy wants it any more; the controller takes back what it wrote"
    SKIPPED = "Skipped", "left as it is: it carries the label gpusharing.io/skip"
    FROZEN = "Frozen", "left as it is: the policy that holds it is in mode dry-run or invalid"
    MANUAL = "ManuallyConfigured", "left as it is: the config label was set by hand"
    UNCERTAIN = "ManuallyConfigured?", "the saved file has no ConfigMaps that tell who set the config label"
    FOREIGN = "ForeignConfigMap", "left as it is: a ConfigMap of the record's name is not ours"
    UNCLAIMED = "Unclaimed", "no enforced policy matches it"


# The node has no owner then: a policy wins it and changes nothing.
NOT_OURS = frozenset({Standing.MANUAL, Standing.UNCERTAIN, Standing.FOREIGN})

_BY_PROGRESS = {
    Progress.APPLIED: Standing.APPLIED,
    Progress.AWAITING: Standing.AWAITING,
    Progress.NO_INVENTORY: Standing.NO_INVENTORY,
    Progress.REFUSED: Standing.REFUSED,
    Progress.MISMATCH: Standing.MISMATCH,
    Progress.GONE: Standing.GONE,
}
_LEFT_ALONE = {
    Change.SKIPPED: Standing.SKIPPED,
    Change.FROZEN: Standing.FROZEN,
    Change.MANUAL: Standing.MANUAL,
    Change.REFUSED: Standing.FOREIGN,
}


def standing(state: NodeState, *, uncertain: bool = False) -> Standing:
    """Return where the node is; `uncertain` = nobody can tell who set its label."""
    if state.plan.change in _LEFT_ALONE and not (uncertain and state.plan.change is Change.MANUAL):
        return _LEFT_ALONE[state.plan.change]
    if uncertain:
        return Standing.UNCERTAIN
    if state.plan.change is Change.RELEASE:
        return Standing.RELEASING
    if state.assignment.outcome is not Outcome.OWNED:
        return Standing.UNCLAIMED
    return _BY_PROGRESS[state.verdict.progress] if state.written else Standing.PENDING


def detail(state: NodeState, word: Standing) -> str:
    """Return why the node is there, in a few words; empty = the word says it all."""
    lacking = f"cannot have {', '.join(state.lacking)}" if state.lacking else ""
    return "; ".join(filter(None, [_why(state, word), lacking]))


def _why(state: NodeState, word: Standing) -> str:
    match word:
        case Standing.FOREIGN:
            return f"ConfigMap {record_name(state.node)}"
        case Standing.PENDING if state.plan.wait is not None:
            return f"the label moves within {state.plan.wait.total_seconds():.0f} s, once the plugin can see the config"
        case Standing.PENDING:
            return f"wants {state.plan.after}"
        case Standing.AWAITING | Standing.NO_INVENTORY | Standing.REFUSED | Standing.MISMATCH | Standing.GONE:
            return state.verdict.detail
        case _:
            return ""
