"""What happened between the kubelet and one resource since the process started; for metrics."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

# Why an answer to `GetPreferredAllocation` is empty, if it is: what `Choice` says (size, must-include, insufficient,
# split); nothing of the resource is served; or our own failure.
PreferenceResult = Literal["chosen", "size", "must-include", "insufficient", "split", "not-served", "timeout", "error"]


@dataclass(slots=True)
class Counts:
    """Numbers that only grow."""

    registrations: int = 0
    refusals: int = 0
    streams: int = 0
    lists: int = 0
    allocations: int = 0
    allocation_errors: int = 0
    # ids that a kubelet offered and the resource does not have
    unknown_ids: int = 0
    # choices of the kubelet's that were not the preferred ones
    overruled: int = 0
    # (allocation policy, `PreferenceResult`) → answers to `GetPreferredAllocation`
    preferences: Counter[tuple[str, str]] = field(default_factory=Counter)
    # by whose choice (plugin, kubelet) → requests on several GPUs that one could have held
    splits: Counter[str] = field(default_factory=Counter)
