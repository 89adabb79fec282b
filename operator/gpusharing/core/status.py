"""What became of a policy: node by node into a tally, and the tally into conditions (decision 17)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from gpusharing.api.meta import Condition, ConditionStatus
from gpusharing.api.policy import SAMPLE_MAX, NodeCounts, PlanSample, PlanSummary, PolicySpec, PolicyStatus
from gpusharing.api.reasons import ConditionType, Reason
from gpusharing.core.desired_state import Assignment, Layout, Outcome, Policy
from gpusharing.core.plan import Change, NodePlan
from gpusharing.core.progress import Progress, Verdict

MESSAGE_MAX = 32768
NAMED = 3
FAILED = {Progress.REFUSED, Progress.MISMATCH, Progress.GONE}


@dataclass(frozen=True, slots=True)
class NodeState:
    """Where one node stands: who owns it, what is to be written, and how far it is."""

    node: str
    assignment: Assignment
    plan: NodePlan
    verdict: Verdict = field(default_factory=lambda: Verdict(Progress.AWAITING))
    # Shared resources that the node cannot have.
    lacking: tuple[str, ...] = ()
    # The manager that fights over the label; empty = nobody.
    contested_by: str = ""
    # Why a write failed; empty = it did not.
    write_error: str = ""

    @property
    def owner(self) -> str:
        """Return the name of the policy that owns the node or keeps it frozen; empty = none."""
        return self.assignment.policy.name if self.assignment.policy else ""

    @property
    def written(self) -> bool:
        """Whether ConfigMap and label are as the owner wants them."""
        return not self.plan.actions and self.plan.wait is None and self.plan.change is not Change.REFUSED


class Tally:
    """The counts of one policy's nodes, added one by one, with the first few names of each kind."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.matched = self.owned = self.updated = self.applied = self.outranked = self.frozen = 0
        self.named: dict[str, list[str]] = {}
        self.counts: dict[str, int] = {}

    def add(self, state: NodeState) -> None:
        """Count one node that the policy matches or holds."""
        matched = self.policy in state.assignment.matched
        self.matched += matched
        if state.owner == self.policy:
            if state.plan.change is Change.MANUAL:
                self._note("skipped", f"{state.node} (configured by hand: {state.plan.before})")
            else:
                self._own(state)
        elif matched:
            self._lost(state)

    def _own(self, state: NodeState) -> None:
        self.owned += 1
        if state.assignment.outcome is Outcome.FROZEN:
            self.frozen += 1
            return
        if state.plan.change is Change.REFUSED:
            self._note(Reason.FOREIGN_CONFIGMAP, state.node)
        if state.contested_by:
            self._note(Reason.LABEL_CONTESTED, f"{state.node} ({state.contested_by})")
        if state.write_error:
            self._note(Reason.WRITE_FAILED, f"{state.node} ({state.write_error})")
        if state.lacking:
            self._note(Reason.UNSUPPORTED_BY_NODES, f"{state.node} ({', '.join(state.lacking)})")
        if not state.written:
            self._note(Reason.AWAITING_REPORT, f"{state.node} (not written yet)")
            return
        self.updated += 1
        if state.verdict.progress is Progress.APPLIED:
            self.applied += 1
        else:
            self._note(state.verdict.progress, f"{state.node} ({state.verdict.detail})")

    def _lost(self, state: NodeState) -> None:
        match state.assignment.outcome:
            case Outcome.HANDS_OFF:
                self._note("skipped", f"{state.node} (gpusharing.io/skip)")
            case Outcome.FROZEN:
                self._note("skipped", f"{state.node} (kept as it is by {state.owner})")
            case Outcome.OWNED if self.policy in state.assignment.tied:
                self._note("conflicting", f"{state.node} (owned by {state.owner})")
            case Outcome.OWNED:
                self.outranked += 1
            case _:  # unclaimed: only a policy in mode dry-run matches it
                pass

    def _note(self, kind: str, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        names = self.named.setdefault(kind, [])
        if len(names) < NAMED:
            names.append(text)

    def count(self, kind: str) -> int:
        """Return how many nodes are of this kind."""
        return self.counts.get(kind, 0)

    def say(self, kind: str) -> str:
        """Return the first few nodes of this kind and how many more there are."""
        names, more = self.named.get(kind, []), self.count(kind) - len(self.named.get(kind, []))
        return "; ".join(names) + (f"; and {more} more" if more else "")

    @property
    def failed(self) -> int:
        """Return how many owned nodes refuse the config or advertise a wrong capacity."""
        return sum(self.count(progress) for progress in FAILED)

    def node_counts(self) -> NodeCounts:
        """Return the counts as the status shows them."""
        return NodeCounts(
            matched=self.matched,
            owned=self.owned,
            updated=self.updated,
            applied=self.applied,
            conflicting=self.count("conflicting"),
            skipped=self.count("skipped"),
            failed=self.failed,
        )


def tally(policy: str, states: Iterable[NodeState]) -> Tally:
    """Count all nodes that the policy matches or holds."""
    counted = Tally(policy)
    for state in states:
        counted.add(state)
    return counted


def policy_status(
    policy: Policy,
    counted: Tally,
    previous: PolicyStatus,
    now: datetime,
    *,
    layout: Layout,
    plan: PlanSummary | None = None,
) -> PolicyStatus:
    """Return the whole status. `previous` is what stands in the cluster: Ready, once reached, is kept from it."""
    was = {condition.type: condition for condition in previous.conditions}
    conditions = _conditions(policy, counted, was, layout)
    stamped = []
    for kind, (status, reason, message) in conditions.items():
        before = was.get(kind)
        same = before is not None and before.status == status
        stamped.append(
            Condition(
                type=kind,
                status=status,
                reason=reason,
                message=message[:MESSAGE_MAX],
                observed_generation=policy.generation,
                last_transition_time=before.last_transition_time if same and before else now.replace(microsecond=0),
            )
        )
    spec, rendered = policy.spec, policy.rendered
    return PolicyStatus(
        observed_generation=policy.generation,
        conditions=stamped,
        config_name=rendered.name if rendered else previous.config_name,
        config_hash=rendered.digest if rendered else previous.config_hash,
        nodes=counted.node_counts(),
        plan=plan,
        allocation_policy=spec.allocation.policy if spec else previous.allocation_policy,
        sharing=sharing_words(spec) if spec else previous.sharing,
    )


Judgement = tuple[ConditionStatus, str, str]


def _conditions(
    policy: Policy, counted: Tally, was: dict[str, Condition], layout: Layout
) -> dict[ConditionType, Judgement]:
    conditions: dict[ConditionType, Judgement] = {}
    applied = _applied(counted) if policy.enforced and counted.owned else None
    ready, stalled = _ready(policy, counted, applied)
    before = was.get(ConditionType.READY)
    if (
        ready[0] != "True"
        and policy.problems == ()
        and before is not None
        and before.status == "True"
        and before.observed_generation == policy.generation
    ):
        # Nodes that join later, autoscaling and drift must not make GitOps tools flap.
        ready, stalled = ("True", ready[1], f"This generation was ready before; now: {ready[2]}"), False
    conditions[ConditionType.READY] = ready
    if stalled:
        conditions[ConditionType.STALLED] = ("True", ready[1], ready[2])
    elif ready[0] != "True":
        conditions[ConditionType.RECONCILING] = ("True", ready[1], ready[2])
    if applied is not None:
        conditions[ConditionType.APPLIED] = applied
    if counted.count("conflicting"):
        conditions[ConditionType.CONFLICTED] = ("True", Reason.CONFLICTING_POLICIES, _tie_message(policy, counted))
    degraded = _degraded(policy, counted, layout)
    if degraded:
        conditions[ConditionType.DEGRADED] = ("True", degraded[0][0], " ".join(message for _, message in degraded))
    return conditions


def _applied(counted: Tally) -> Judgement:
    for reason in (Reason.CONFIG_REFUSED, Reason.CAPACITY_MISMATCH, Reason.PLUGIN_GONE):
        if counted.count(reason):
            word = Reason.CAPACITY_MISMATCH if reason is Reason.PLUGIN_GONE else reason
            return ("False", word, f"{counted.count(reason)} of {counted.owned} nodes: {counted.say(reason)}.")
    if counted.applied == counted.owned:
        return ("True", Reason.APPLIED, f"{counted.applied} of {counted.owned} nodes serve the config.")
    waiting = Reason.NO_INVENTORY if counted.count(Reason.NO_INVENTORY) else Reason.AWAITING_REPORT
    return (
        "Unknown",
        waiting,
        f"{counted.updated} of {counted.owned} nodes are written, {counted.applied} serve the config. "
        f"Waiting for: {counted.say(waiting) or 'writes'}.",
    )


def _ready(policy: Policy, counted: Tally, applied: Judgement | None) -> tuple[Judgement, bool]:
    """Return Ready, and whether only a person can help."""
    if policy.spec is None:
        text = " ".join(f"{problem}." for problem in policy.problems)
        return ("False", Reason.INVALID_SPEC, f"{text} Nodes that the policy owns stay as they are."), True
    if policy.spec.mode == "dry-run":
        return ("True", Reason.DRY_RUN, "status.plan says what would be done; nothing is written."), False
    if applied is not None:
        if applied[0] == "True":
            return ("True", Reason.APPLIED, applied[2]), False
        return applied, False
    if not counted.matched:
        return ("True", Reason.NO_MATCHING_NODES, "The selector names no GPU node."), False
    if counted.outranked:
        return (
            "True",
            Reason.SUPERSEDED,
            f"{counted.outranked} of {counted.matched} nodes are owned by policies of higher rank.",
        ), False
    if counted.count("conflicting"):
        return ("False", Reason.CONFLICTING_POLICIES, _tie_message(policy, counted)), True
    return (
        "False",
        Reason.ALL_NODES_SKIPPED,
        f"All {counted.matched} matching nodes are left alone: {counted.say('skipped')}. hint: remove the label "
        "gpusharing.io/skip, or the config label that was set by hand, or set spec.adoptManual: true, or enforce or "
        "delete the policy that keeps them.",
    ), True


def _tie_message(policy: Policy, counted: Tally) -> str:
    return (
        f"{counted.count('conflicting')} nodes match policies of equal priority that want different configs; the older "
        f"owns them: {counted.say('conflicting')}. hint: set spec.priority on one of them, or narrow a nodeSelector."
    )


def _degraded(policy: Policy, counted: Tally, layout: Layout) -> list[tuple[Reason, str]]:
    """Return everything that works less well than it should, worst first."""
    sentences = {
        Reason.WRITE_FAILED: "The API server refused a write",
        Reason.FOREIGN_CONFIGMAP: "A ConfigMap of the name that we need exists and is not ours",
        Reason.LABEL_CONTESTED: "Something else keeps changing the config label",
        Reason.CONFIG_REFUSED: "The plugin refused the config",
        Reason.CAPACITY_MISMATCH: "The kubelet confirms another number of devices than the config implies",
        Reason.PLUGIN_GONE: "No devices are allocatable: is the plugin running?",
        Reason.UNSUPPORTED_BY_NODES: "Nodes cannot have what spec.sharing.resources names",
    }
    found = [
        (reason, f"{sentence}: {counted.count(reason)} nodes: {counted.say(reason)}.")
        for reason, sentence in sentences.items()
        if counted.count(reason)
    ]
    if layout == "shared" and policy.spec and unsupported_allocation(policy.spec):
        found.append(
            (
                Reason.ALLOCATION_UNSUPPORTED,
                f"NVIDIA's plugin ignores {', '.join(unsupported_allocation(policy.spec))}; it knows packed and "
                "distributed only.",
            )
        )
    return found


def unsupported_allocation(spec: PolicySpec) -> tuple[str, ...]:
    """Return the allocation settings that only our own plugin obeys (decision 1)."""
    allocation = spec.allocation
    settings = [
        ("policy: spread", allocation.policy == "spread"),
        (f"keepTogether: {allocation.keep_together}", allocation.keep_together != "none"),
        (f"topology: {allocation.topology}", allocation.topology != "none"),
    ]
    return tuple(text for text, used in settings if used)


def sharing_words(spec: PolicySpec) -> str:
    """Return the sharing as `kubectl get` shows it: `4x time-slicing`, `2-8x mps`, `none`."""
    if spec.sharing is None:
        return "none"
    replicas = sorted({resource.replicas for resource in spec.sharing.resources})
    times = f"{replicas[0]}x" if len(replicas) == 1 else f"{replicas[0]}-{replicas[-1]}x"
    return f"{times} {spec.sharing.strategy}"


def plan_summary(plans: Iterable[NodePlan]) -> PlanSummary:
    """Summarise what a dry-run policy would do to the nodes that it would own, or would let go."""
    counts = dict.fromkeys(("add", "change", "release", "unchanged", "skipped"), 0)
    sample: list[PlanSample] = []
    for plan in sorted(plans, key=lambda plan: plan.node):
        match plan.change:
            case Change.ADD | Change.CHANGE | Change.RELEASE as change:
                counts[change] += 1
                if len(sample) < SAMPLE_MAX:
                    sample.append(PlanSample.model_validate({"node": plan.node, "from": plan.before, "to": plan.after}))
            case Change.REPAIR | Change.UNCHANGED:
                counts["unchanged"] += 1
            case _:
                counts["skipped"] += 1
    return PlanSummary(**counts, sample=sample)
