"""Which config is served: the desired one if text, hardware and host allow it, else the last good one (decision 36).

    desired text ─► accept ─► fit to the GPUs ─► ask the host ─► served

A config that is refused changes nothing, and is tried again now and then: the host may have been mended.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpusharing.core.acceptance import Accepted, ConfigText, Fitted, accept, fit
from gpusharing.core.changepace import COALESCE, SPACING, ChangePace
from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts
from gpusharing.core.listing import Listing
from gpusharing.core.options import Options
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.deviceplugin.edges import Host
from gpusharing.observability.logs import logger

log = logger(__name__)

# Seconds to wait at least: a timer may fire a little early.
SHORTEST = 0.01


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """Seconds."""

    # between two changes of config, and from a change to its taking effect (decision 32)
    spacing: float = SPACING
    coalesce: float = COALESCE
    # until a config that was refused is tried again
    retry: float = 10.0
    # between two looks whether device nodes came or went
    look: float = 1.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What is served, and what is wrong with what is desired."""

    # the last good config; None = none was ever good
    accepted: Accepted | None = None
    # what it makes of the hardware; None = that was not seen yet
    fitted: Fitted | None = None
    facts: HostFacts = field(default_factory=HostFacts)
    # the desired config, if its text is good
    wanted: Accepted | None = None
    # why the desired config is refused, or the served one on hardware that has changed; empty = neither is
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a decision is made from."""

    desired: Desired | None
    inventory: Inventory | None
    nodes: frozenset[str]


class Decider:
    """Keeps `decision` up to date. `changed` is called when it is another one."""

    def __init__(
        self,
        options: Options,
        host: Host,
        inventory: Callable[[], Inventory | None],
        listing: Callable[[], Listing],
        changed: Callable[[], None],
        *,
        restored: Accepted | None = None,
        runtime: str = "",
        node_runtime: str = "",
        times: DecisionTimes = DecisionTimes(),
    ) -> None:
        """`restored` was served before the restart. `runtime` is a setting that wins over the Node's word."""
        self._options = options
        self._host = host
        self._inventory = inventory
        self._listing = listing
        self._changed = changed
        self._runtime = runtime
        self._times = times
        self._wake = asyncio.Event()
        self._pace: ChangePace[Desired] = ChangePace(times.spacing, times.coalesce)
        self._decided: _Basis | None = None
        self._decide_again = float("inf")
        self.decision = Decision(restored)
        # the container runtime as the Node says it; until it does, as it said before the restart
        self.node_runtime = node_runtime

    @property
    def desired(self) -> Desired | None:
        """Return what should be served; None = nobody has said yet."""
        return self._pace.current

    def desire(self, desired: Desired) -> None:
        """Take in which config the node should serve."""
        self._pace = self._pace.ask(desired, asyncio.get_running_loop().time())
        self.wake()

    def wake(self) -> None:
        """Decide anew soon: something was observed."""
        self._wake.set()

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            self._wake.clear()
            await self.decide()
            now, due = asyncio.get_running_loop().time(), self._pace.due()
            left = self._times.look if due is None else min(self._times.look, due - now)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(left, SHORTEST)):
                    await self._wake.wait()

    async def decide(self) -> None:
        """Decide, if there is anything new to decide about."""
        now = asyncio.get_running_loop().time()
        if (due := self._pace.due()) is not None and now >= due:
            self._pace = self._pace.take()
        if self.desired is not None and self.desired.runtime_version:
            self.node_runtime = self.desired.runtime_version
        basis = _Basis(self.desired, self._inventory(), self._nodes())
        if basis == self._decided and now < self._decide_again:
            return
        self._take(await self._decision(basis))
        self._decided = replace(basis, nodes=self._nodes())
        self._decide_again = now + self._times.retry if self.decision.error else float("inf")

    def _nodes(self) -> frozenset[str]:
        served = self.decision.accepted.served if self.decision.accepted else ServedConfig()
        return self._host.nodes(served)

    async def _decision(self, basis: _Basis) -> Decision:
        """Return what to serve: what is desired, else what is served already; as much as is known of the hardware."""
        wanted, error = self._read(basis.desired)
        before, inventory = self.decision, basis.inventory
        if inventory is None:
            return replace(before, wanted=wanted, error=error)
        for candidate in _different(wanted, before.accepted):
            try:
                fitted = fit(candidate, inventory, self._listing())
                facts = await self._host.facts(fitted.served, inventory, self._runtime or self.node_runtime)
                return Decision(candidate, fitted, facts, wanted, error)
            except InvalidInput as refused:
                error = error or str(refused)
        return replace(before, wanted=wanted, error=error)

    def _read(self, desired: Desired | None) -> tuple[Accepted | None, str]:
        """Return the desired config, if its text is good, and why it is not."""
        if desired is None or desired.missing:
            return None, ""
        source = ConfigText(desired.name, desired.text, desired.rendered)
        try:
            return accept(source, self._options, self._runtime or self.node_runtime), ""
        except InvalidInput as refused:
            return None, str(refused)

    def _take(self, decision: Decision) -> None:
        before, self.decision = self.decision, decision
        if decision.error and decision.error != before.error:
            log.warning("config refused", config=self.desired.name if self.desired else "", error=decision.error)
        if decision.fitted is not None and decision.accepted is not before.accepted:
            _say_served(decision.fitted)
            if before.accepted is not None:
                self._pace = self._pace.applied(asyncio.get_running_loop().time())
        if decision != before:
            self._changed()


def _different(wanted: Accepted | None, served: Accepted | None) -> Sequence[Accepted]:
    """Return what may be served, best first; an equal config stays the same object."""
    if wanted is None or wanted == served:
        return (served,) if served is not None else ()
    return (wanted, served) if served is not None else (wanted,)


def _say_served(fitted: Fitted) -> None:
    log.info("config served", config=fitted.served.name, resources=[each.name for each in fitted.resources])
    for hidden in fitted.accepted.hidden:
        log.warning("part of the config is hidden", what=str(hidden))
    for remark in fitted.accepted.remarks:
        log.warning("config", remark=remark)
