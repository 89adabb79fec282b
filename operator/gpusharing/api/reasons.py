"""Condition types and reasons: one CamelCase word is the condition's reason, the Event's reason and the metric's label.

Each word carries the sentence that the troubleshooting page of that name opens with.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """Condition types of a policy or a placement; how they are read: kstatus, and decision 17 of the design."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    APPLIED = "Applied"
    CONFLICTED = "Conflicted"
    DEGRADED = "Degraded"
    # of a placement
    VALID = "Valid"
    PLACED = "Placed"
    RESERVED = "Reserved"


class Reason(StrEnum):
    """Why a condition has its status, or why an Event was posted."""

    sentence: str

    def __new__(cls, word: str, sentence: str) -> "Reason":
        """Make a member of the word, and keep its sentence beside it."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.sentence = sentence
        return member

    # --- Ready and Applied
    APPLIED = "Applied", "On every owned node the plugin serves this config and the kubelet confirms its devices."
    AWAITING_REPORT = "AwaitingReport", "At least one owned node has not reported that it serves this config."
    CAPACITY_MISMATCH = "CapacityMismatch", "A node advertises another number of devices than its config implies."
    CONFIG_REFUSED = "ConfigRefused", "The plugin of a node refused the config and serves its last good one."
    NO_INVENTORY = "NoInventory", "A node has no label from which its number of devices could be predicted."
    NO_MATCHING_NODES = "NoMatchingNodes", "The selector names no GPU node."
    SUPERSEDED = "Superseded", "Every matching node is owned by a policy of higher priority."
    DRY_RUN = "DryRun", "The policy is in mode dry-run: its plan is in the status, nothing is written."
    WRITE_FAILED = "WriteFailed", "The API server refused a write that this policy or placement needs."
    # --- Stalled: only a person can help
    ALL_NODES_SKIPPED = "AllNodesSkipped", "Every node that the policy would own is left alone."
    CONFLICTING_POLICIES = "ConflictingPolicies", "Another policy of equal priority wants a different config."
    INVALID_SPEC = "InvalidSpec", "The spec breaks a rule that the API server did not check."
    # --- Degraded
    UNSUPPORTED_BY_NODES = "UnsupportedByNodes", "The config names a resource or MIG profile that nodes cannot have."
    ALLOCATION_UNSUPPORTED = "AllocationUnsupportedByPlugin", "NVIDIA's plugin ignores part of spec.allocation."
    LABEL_CONTESTED = "LabelContested", "Something else keeps changing the config label of a node."
    FOREIGN_CONFIGMAP = "ForeignConfigMap", "A ConfigMap of the name we need exists and is not ours."
    PLUGIN_GONE = "PluginGone", "A node has no allocatable devices where its config implies some."
    # --- Events
    ASSIGNED = "Assigned", "A policy's config was written to nodes."
    MANUALLY_CONFIGURED = "ManuallyConfigured", "The config label was set by somebody else; the node is left alone."
    DRIFT_REPAIRED = "DriftRepaired", "Something else changed what we had written; it was put back."
    RELEASED = "Released", "No policy wants the node any more; what we had written is gone."
    RELEASE_HELD = (
        "ReleaseHeld",
        "The CRD of policies or placements was deleted or replaced; nodes keep what they have.",
    )
    SKIPPED = "Skipped", "The node carries gpusharing.io/skip and is left exactly as it is."
    # --- GpuSharingReady of a GpuNode, and of its Node (decision 49); CapacityMismatch is one of them too
    SERVING = "Serving", "The plugin of the node serves what it should, and nothing is wrong."
    INVALID_CONFIG = "InvalidConfig", "The node's config was refused; the last good one stays served, if there is one."
    CONFIG_MISSING = "ConfigMissing", "The node's label names a config that is not there."
    NVML_UNAVAILABLE = "NvmlUnavailable", "The plugin cannot ask NVIDIA's driver for the GPUs of the node."
    NOT_REGISTERED = "NotRegistered", "The kubelet does not take a resource that the plugin serves."
    DEVICES_RETIRING = "DevicesRetiring", "Pods still hold devices of an earlier config, so new ones wait for them."
    GPU_UNHEALTHY = "GpuUnhealthy", "A GPU or MIG device is broken and not given to pods."
    DEVICE_HELD_TWICE = "DeviceHeldTwice", "Two containers hold the same device, which the kubelet must not do."
    UNKNOWN_RESOURCE = "UnknownResource", "The config shares a resource that the node does not have."
    UNKNOWN_KEY = "UnknownKey", "The config has keys that no plugin knows; they are ignored, as NVIDIA's plugin does."
    # --- Events of the in-node plugin
    GPU_RECOVERED = "GpuRecovered", "A GPU or MIG device that was broken is given to pods again."
    PREFERENCE_IGNORED = "PreferenceIgnored", "The kubelet gave a container other devices than the plugin preferred."
    # --- conditions of a placement; GpuUnhealthy and WriteFailed are among them too
    PLANNING = "Planning", "The placement waits for a first report of a node, or for its ConfigMaps."
    VALID = "Valid", "Nothing is wrong with the placement by itself."
    PLACED = "Placed", "The plan has GPUs for every service of the placement."
    ACTIVE = "Active", "Every service has its GPUs, and pods can have them."
    RESERVING = "Reserving", "GPUs of the placement leave the shared resource, which takes 10 to 25 seconds by design."
    INVALID = "Invalid", "The placement contradicts itself; nothing new is reserved until its spec is corrected."
    UNPLACEABLE = (
        "Unplaceable",
        "The nodes have too few free GPUs for the placement, or not in one piece, or not those that it pins.",
    )
    TOO_MANY_NAMES = "TooManyNames", "A node would have more resource names of placements than it takes."
    QUOTA_EXCEEDED = "QuotaExceeded", "The placement needs more GPUs than the quota of its namespace leaves."
    RESERVATION_CONFLICT = "ReservationConflict", "A pod took a GPU before the placement could have it."
    NODE_LOST = "NodeLost", "A node of the placement is gone or not ready."
    # --- Events of a placement
    SHARED_NO_ISOLATION = "SharedNoIsolation", "Services share a GPU, and nothing keeps them apart there."
    # --- command line
    INVALID_INPUT = "InvalidInput", "A file or an argument cannot be read as what it should be."
    API_UNREACHABLE = "ApiUnreachable", "The API server cannot be reached, or refused the request."


BY_WORD = {str(reason): reason for reason in Reason}
