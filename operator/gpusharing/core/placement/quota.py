"""ResourceQuotas: resource names of placements escape `requests.nvidia.com/gpu`, so it is checked here (guide, 8.5)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpusharing.api import names
from gpusharing.core.matching import count_of
from gpusharing.core.placement.incidents import quota_exceeded
from gpusharing.core.placement.problems import Problem

HARD = f"requests.{names.GPU_RESOURCE}"


@dataclass(frozen=True, slots=True)
class Quota:
    """How many GPUs pods of a namespace may request, and how many they do."""

    namespace: str
    name: str
    hard: int
    used: int

    @property
    def left(self) -> int:
        """Return how many more pods may request."""
        return self.hard - self.used


def read_quota(obj: Mapping[str, Any]) -> Quota | None:
    """Read a ResourceQuota; None = it says nothing about GPUs."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    hard = count_of((obj.get("spec") or {}).get("hard", {}).get(HARD))
    if hard is None:
        return None
    used = count_of((status.get("used") or {}).get(HARD)) or 0
    return Quota(metadata.get("namespace", ""), metadata["name"], hard, used)


def quota_problem(namespace: str, quotas: Iterable[Quota], needs: int, others: int) -> Problem | None:
    """Return what keeps a placement that needs so many GPUs, beside so many that other placements have.

    The most restrictive quota of the namespace counts.
    """
    tightest = min(quotas, key=lambda quota: (quota.left, quota.name), default=None)
    if tightest is None or needs + tightest.used + others <= tightest.hard:
        return None
    return quota_exceeded(namespace, tightest.hard, needs, tightest.used + others)
