"""Leader guard on one Lease. Whoever holds it writes; losing it ends the process.

Rules: an attempt is GET, then create or replace with the resourceVersion, within half the deadline (a busy API server
takes seconds); any exception means "not renewed"; another holder's expiry is judged by our own monotonic clock since
its record last changed.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpusharing.api import names
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths
from gpusharing.kube.client import Client, JsonObject

CLEANUP_HOLDER = "cleanup"
CLEANUP_SECONDS = 300


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: others wait `duration` after our last renewal; we give up after `deadline`; we try each `period`."""

    duration: float = 15.0
    deadline: float = 10.0
    period: float = 2.0


class LeaseGuard:
    """Acquire, hold, and say when it is lost."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        identity: str,
        times: LeaseTimes = LeaseTimes(),
        *,
        clock: Callable[[], float] = time.monotonic,
        on_wait: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._client = client
        self._path = paths.leases(namespace)
        self._namespace = namespace
        self._identity = identity
        self._times = times
        self._clock = clock
        self._on_wait = on_wait
        self._seen: tuple[object, float] = (None, 0.0)
        self._renewed_at = float("-inf")
        self.lost = asyncio.Event()

    @property
    def held(self) -> bool:
        """Whether we may write right now; asked before every write."""
        return not self.lost.is_set() and self._left > 0

    @property
    def _left(self) -> float:
        """Return the seconds until we give up."""
        return self._renewed_at + self._times.deadline - self._clock()

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        while not await self._attempt():
            await asyncio.sleep(self._times.period)

    async def hold(self) -> None:
        """Renew until it fails for longer than the deadline; then `lost` is set."""
        while self.held:
            await asyncio.sleep(min(self._times.period, self._left))
            if self.held:
                await self._attempt()
        self.lost.set()

    async def release(self) -> None:
        """Let a standby lead at once: an empty holder, one second. A lease that was taken over is left alone."""
        if self.held:
            self.lost.set()
            with suppress(ApiError):  # others wait for the expiry instead
                await self._write("", 1, only_ours=True)

    async def take_over(self) -> float:
        """Take the lease whoever holds it (`cleanup` only).

        Returns the seconds after which its former holder writes no more: the time that it said itself, as it may run
        with other settings than ours.
        """
        theirs = ((await self._get() or {}).get("spec") or {}).get("leaseDurationSeconds") or 0
        started = self._clock()
        await self._write(self._identity, self._times.duration)
        self._renewed_at = started
        return max(self._times.deadline, float(theirs)) + self._times.period

    async def keep_for_cleanup(self) -> datetime:
        """Leave the lease with holder `cleanup`, so that no controller writes everything back. Returns until when."""
        await self._write(CLEANUP_HOLDER, CLEANUP_SECONDS)
        return datetime.now(UTC) + timedelta(seconds=CLEANUP_SECONDS)

    async def _write(self, holder: str, seconds: float, *, only_ours: bool = False) -> None:
        """Write a holder, whoever it was (`only_ours`: where it is us); what changes meanwhile is read again."""
        while True:
            lease = await self._get()
            if only_ours and _holder(lease) != self._identity:
                return
            try:
                await self._put(lease, holder, seconds)
                return
            except ApiError as error:
                if error.status != 409:
                    raise

    async def _attempt(self) -> bool:
        started, patience = self._clock(), self._times.deadline / 2
        try:
            async with asyncio.timeout(min(patience, self._left) if self.held else patience):
                lease = await self._get()
                if lease is not None and not self._may_take(lease):
                    return False
                await self._put(lease, self._identity, self._times.duration)
        except Exception as error:  # whatever it is, the lease is not renewed
            self._on_wait(f"the lease could not be written: {str(error) or 'no answer in time'}")
            return False
        self._renewed_at = started
        return True

    def _may_take(self, lease: JsonObject) -> bool:
        spec = lease.get("spec") or {}
        holder = _holder(lease)
        if holder in {"", self._identity}:
            return True
        record = (holder, spec.get("renewTime"), lease["metadata"].get("resourceVersion"))
        if record != self._seen[0]:
            self._seen = (record, self._clock())
        if self._clock() - self._seen[1] >= float(spec.get("leaseDurationSeconds") or self._times.duration):
            return True
        if holder == CLEANUP_HOLDER:
            self._on_wait(f"cleanup holds the lease until {_until(spec)}; hint: finish the uninstall, or wait")
        else:
            self._on_wait(f"{holder} leads; standing by")
        return False

    async def _get(self) -> JsonObject | None:
        try:
            return await self._client.get(f"{self._path}/{names.LEASE}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _put(self, lease: JsonObject | None, holder: str, seconds: float) -> None:
        # MicroTime wants fractional digits; a Lease without any is refused with 400.
        moment = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        old = (lease or {}).get("spec") or {}
        changed = old.get("holderIdentity") != holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, math.ceil(seconds)),  # no shorter than our deadline
            "acquireTime": moment if changed else old.get("acquireTime", moment),
            "renewTime": moment,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (1 if changed and lease else 0),
        }
        metadata = {"name": names.LEASE, "namespace": self._namespace}
        body: JsonObject = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        if lease is None:
            await self._client.create(self._path, body)
        else:
            metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
            await self._client.replace(f"{self._path}/{names.LEASE}", body)


def _holder(lease: JsonObject | None) -> str:
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


def _until(spec: JsonObject) -> str:
    try:
        end = datetime.fromisoformat(spec["renewTime"]) + timedelta(seconds=spec["leaseDurationSeconds"])
    except (KeyError, ValueError, TypeError):
        return "an unknown time"
    return end.strftime("%H:%M:%SZ")
