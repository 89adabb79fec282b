"""Named constructors of Events: a value, not a call. Few: a normal assignment posts nothing on the Node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpusharing.api import names
from gpusharing.api.reasons import Reason
from gpusharing.core.oneline import few, one_line

MESSAGE_MAX = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to an object; posted once per (uid, reason), then counted."""

    kind: Literal["Node", "GpuSharingPolicy", "GpuPlacement"]
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: Reason
    message: str
    # empty for cluster-scoped objects
    namespace: str = ""

    @property
    def api_version(self) -> str:
        """Return the API version of the object."""
        return "v1" if self.kind == "Node" else names.API_VERSION


def _node(name: str, uid: str, kind: Literal["Normal", "Warning"], reason: Reason, message: str) -> Event:
    return Event("Node", name, uid, kind, reason, message[:MESSAGE_MAX])


def drift_repaired(node: str, uid: str, found: str, put_back: str, manager: str) -> Event:
    """Something else changed the label or the record; it was put back."""
    what = f"found {found!r}, put back {put_back!r}" if found != put_back else f"put back the record of {put_back!r}"
    by = f" (changed by {manager})" if manager else ""
    return _node(node, uid, "Warning", Reason.DRIFT_REPAIRED, f"{names.CONFIG_LABEL}: {what}{by}")


def manually_configured(node: str, uid: str, value: str, policy: str) -> Event:
    """A person or a tool had set the label before us."""
    return _node(
        node,
        uid,
        "Warning",
        Reason.MANUALLY_CONFIGURED,
        f"{names.CONFIG_LABEL}={value} was set by somebody else, so policy {policy} leaves the node alone. "
        "hint: remove the label, or set spec.adoptManual: true on the policy",
    )


def label_contested(node: str, uid: str, manager: str) -> Event:
    """Something else changes the label again and again."""
    return _node(
        node,
        uid,
        "Warning",
        Reason.LABEL_CONTESTED,
        f"{names.CONFIG_LABEL} is changed again and again by {manager or 'an unnamed manager'}; repairs slow down "
        "to one in 5 minutes. hint: stop the other writer, or label the node gpusharing.io/skip=true",
    )


def released(node: str, uid: str, before: str, after: str) -> Event:
    """No policy wants the node any more."""
    now = f"put back {after!r}, which was there before" if after else "removed"
    return _node(node, uid, "Normal", Reason.RELEASED, f"{names.CONFIG_LABEL}={before} is released: {now}")


def restore_dropped(node: str, uid: str, value: str) -> Event:
    """The value from before adoption cannot be put back: nothing mounts a config of that name."""
    return _node(
        node,
        uid,
        "Warning",
        Reason.RELEASED,
        f"{names.CONFIG_LABEL}={value}, which was there before, is not put back: the shared ConfigMap has no such key",
    )


def release_held(node: str, uid: str) -> Event:
    """The CRD is gone or new: the policy may have gone with it, so nothing is released."""
    return _held(node, uid, names.POLICIES_CRD, "its config", "policies")


def reservations_held(node: str, uid: str) -> Event:
    """The CRD is gone or new: the placements may have gone with it, so their GPUs stay theirs."""
    return _held(node, uid, names.PLACEMENTS_CRD, "its reservations", "placements")


def _held(node: str, uid: str, crd: str, kept: str, objects: str) -> Event:
    return _node(
        node,
        uid,
        "Warning",
        Reason.RELEASE_HELD,
        f"the CRD {crd} was deleted or replaced, so the node keeps {kept}. hint: apply the {objects} again, or run "
        "`gpusharing cleanup` to release everything",
    )


def condition_changed(policy: str, uid: str, status: str, reason: Reason, message: str) -> Event:
    """A policy's condition has a new reason."""
    # The reason decides: a Degraded that is True is no good news.
    kind: Literal["Normal", "Warning"] = "Normal" if status == "Unknown" or reason in _GOOD else "Warning"
    return Event("GpuSharingPolicy", policy, uid, kind, reason, message[:MESSAGE_MAX])


def placement_news(namespace: str, name: str, uid: str, reason: Reason, message: str) -> Event:
    """A placement's condition has a new reason, or its plan a new warning."""
    kind: Literal["Normal", "Warning"] = "Normal" if reason in _GOOD else "Warning"
    return Event("GpuPlacement", name, uid, kind, reason, message[:MESSAGE_MAX], namespace)


def assigned(policy: str, uid: str, config: str, count: int) -> Event:
    """One summary of a pass, on the policy."""
    nodes = "1 node" if count == 1 else f"{count} nodes"
    message = f"config {config} is written to {nodes}"[:MESSAGE_MAX]
    return Event("GpuSharingPolicy", policy, uid, "Normal", Reason.ASSIGNED, message)


def node_problem(node: str, uid: str, reason: Reason, sentence: str) -> Event:
    """The node's plugin found something wrong; the sentence may hold words of a config, a driver or a kubelet."""
    return _node(node, uid, "Warning", reason, one_line(sentence, MESSAGE_MAX))


def gpu_recovered(node: str, uid: str, devices: Sequence[str]) -> Event:
    """Devices that were broken are given to pods again."""
    return _node(node, uid, "Normal", Reason.GPU_RECOVERED, one_line(f"healthy again: {few(devices)}", MESSAGE_MAX))


def preference_ignored(node: str, uid: str, sentence: str) -> Event:
    """The kubelet gave a container other devices than the plugin preferred."""
    return _node(node, uid, "Warning", Reason.PREFERENCE_IGNORED, one_line(sentence, MESSAGE_MAX))


_GOOD = {
    Reason.APPLIED,
    Reason.ACTIVE,
    Reason.AWAITING_REPORT,
    Reason.NO_MATCHING_NODES,
    Reason.DRY_RUN,
    Reason.SUPERSEDED,
}
