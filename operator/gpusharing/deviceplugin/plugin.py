"""The node's device plugin: from everything observed to what is served, listed and reported. One task decides.

    config ─┐
    GPUs  ──┼─► accept ─► fit ─► advance the lists ─► servers, checkpoint, report
    pods  ──┘

Whoever observes something calls `wake`. A config that is refused changes nothing: the last good one stays served, and
the report says why. Nothing here waits for the kubelet, NVML or the API server.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from gpusharing.core.acceptance import Accepted, ConfigText, Fitted, accept, fit
from gpusharing.core.allocation.request import Choice
from gpusharing.core.changepace import COALESCE, SPACING, ChangePace
from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts
from gpusharing.core.listing import LINGER, SETTLE, Listing, advance, lost, next_deadline
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.options import Options
from gpusharing.core.resources import Resource
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.deviceplugin.registration import RegistrationStatus
from gpusharing.deviceplugin.usage import Usage
from gpusharing.deviceplugin.view import View
from gpusharing.observability.logs import logger

log = logger(__name__)

NOT_SEEN_YET = "the GPUs have not been looked at yet"


class Hardware(Protocol):
    """What is known of the GPUs."""

    @property
    def inventory(self) -> Inventory | None:
        """Return what the node has, as it was last seen; None = it was never seen."""

    @property
    def problem(self) -> str:
        """Return why the GPUs cannot be seen now; empty = they can."""

    @property
    def sick(self) -> Mapping[str, str]:
        """Return UUID or single id → why it is sick."""


class Host(Protocol):
    """What is known of the host beside its GPUs."""

    async def facts(self, config: ServedConfig, inventory: Inventory, runtime: str) -> HostFacts:
        """Look, and write the CDI specs that the config needs. Raises InvalidInput if the config cannot be served.

        `runtime` is the container runtime as the Node says it; empty = not known.
        """

    def mps_ready(self, config: ServedConfig, resource: str) -> bool:
        """Return whether the MPS daemon of the resource runs with this config."""


class Server(Protocol):
    """What serves one resource to the kubelet."""

    @property
    def status(self) -> RegistrationStatus:
        """Return how it stands with the kubelet."""

    def start(self) -> None:
        """Serve and register."""

    def changed(self) -> None:
        """Send the list again if it differs."""

    async def stop(self) -> None:
        """End for good."""


@dataclass(frozen=True, slots=True)
class PluginTimes:
    """Seconds."""

    # what a kubelet may need between its choice and our `Allocate`, and how long an id lingers before it is left out
    settle: float = SETTLE
    linger: float = LINGER
    # the list of a resource that ends is empty for so long before its server stops
    farewell: float = 1.0
    # from a changed list to the look at what the kubelet makes of it
    confirm: float = 0.3
    # between two looks for the ready marker of an MPS daemon, and at servers for the report
    look: float = 1.0
    # until a config that was refused is tried again: the host may have been mended
    retry: float = 10.0
    # between two changes of config, and from a change to its taking effect (decision 32)
    spacing: float = SPACING
    coalesce: float = COALESCE


@dataclass(frozen=True, slots=True)
class State:
    """What outlives a restart."""

    accepted: Accepted | None = None
    listing: Listing = field(default_factory=Listing)
    # the node's container runtime; empty = not known
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a decision about a config is made from."""

    desired: Desired | None
    inventory: Inventory | None
    accepted: Accepted | None


class Plugin:
    """Decides what is served. Its inputs are read when `wake` was called; its outputs are servers, store and report."""

    def __init__(
        self,
        options: Options,
        hardware: Hardware,
        host: Host,
        usage: Usage,
        serve: Callable[[View], Server],
        *,
        report: Callable[[Observed], None] = lambda observed: None,
        save: Callable[[State], None] = lambda state: None,
        chose: Callable[[str, Choice], None] = lambda resource, choice: None,
        restored: State = State(),
        runtime: str = "",
        times: PluginTimes = PluginTimes(),
    ) -> None:
        """`restored` is what a former process had saved; `runtime` is a setting that wins over the Node's word.

        `save` is called after the kubelet was told, since serving must not wait for a disk.
        """
        self._options = options
        self._hardware = hardware
        self._host = host
        self._usage = usage
        self._serve = serve
        self._report = report
        self._save = save
        self._chose = chose
        self._runtime = runtime
        self._times = times
        self._wake = asyncio.Event()
        self._pace: ChangePace[Desired] = ChangePace(times.spacing, times.coalesce)
        self._accepted = restored.accepted
        self._listing = restored.listing
        self._saved = restored
        # as the Node says it; until it does, as it said before the restart
        self._node_runtime = restored.runtime
        self.observed = Observed()
        self._facts = HostFacts()
        self._fitted: Fitted | None = None
        # what the last decision about a config was made from, and when it is made again whatever happens
        self._decided: _Basis | None = None
        self._decide_again = float("inf")
        self._error = ""
        self._views: dict[str, View] = {}
        self._servers: dict[str, Server] = {}
        self._farewells: dict[str, asyncio.Task[None]] = {}
        # when the lists last changed; the kubelet's word from before is no word on them
        self._changed_at = float("-inf")

    # --- what happens outside

    def wake(self) -> None:
        """Decide anew soon: something was observed."""
        self._wake.set()

    def desire(self, desired: Desired) -> None:
        """Take in which config the node should serve."""
        self._pace = self._pace.ask(desired, asyncio.get_running_loop().time())
        self.wake()

    @property
    def servers(self) -> Sequence[RegistrationStatus]:
        """Return how each resource stands with the kubelet."""
        return tuple(server.status for server in self._servers.values())

    @property
    def served(self) -> ServedConfig | None:
        """Return what is served; None = nothing, no config was ever good."""
        return self._accepted.served if self._accepted else None

    # --- the loop

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            self._wake.clear()
            await self.decide()
            await self._until_woken()

    async def _until_woken(self) -> None:
        now = asyncio.get_running_loop().time()
        lists = next_deadline(self._listing, now, linger=self._times.linger, settle=self._times.settle)
        deadlines = (now + self._times.look, lists, self._pace.due(), self._decide_again)
        deadline = min(at for at in deadlines if at is not None)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._wake.wait()

    async def decide(self) -> None:
        """Bring what is served, listed and reported up to date with what is observed."""
        await self._decide_config()
        self._advance()
        self._show()
        self._tell()
        state = State(self._accepted, self._listing, self._node_runtime)
        if state != self._saved:
            self._saved = state
            self._save(state)

    async def stop(self) -> None:
        """End all servers at once (P11)."""
        for task in self._farewells.values():
            task.cancel()
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    # --- which config

    async def _decide_config(self) -> None:
        """Take the desired config, if it can be served on this hardware; else keep what is served, and say why."""
        now = asyncio.get_running_loop().time()
        if (due := self._pace.due()) is not None and now >= due:
            self._pace = self._pace.take()
        basis = _Basis(self._pace.current, self._hardware.inventory, self._accepted)
        if basis.desired is not None and basis.desired.runtime_version:
            self._node_runtime = basis.desired.runtime_version
        if basis.inventory is None or (basis == self._decided and now < self._decide_again):
            return
        self._error = ""
        for candidate in self._candidates(basis.desired):
            if await self._try(candidate, basis.inventory):
                break
        self._decided = replace(basis, accepted=self._accepted)
        self._decide_again = now + self._times.retry if self._error else float("inf")

    def _candidates(self, desired: Desired | None) -> list[Accepted]:
        """Return what may be served: what is desired, if it can be read at all, then what is served already."""
        served = [self._accepted] if self._accepted else []
        if desired is None or desired.missing:
            return served
        source = ConfigText(desired.name, desired.text, desired.rendered)
        try:
            wanted = accept(source, self._options, self._runtime or self._node_runtime)
        except InvalidInput as refused:
            self._refuse(source.name, refused)
            return served
        return served if [wanted] == served else [wanted, *served]

    async def _try(self, candidate: Accepted, inventory: Inventory) -> bool:
        """Serve the config, if hardware and host allow it; return whether they do."""
        try:
            fitted = fit(candidate, inventory, self._listing)
            facts = await self._host.facts(fitted.served, inventory, self._runtime or self._node_runtime)
            self._take(fitted, facts)
        except InvalidInput as refused:
            self._refuse(candidate.source.name, refused)
            return False
        return True

    def _refuse(self, name: str, refused: InvalidInput) -> None:
        if not self._error:
            self._error = str(refused)
            log.warning("config refused", config=name, error=refused.message, hint=refused.hint)

    def _take(self, fitted: Fitted, facts: HostFacts) -> None:
        if fitted.accepted is not self._accepted:
            if self._accepted is not None:
                self._pace = self._pace.applied(asyncio.get_running_loop().time())
            log.info("config served", config=fitted.served.name, resources=[each.name for each in fitted.resources])
            for hidden in fitted.accepted.hidden:
                log.warning("part of the config is hidden", what=str(hidden))
            for remark in fitted.accepted.remarks:
                log.warning("config", remark=remark)
        self._accepted, self._fitted, self._facts = fitted.accepted, fitted, facts

    # --- which lists

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        listing = advance(
            self._listing,
            self._wanted(),
            self.served or ServedConfig(),
            sick=self._sick(),
            held=self._usage.held(),
            held_at=self._usage.looked_at,
            calls_open=frozenset(name for name, view in self._views.items() if view.is_answering),
            now=now,
            linger=self._times.linger,
            settle=self._times.settle,
        )
        if listing is self._listing:
            return
        self._listing, self._changed_at = listing, now
        self._usage.look_within(self._times.confirm)

    def _wanted(self) -> tuple[Resource, ...]:
        """Return what should be listed; before the hardware was seen, what was listed before the restart."""
        if self._fitted is None:
            return _as_listed(self._listing)
        served = self._fitted.served
        return tuple(
            each
            for each in self._fitted.resources
            if each.name in self._listing.lists or not each.mps or self._host.mps_ready(served, each.name)
        )

    def _sick(self) -> Mapping[str, str]:
        inventory = self._hardware.inventory
        if inventory is None:
            why = self._hardware.problem or NOT_SEEN_YET
            return {entry.device.gpu: why for entries in self._listing.lists.values() for entry in entries.values()}
        return {**lost(self._listing, inventory), **self._hardware.sick}

    # --- who hears of it

    def _show(self) -> None:
        """Have each resource served as it is listed now."""
        inventory, held = self._hardware.inventory or Inventory(), self._usage.held() or {}
        for name in self._listing.lists:
            if name not in self._views:
                self._views[name] = View(name, gave=self._usage.gave, chose=self._chose, answered=self.wake)
            if self._views[name].show(self._listing, inventory, self._facts, held) and name in self._servers:
                self._servers[name].changed()
            if name not in self._servers:
                self._servers[name] = self._serve(self._views[name])
                self._servers[name].start()
        for name in self._listing.ended:
            if name not in self._farewells:
                self._farewells[name] = asyncio.create_task(self._bid_farewell(name))

    async def _bid_farewell(self, name: str) -> None:
        """Stop serving a resource a moment after its empty list was sent (decision 46)."""
        await asyncio.sleep(self._times.farewell)
        if name in self._listing.ended:
            await self._servers.pop(name).stop()
            self._views.pop(name)
            self._listing = self._listing.without(name)
            log.info("resource ended", resource=name)
        del self._farewells[name]
        self.wake()

    def _tell(self) -> None:
        """Report how things are."""
        desired, hardware, usage = self._pace.current, self._hardware, self._usage
        unregistered = {status.resource: status.problem for status in self.servers if status.problem}
        seen_since = usage.looked_at > self._changed_at
        fitted = self._fitted
        self.observed = Observed(
            inventory=hardware.inventory or Inventory(),
            nvml_error=hardware.problem,
            sick=self._sick(),
            listing=self._listing,
            served=self.served,
            desired=desired.name if desired else "",
            last_good=self.served.name if self.served else "",
            policy=desired.policy if desired else "",
            config_error=self._error,
            config_missing=desired.missing if desired else "",
            unknown_keys=fitted.accepted.unknown_keys if fitted else (),
            unknown_resources=fitted.unknown_resources if fitted else (),
            pods=usage.pods or (),
            confirmed=usage.allocatable if seen_since else None,
            pod_resources_error=usage.problem,
            unregistered=MappingProxyType(unregistered),
        )
        self._report(self.observed)


def _as_listed(listing: Listing) -> tuple[Resource, ...]:
    """Return the resources whose ids are listed and not retiring."""
    found = []
    for entries in listing.lists.values():
        current = [entry for entry in entries.values() if entry.state != "retiring"]
        if current:
            found.append(replace(current[0].resource, devices=tuple(entry.device for entry in current)))
    return tuple(found)
