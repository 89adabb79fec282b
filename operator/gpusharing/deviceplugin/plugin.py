"""The node's device plugin: from everything observed to what is listed, served and reported.

    config ─► decider ─┐
    reservations ──────┼─► advance the ledger ─► advance the lists ─► servers, report, checkpoint
    GPUs, pods ────────┘

Whoever observes something calls `wake`. The lists wait for nothing: not for kubelet, NVML, API server, disk or host;
but a GPU that changes its owner waits until the disk has it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from gpusharing.core.devices import Inventory
from gpusharing.core.ledger import Facts, facts_of
from gpusharing.core.listing import (
    LINGER,
    SETTLE,
    advance,
    linger_anew,
    listed_resources,
    next_deadline,
)
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.options import Options
from gpusharing.core.reservationreport import Reserved
from gpusharing.core.reservations import Wanted
from gpusharing.core.resources import Resource
from gpusharing.core.serving import ServedConfig
from gpusharing.core.sickness import all_sick, sick_devices, unreservable
from gpusharing.deviceplugin.config_source import Desired
from gpusharing.deviceplugin.decider import SHORTEST, Decider, DecisionTimes
from gpusharing.deviceplugin.edges import Hardware, Host, Server
from gpusharing.deviceplugin.fragmentation import FragmentationLook
from gpusharing.deviceplugin.kubeletword import KubeletWord
from gpusharing.deviceplugin.ledger import LedgerKeeper
from gpusharing.deviceplugin.overruled import Overruled
from gpusharing.deviceplugin.processes import GpuProcesses
from gpusharing.deviceplugin.registration import RegistrationStatus
from gpusharing.deviceplugin.saving import Saving, State
from gpusharing.deviceplugin.servers import Servers, ServerTimes, Shown
from gpusharing.deviceplugin.usage import Usage
from gpusharing.deviceplugin.view import View

GPUS_NOT_SEEN = "the GPUs have not been looked at yet"
CONFIG_NOT_KNOWN = "which config the node should serve is not known yet"
RESERVATIONS_NOT_KNOWN = "which GPUs of the node are reserved is not known yet: the API server has not said"


@dataclass(frozen=True, slots=True)
class PluginTimes:
    """Seconds."""

    # what a kubelet may need between its choice and our `Allocate`, and how long an id lingers before it is left out
    settle: float = SETTLE
    linger: float = LINGER
    # a look at what the kubelet makes of a list counts if it began so long after the list changed
    confirm: float = 0.3
    # between two looks at what nobody tells us of
    look: float = 1.0
    # between two looks at how scattered the node is
    fragmentation: float = 5.0
    # from a change to its being saved: the kubelet hears of it first; and until a disk that failed is tried again
    save: float = 0.05
    save_again: float = 10.0
    servers: ServerTimes = field(default_factory=ServerTimes)
    decisions: DecisionTimes = field(default_factory=DecisionTimes)


class Plugin:
    """Keeps the lists. Its inputs are read when `wake` was called; its outputs are servers, store and report."""

    def __init__(
        self,
        options: Options,
        hardware: Hardware,
        host: Host,
        usage: Usage,
        processes: GpuProcesses,
        serve: Callable[[View], Server],
        *,
        report: Callable[[Observed], None] = lambda observed: None,
        save: Callable[[State], bool] = lambda state: True,
        reservations: LedgerKeeper | None = None,
        restored: State | None = None,
        runtime: str = "",
        times: PluginTimes = PluginTimes(),
    ) -> None:
        """`restored` is what a former process had saved; `runtime` is a setting that wins over the Node's word.

        `save` returns whether it could; serving never waits for a disk (F25). Without `reservations` there are none.
        """
        self._hardware = hardware
        self._host = host
        self._usage = usage
        self._processes = processes
        self._report = report
        before = restored or State()
        self._times = times
        self._wake = asyncio.Event()
        self._sick: Mapping[str, str] = MappingProxyType({})
        self._listing = before.listing
        self._decider = Decider(
            options,
            host,
            lambda: self._hardware.inventory,
            lambda: self._listing,
            self._wake.set,
            restored=before.accepted,
            runtime=runtime,
            node_runtime=before.runtime,
            times=times.decisions,
        )
        self._saving = Saving(save, self._state, before, after=times.save, again=times.save_again)
        self._reservations = reservations or LedgerKeeper.idle()
        self._servers = Servers(serve, self._view, self._ended, times.servers)
        self._fragmentation = FragmentationLook(times.fragmentation)
        self._overruled = Overruled()
        self._word = KubeletWord(usage, confirm=times.confirm, linger=times.linger)
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

    def reserve(self, wanted: Wanted) -> None:
        """Take in which GPUs are to be reserved."""
        if self._reservations.want(wanted):
            self.wake()

    def see_node(self, capacity: Mapping[str, str]) -> None:
        """Take in resource → quantity as the Node shows it."""
        if self._reservations.see_node(capacity):
            self.wake()

    @property
    def servers(self) -> tuple[RegistrationStatus, ...]:
        """Return how each resource stands with the kubelet."""
        return self._servers.statuses

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
            tasks.create_task(self._saving.run())

    async def stop(self) -> None:
        """End all servers at once (P11), and save what was not yet."""
        await self._servers.stop()
        self._saving.now()

    async def _keep_lists(self) -> None:
        self._begin_anew()
        while True:
            self._wake.clear()
            self._advance()
            self._show()
            self._tell()
            self._saving.note()
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
        word = self._word.allocatable is None, self._word.settled is None
        due = self._fragmentation.is_due, self._reservations.is_due(asyncio.get_running_loop().time())
        return self.servers, word, self._wanted(), due

    def _state(self) -> State:
        return State(self._decider.decision.accepted, self._listing, self._decider.node_runtime)

    # --- which lists

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        self._note_streams()
        self._reservations.advance(now, self._word.pods, self._facts)
        self._processes.mind(self._reservations.is_moving)
        wanted = self._wanted()
        self._sick = self._sick_among(wanted)
        listing = advance(
            self._listing,
            wanted,
            self.served or ServedConfig(),
            sick=self._sick,
            held=self._word.held,
            held_at=self._usage.looked_at,
            calls_open=self._servers.answering,
            now=now,
            linger=self._times.linger,
            settle=self._times.settle,
        )
        if listing is not self._listing:
            self._listing = listing
            self._word.lists_changed()

    def _note_streams(self) -> None:
        """Take note of streams that opened and ended: what was seen of the kubelet before may count no more."""
        changed, restarted = self._servers.note_streams()
        if restarted or (self._word.is_gone and self._servers.streaming):
            self._begin_anew()
        if changed:
            self._word.lists_changed()

    def _begin_anew(self) -> None:
        self._word.restarted(gone=bool(self._servers.statuses) and not self._servers.streaming)
        self._listing = linger_anew(self._listing, asyncio.get_running_loop().time())

    def _facts(self) -> Facts:
        return facts_of(
            self._listing,
            self._hardware.inventory,
            self.served,
            self._word.held_or_unconfirmed,
            self._word.settled,
            self._processes.computing,
        )

    def _wanted(self) -> tuple[Resource, ...]:
        """Return what should be listed; before the hardware was seen, what was listed before the restart."""
        fitted = self._decider.decision.fitted
        if fitted is None:
            return self._reservations.divide(listed_resources(self._listing), None)
        resources = [each for each in fitted.resources if not each.mps or self._has_daemon(each, fitted.served)]
        return self._reservations.divide(resources, self._hardware.inventory or Inventory())

    def _has_daemon(self, resource: Resource, served: ServedConfig) -> bool:
        """Whether the resource's MPS shares are listed already, or may be, since their daemon is ready."""
        entries = self._listing.lists.get(resource.name, {}).values()
        listed = any(entry.resource.mps and entry.state != "retiring" for entry in entries)
        return listed or self._host.mps_ready(served, resource.name)

    def _sick_among(self, wanted: Sequence[Resource]) -> Mapping[str, str]:
        inventory = self._hardware.inventory
        if inventory is None:
            return all_sick(self._listing, self._hardware.problem or GPUS_NOT_SEEN)
        ledger = self._reservations.ledger
        return sick_devices(self._listing, wanted, ledger, inventory, self.served, self._hardware.sick)

    # --- who hears of it

    def _show(self) -> None:
        """Have each resource served as it is listed now."""
        self._servers.show(
            Shown(
                listing=self._listing,
                inventory=self._hardware.inventory or Inventory(),
                facts=self._decider.decision.facts,
                held=self._usage.held() or {},
                claimed=self._reservations.ledger.claims.keys(),
                empty=self._reservations.only_on_the_node(self._listing),
            )
        )
        self._note_streams()

    def _view(self, name: str) -> View:
        return View(name, gave=self._usage.gave, overruled=self._overruled.note, answered=self._wake.set)

    def _ended(self, name: str) -> None:
        if not self._listing.lists.get(name):
            self._listing = self._listing.without(name)
        self._wake.set()

    def _tell(self) -> None:
        """Report how things are, once they are known."""
        self.waiting = self._not_known()
        if not self.waiting:
            self.observed = self._observe()
            self._report(self.observed)

    def _not_known(self) -> str:
        if self._hardware.inventory is None and not self._hardware.problem:
            return GPUS_NOT_SEEN
        if self._reservations.wanted is None and not self._reservations.is_complete:
            return RESERVATIONS_NOT_KNOWN
        return CONFIG_NOT_KNOWN if self._decider.desired is None and self.served is None else ""

    def _reserved(self) -> Reserved:
        misfits = unreservable(self._reservations.ledger, self._hardware.inventory, self.served)
        held, streams = self._usage.held() or {}, self._servers.streaming
        return self._reservations.report(self._listing, held, streams, self._word.allocatable, misfits.keys())

    def _observe(self) -> Observed:
        decision, desired, hardware, usage = self._decider.decision, self._decider.desired, self._hardware, self._usage
        fitted, wanted = decision.fitted, decision.wanted
        return Observed(
            inventory=hardware.inventory or Inventory(),
            nvml_error=hardware.problem,
            sick=self._sick,
            listing=self._listing,
            reservations=self._reserved(),
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
            fragmentation=self._fragmentation.see(
                self._listing, usage.pods, self._reservations.shared(hardware.inventory)
            ),
            overruled=self._overruled.sentence,
            confirmed=self._word.allocatable,
            pod_resources_error=usage.problem,
            not_alone=self.not_alone,
            unregistered=MappingProxyType({each.resource: each.problem for each in self.servers if each.problem}),
        )
