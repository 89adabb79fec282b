"""What the planner finds wrong, or worth knowing, as values: one code per rule of the placement guide, section 7."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Severity = Literal["error", "warning", "notice"]


class Code(StrEnum):
    """One word per rule. `exit` is what `place` exits with; `dynamic` ones depend on nodes, where these are known."""

    severity: Severity
    exit: int
    dynamic: bool

    def __new__(cls, word: str, severity: Severity = "error", exit: int = 2, dynamic: bool = False) -> "Code":  # noqa: A002
        """Make a member of the word, and keep what goes with it."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.severity = severity
        member.exit = exit
        member.dynamic = dynamic
        return member

    @property
    def invalid(self) -> bool:
        """Whether a placement with this error contradicts itself: no change of a cluster mends it."""
        return self.exit == 2 and not self.dynamic

    # --- the file alone
    INVALID_DOCUMENT = "InvalidDocument"
    DUPLICATE_SERVICE = "DuplicateService"
    DUPLICATE_POOL = "DuplicatePool"
    INVALID_FIELDS = "InvalidFields"
    UNKNOWN_POOL = "UnknownPool"
    POOL_REQUIRED = "PoolRequired"
    UNKNOWN_LEAD = "UnknownLead"
    UNKNOWN_SHARE_TARGET = "UnknownShareTarget"
    SHARE_WITH_PIN = "ShareWithPin"
    PIN_REPEATS = "PinRepeats"
    PIN_TOO_SMALL = "PinTooSmall"
    PIN_OUT_OF_RANGE = "PinOutOfRange", "error", 2, True
    PIN_RESERVED = "PinReserved"
    PIN_OVERLAP = "PinOverlap"
    PIN_UNRESOLVED = "PinUnresolved", "error", 2, True
    OPAQUE_PIN = "OpaquePin"
    INSTANCES_NOT_DIVISIBLE = "InstancesNotDivisible"
    EVENLY_NEEDS_COUNT = "EvenlyNeedsCount"
    EXCLUSIVE_NEEDS_COUNT = "ExclusiveNeedsCount"
    GPUS_PER_NODE_REQUIRED = "GpusPerNodeRequired"
    GPUS_PER_NODE_LENGTH = "GpusPerNodeLength"
    NOTHING_TO_SIZE = "NothingToSize"
    TWO_LEFTOVERS = "TwoLeftovers"
    PORT_CONFLICT = "PortConflict"
    NAME_TOO_LONG = "NameTooLong"
    # --- it does not fit
    OVERSUBSCRIBED = "Oversubscribed", "error", 3
    DOES_NOT_FIT = "DoesNotFit", "error", 3
    MAX_NODES_EXCEEDED = "MaxNodesExceeded", "error", 3
    NOTHING_LEFT = "NothingLeft", "error", 3
    UNPLACEABLE = "Unplaceable", "error", 3, True
    TOO_MANY_NAMES = "TooManyNames", "error", 3, True
    # --- in a cluster only
    QUOTA_EXCEEDED = "QuotaExceeded", "error", 3, True
    RESERVATION_CONFLICT = "ReservationConflict", "warning", 0, True
    NODE_LOST = "NodeLost", "warning", 0, True
    GPU_UNHEALTHY = "GpuUnhealthy", "warning", 0, True
    # --- worth knowing
    PIN_TOO_LARGE = "PinTooLarge", "warning", 0
    IDLE_GPUS = "IdleGpus", "warning", 0
    SHARED_NO_ISOLATION = "SharedNoIsolation", "warning", 0
    GROUP_STRADDLES = "GroupStraddles", "warning", 0
    GPUS_PER_NODE_DIFFERS = "GpusPerNodeDiffers", "warning", 0
    POOL_SKIPPED = "PoolSkipped", "notice", 0


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: the sentence with its numbers, what to do, and whom it is about."""

    code: Code
    message: str
    hint: str = ""
    # whom it is about; empty = nobody, or no pool, in particular
    services: tuple[str, ...] = ()
    pool: str = ""

    def __str__(self) -> str:
        """Return `Code: message`, and the hint behind it."""
        text = f"{self.code}: {self.message}"
        return f"{text}. hint: {self.hint}" if self.hint else text
