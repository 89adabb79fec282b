"""The node's device plugin: from everything observed to what is listed, served and reported.

    config ─► decider ─┐
    GPUs ──────────────┼─► advance the lists ─► servers, report, checkpoint
    pods ──────────────┘

Whoever observes something calls `wake`. The lists wait for nothing: not for kubelet, NVML, API server, disk or host.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from gpusharing.core.acceptance import Accepted
from gpusharing.core.devices import Inventory
from gpusharing.core.listing import LINGER, SETTLE, Listing, advance, listed_resources, lost, next_deadline
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.options import Options
from gpusharing.core.resources import Resource, gone
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.deviceplugin.decider import SHORTEST, Decider, DecisionTimes
from gpusharing.deviceplugin.edges import Hardware, Host, Server
from gpusharing.deviceplugin.fragmentation import FragmentationLook
from gpusharing.deviceplugin.overruled import Overruled
from gpusharing.deviceplugin.registration import RegistrationStatus
from gpusharing.deviceplugin.usage import Usage
from gpusharing.deviceplugin.view import View
from gpusharing.observability.logs import logger

log = logger(__name__)

GPUS_NOT_SEEN = "the GPUs have not been looked at yet"
CONFIG_NOT_KNOWN = "which config the node should serve is not known yet"


@dataclass(frozen=True, slots=True)
class PluginTimes:
    """Seconds."""

    # what a kubelet may need between its choice and our `Allocate`, and how long an id lingers before it is left out
    settle: float = SETTLE
    linger: float = LINGER
    # the list of a resource that ends is empty for so long before its server stops
    farewell: float = 1.0
    # from the end of a server to the next one of the same resource (kubelet contract 3.2)
    margin: float = 0.5
    # a look at what the kubelet makes of a list counts if it began so long after the list changed
    confirm: float = 0.3
    # between two looks at what nobody tells us of
    look: float = 1.0
    # between two looks at how scattered the node is
    fragmentation: float = 5.0
    # from a change to its being saved: the kubelet hears of it first; and until a disk that failed is tried again
    save: float = 0.05
    save_again: float = 10.0
    decisions: DecisionTimes = field(default_factory=DecisionTimes)


@dataclass(frozen=True, slots=True)
class State:
    """What outlives a restart."""

    accepted: Accepted | None = None
    listing: Listing = field(default_factory=Listing)
    # the node's container runtime; empty = not known
    runtime: str = ""


class Plugin:
    """Keeps the lists. Its inputs are read when `wake` was called; its outputs are servers, store and report."""

    def __init__(
        self,
        options: Options,
        hardware: Hardware,
        host: Host,
        usage: Usage,
        serve: Callable[[View], Server],
        *,
        report: Callable[[Observed], None] = lambda observed: None,
        save: Callable[[State], bool] = lambda state: True,
        restored: State = State(),
        runtime: str = "",
        times: PluginTimes = PluginTimes(),
    ) -> None:
        """`restored` is what a former process had saved; `runtime` is a setting that wins over the Node's word.

        `save` returns whether it could; serving never waits for a disk (F25).
        """
        self._hardware = hardware
        self._host = host
        self._usage = usage
        self._serve = serve
        self._report = report
        self._save = save
        self._times = times
        self._wake = asyncio.Event()
        self._unsaved = asyncio.Event()
        self._saved = restored
        self._sick: Mapping[str, str] = MappingProxyType({})
        self._listing = restored.listing
        self._decider = Decider(
            options,
            host,
            lambda: self._hardware.inventory,
            lambda: self._listing,
            self._wake.set,
            restored=restored.accepted,
            runtime=runtime,
            node_runtime=restored.runtime,
            times=times.decisions,
        )
        self._views: dict[str, View] = {}
        self._servers: dict[str, Server] = {}
        self._farewells: dict[str, asyncio.Task[None]] = {}
        self._fragmentation = FragmentationLook(times.fragmentation)
        self._overruled = Overruled()
        self._streams: frozenset[str] = frozenset()
        # when lists or streams last changed; the kubelet's word from before is no word on them
        self._changed_at = float("-inf")
        # why nothing can be said of the node yet; empty = `observed` can be
        self.waiting = GPUS_NOT_SEEN
        # what the host's lock says of another plugin; set from outside
        self.not_alone = ""
        self.observed = Observed()

    # --- what happens outside

    def wake(self) -> None:
        """Look at everything anew: something was observed."""
        self._decider.wake()
        self._wake.set()

    def desire(self, desired: Desired) -> None:
        """Take in which config the node should serve."""
        self._decider.desire(desired)

    @property
    def servers(self) -> tuple[RegistrationStatus, ...]:
        """Return how each resource stands with the kubelet."""
        return tuple(server.status for server in self._servers.values())

    @property
    def served(self) -> ServedConfig | None:
        """Return what is served; None = nothing, no config was ever good."""
        accepted = self._decider.decision.accepted
        return accepted.served if accepted else None

    # --- the loops

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._decider.run())
            tasks.create_task(self._keep_lists())
            tasks.create_task(self._keep_saved())

    async def stop(self) -> None:
        """End all servers at once (P11), and save what was not yet."""
        for task in self._farewells.values():
            task.cancel()
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        self._save_changes()

    async def _keep_lists(self) -> None:
        while True:
            self._wake.clear()
            self._advance()
            self._show()
            self._tell()
            self._unsaved.set()
            await self._until_woken()

    async def _until_woken(self) -> None:
        """Wait until something was observed, a look shows something new, or time alone may change the lists."""
        unsettled = any(entry.state != "served" for ids in self._listing.lists.values() for entry in ids.values())
        before = self._signs()
        while True:
            now = asyncio.get_running_loop().time()
            lists = next_deadline(self._listing, now, linger=self._times.linger, settle=self._times.settle)
            left = self._times.look if lists is None else min(self._times.look, lists - now)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(left, SHORTEST)):
                    await self._wake.wait()
                return
            if lists is not None and asyncio.get_running_loop().time() >= lists:
                self._usage.look_within(0.0)  # only a look from now on says whether somebody holds what retires
            if unsettled or self._signs() != before:
                return

    def _signs(self) -> tuple[object, ...]:
        """Return what nobody tells us of."""
        return self.servers, self._is_confirmed(), self._wanted(), self._fragmentation.is_due

    async def _keep_saved(self) -> None:
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            await asyncio.sleep(self._times.save)
            if not self._save_changes():
                await asyncio.sleep(self._times.save_again)
                self._unsaved.set()

    def _save_changes(self) -> bool:
        """Save what differs from what was saved; return whether all is."""
        state = State(self._decider.decision.accepted, self._listing, self._decider.node_runtime)
        if state != self._saved and self._save(state):
            self._saved = state
        return state == self._saved

    # --- which lists

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        wanted = self._wanted()
        self._sick = self._sick_among(wanted)
        listing = advance(
            self._listing,
            wanted,
            self.served or ServedConfig(),
            sick=self._sick,
            held=self._usage.held(),
            held_at=self._usage.looked_at,
            calls_open=frozenset(name for name, view in self._views.items() if view.is_answering),
            now=now,
            linger=self._times.linger,
            settle=self._times.settle,
        )
        if listing is not self._listing:
            self._listing = listing
            self._confirm_anew()

    def _wanted(self) -> tuple[Resource, ...]:
        """Return what should be listed; before the hardware was seen, what was listed before the restart."""
        fitted = self._decider.decision.fitted
        if fitted is None:
            return listed_resources(self._listing)
        return tuple(each for each in fitted.resources if not each.mps or self._has_daemon(each, fitted.served))

    def _has_daemon(self, resource: Resource, served: ServedConfig) -> bool:
        """Whether the resource's MPS shares are listed already, or may be, since their daemon is ready."""
        entries = self._listing.lists.get(resource.name, {}).values()
        listed = any(entry.resource.mps and entry.state != "retiring" for entry in entries)
        return listed or self._host.mps_ready(served, resource.name)

    def _sick_among(self, wanted: Sequence[Resource]) -> Mapping[str, str]:
        inventory = self._hardware.inventory
        if inventory is None:
            why = self._hardware.problem or GPUS_NOT_SEEN
            return {entry.device.gpu: why for entries in self._listing.lists.values() for entry in entries.values()}
        return {**lost(self._listing, inventory), **gone(wanted, inventory), **self._hardware.sick}

    # --- who hears of it

    def _show(self) -> None:
        """Have each resource served as it is listed now."""
        inventory, held = self._hardware.inventory or Inventory(), self._usage.held() or {}
        facts = self._decider.decision.facts
        for name in self._listing.lists:
            if name not in self._views:
                self._views[name] = self._view(name)
            changed = self._views[name].show(self._listing, inventory, facts, held)
            if name not in self._servers:
                self._servers[name] = self._serve(self._views[name])
                self._servers[name].start()
            elif changed:
                self._servers[name].changed()
        for name in self._listing.ended:
            if name not in self._farewells:
                self._farewells[name] = asyncio.create_task(self._bid_farewell(name))
        streams = frozenset(status.resource for status in self.servers if status.stream_open)
        if streams != self._streams:
            self._streams = streams
            self._confirm_anew()

    def _view(self, name: str) -> View:
        return View(name, gave=self._usage.gave, overruled=self._overruled.note, answered=self._wake.set)

    async def _bid_farewell(self, name: str) -> None:
        """Stop serving a resource a moment after its empty list was sent (decision 46).

        Wanted again meanwhile, it gets a server of its own once this one has ended: never two at a time.
        """
        await asyncio.sleep(self._times.farewell)
        if name in self._listing.ended:
            self._listing = self._listing.without(name)
            del self._views[name]
            await asyncio.shield(self._servers[name].stop())
            await asyncio.sleep(self._times.margin)
            del self._servers[name]
            log.info("resource ended", resource=name)
        del self._farewells[name]
        self._wake.set()

    def _confirm_anew(self) -> None:
        """Have the kubelet asked what it makes of the lists."""
        self._changed_at = asyncio.get_running_loop().time()
        self._usage.look_within(2 * self._times.confirm)

    def _is_confirmed(self) -> bool:
        """Whether the kubelet's word is on the lists as they are."""
        return self._usage.looked_at >= self._changed_at + self._times.confirm

    def _tell(self) -> None:
        """Report how things are, once they are known."""
        self.waiting = self._not_known()
        if not self.waiting:
            self.observed = self._observe()
            self._report(self.observed)

    def _not_known(self) -> str:
        if self._hardware.inventory is None and not self._hardware.problem:
            return GPUS_NOT_SEEN
        return CONFIG_NOT_KNOWN if self._decider.desired is None and self.served is None else ""

    def _observe(self) -> Observed:
        decision, desired, hardware, usage = self._decider.decision, self._decider.desired, self._hardware, self._usage
        fitted, wanted = decision.fitted, decision.wanted
        return Observed(
            inventory=hardware.inventory or Inventory(),
            nvml_error=hardware.problem,
            sick=self._sick,
            listing=self._listing,
            served=self.served,
            wanted=wanted.served if wanted else None,
            desired=desired.name if desired else "",
            last_good=self.served.name if self.served else "",
            policy=desired.policy if desired else "",
            config_error=decision.error,
            config_missing=desired.missing if desired else "",
            unknown_keys=fitted.accepted.unknown_keys if fitted else (),
            unknown_resources=fitted.unknown_resources if fitted else (),
            pods=usage.pods or (),
            fragmentation=self._fragmentation.see(self._listing, usage.pods, hardware.inventory),
            overruled=self._overruled.sentence,
            confirmed=usage.allocatable if self._is_confirmed() else None,
            pod_resources_error=usage.problem,
            not_alone=self.not_alone,
            unregistered=MappingProxyType({each.resource: each.problem for each in self.servers if each.problem}),
        )
