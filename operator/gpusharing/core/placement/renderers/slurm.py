"""`-o slurm`: what a batch script needs for a plan (guide, sections 10.2 and 10.3).

`header.sh` asks Slurm for the nodes, `slots.sh` names the node of each slot, and `<service>.step.sh`, sourced inside
the step, picks the service's GPUs from those that Slurm gave the step: Slurm overwrites a value that is set outside.
All of it is POSIX sh without other programs, since it runs in the service's container.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpusharing.api.placement import Service
from gpusharing.core.placement.plan import Assignment, Slot
from gpusharing.core.placement.renderers import (
    ARGS,
    COUNT,
    DEVICE_IDS,
    DEVICE_ORDER,
    VISIBLE_DEVICES,
    File,
    Job,
    facts,
    listed,
)

CANNOT_RUN = 78  # EX_CONFIG of sysexits.h: the step must not start on GPUs that are not its own
RELAY = "GPU_PLACEMENT_RELAY_"

_REFUSE = """
gpusharing_refuse() {{
    printf '%s: %s\\n' {file} "$1" >&2
    exit {code}
}}
"""

_CHECK_NODE = """
# SLOT NODE: this must be the slot's node, as far as both are known
gpusharing_check_node() {
    if [ -n "$2" ] && [ -n "${SLURMD_NODENAME-}" ] && [ "$2" != "$SLURMD_NODENAME" ]; then
        gpusharing_refuse "$1 is node $2, but this step runs on $SLURMD_NODENAME; start it with --nodelist"
    fi
}
"""

_TAKE = """
# POSITION...: of the GPUs that Slurm gave this step, those at the positions (from 0); without a list, the positions
gpusharing_take() {{
    gpusharing_taken=
    for gpusharing_position in "$@"; do
        gpusharing_gpu=$gpusharing_position
        [ -z "${{CUDA_VISIBLE_DEVICES+set}}" ] || gpusharing_find "$gpusharing_position"
        gpusharing_taken=${{gpusharing_taken:+$gpusharing_taken,}}$gpusharing_gpu
    done
}}

gpusharing_find() {{
    gpusharing_rest=$CUDA_VISIBLE_DEVICES,
    gpusharing_skip=$1
    while [ "$gpusharing_skip" -gt 0 ]; do
        gpusharing_rest=${{gpusharing_rest#*,}}
        gpusharing_skip=$((gpusharing_skip - 1))
    done
    gpusharing_gpu=${{gpusharing_rest%%,*}}
    case $CUDA_VISIBLE_DEVICES,$gpusharing_gpu in
        NoDevFiles,*) gpusharing_refuse "Slurm gave this step no GPUs (NoDevFiles): use --gpus-per-node" ;;
        *,) gpusharing_refuse "needs the GPU at position $1, but Slurm gave this step '$CUDA_VISIBLE_DEVICES'" ;;
    esac
    case $gpusharing_gpu in
        {uuids}*[!0-9]*) gpusharing_refuse "'$gpusharing_gpu' in the GPUs of this step is no {expected}" ;;
    esac
}}
"""


def render(job: Job) -> Iterator[File]:
    """Yield the header, the slots, and a step file for each service that is exported on any slot."""
    groups = _groups(job)
    yield File("header.sh", job.marker + _header(groups))
    yield File("slots.sh", job.marker + _slots(job, groups))
    for service in job.deployed:
        if any(service.name in slot.exported for slot, _ in job.places(service.name)):
            yield _Step(job, service, groups).file()


# --- the job


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes that Slurm can be asked for at once: all have equally many GPUs."""

    number: int
    slots: tuple[Slot, ...]

    @property
    def named(self) -> bool:
        """Whether the plan is made for these very nodes."""
        return all(slot.node for slot in self.slots)


def _groups(job: Job) -> list[_Group]:
    """Return one group per pool; more where nodes of a pool have unlike numbers of GPUs."""
    runs = groupby(job.plan.slots, key=lambda slot: (slot.pool, slot.size))
    return [_Group(number, tuple(slots)) for number, (_, slots) in enumerate(runs)]


def _header(groups: list[_Group]) -> str:
    lines = []
    for group in groups:
        if group.number:
            lines.append("hetjob")
        lines += [f"--nodes={len(group.slots)}", f"--gpus-per-node={group.slots[0].size}"]
        if group.named:
            lines.append(f"--nodelist={listed(tuple(slot.node for slot in group.slots))}")
    return "".join(f"#SBATCH {line}\n" for line in lines)


def _slots(job: Job, groups: list[_Group]) -> str:
    text = "# Source it in the batch script: SLOT_<POOL>_<NUMBER> becomes the node of each slot.\n"
    if any(not group.named for group in groups):
        text += _REFUSE.format(file="slots.sh", code=CANNOT_RUN)
    text += "".join(_named(group) if group.named else _numbered(group, len(groups)) for group in groups)
    relays = (_relay(each) for slot in job.plan.slots for each in slot.assigned if each.from_env)
    return text + "".join(dict.fromkeys(relays))


def _named(group: _Group) -> str:
    return "".join(f"export {_variable(slot)}={shlex.quote(slot.node)}\n" for slot in group.slots)


def _numbered(group: _Group, groups: int) -> str:
    """Return the lines that take the group's nodes from Slurm's list, which is in the order of its node ranks."""
    nodes = "SLURM_JOB_NODELIST" if groups == 1 else f"SLURM_JOB_NODELIST_HET_GROUP_{group.number}"
    needed = len(group.slots)
    exports = "".join(f'    export {_variable(slot)}="${{{at}}}"\n' for at, slot in enumerate(group.slots, start=1))
    return (
        f"\ngpusharing_group_{group.number}() {{\n"
        f'    [ $# -ge {needed} ] || gpusharing_refuse "the plan needs {needed} node(s), but {nodes} has $#"\n'
        f"{exports}}}\n"
        f'gpusharing_group_{group.number} $(scontrol show hostnames "${{{nodes}-}}")\n'
    )


def _relay(assignment: Assignment) -> str:
    """Return the line that carries the value over: the batch shell's must win over what Slurm sets inside the step."""
    variable, relay = assignment.from_env, _relay_name(assignment.service)
    return f'[ -z "${{{variable}+set}}" ] || export {relay}="${variable}"\n'


def _relay_name(service: str) -> str:
    return RELAY + _upper(service)


def _variable(slot: Slot) -> str:
    return f"SLOT_{_upper(slot.pool)}_{slot.number}"


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")


# --- a step


@dataclass(frozen=True, slots=True)
class _Step:
    """The file of one service."""

    job: Job
    service: Service
    groups: list[_Group]

    def file(self) -> File:
        name = f"{self.service.name}.step.sh"
        body = self._body()
        functions = _REFUSE.format(file=name, code=CANNOT_RUN) + _CHECK_NODE
        if "gpusharing_take " in body:
            functions += _take(uuids=self.job.visible != "args")
        return File(name, f"{self.job.marker}{self._usage(name)}{functions}\n{body}")

    def _usage(self, name: str) -> str:
        places = self.job.places(self.service.name)
        groups = [group for group in self.groups if any(slot in group.slots for slot, _ in places)]
        options = ["--overlap"]
        if len(self.groups) > 1:
            options.append(f"--het-group={listed(tuple(group.number for group in groups))}")
        if len(places) > 1:
            options += [f"--nodes={len(places)}", "--ntasks-per-node=1"]
        if len(groups) == 1:
            options.append('--nodelist="' + ",".join(f"${_variable(slot)}" for slot, _ in places) + '"')
        command = _COMMANDS.get(self.service.kind, _ANY_COMMAND)
        return (
            "# Source it inside the step, in which alone Slurm's list of GPUs is known:\n"
            f"#   srun {' '.join(options)} sh -c '. DIR/{name}; exec {command}\n"
        )

    def _body(self) -> str:
        places = self.job.places(self.service.name)
        if len(places) == 1:
            ((slot, assignment),) = places
            return self._on(slot, assignment)
        branches = "".join(
            f"    {at})\n"
            + "".join(f"        {line}\n" for line in self._on(slot, assignment).splitlines())
            + "        ;;\n"
            for at, (slot, assignment) in enumerate(places)
        )
        known = " or ".join(map(str, range(len(places))))
        refusal = f"gpusharing_refuse \"the node's rank is '$gpusharing_rank', expected {known}\""
        return f"{_rank([slot for slot, _ in places])}case $gpusharing_rank in\n{branches}    *) {refusal} ;;\nesac\n"

    def _on(self, slot: Slot, assignment: Assignment) -> str:
        """Return the lines for one slot."""
        lines = [f'gpusharing_check_node {slot.name} "${{{_variable(slot)}-}}"']
        if self.service.name in slot.exported:
            lines += self._devices(assignment)
        lines.append("export " + " ".join(f"{name}={value}" for name, value in facts(self.job, slot, assignment)))
        return "".join(f"{line}\n" for line in lines)

    def _devices(self, assignment: Assignment) -> Iterator[str]:
        if self.job.visible == "uuid" and not assignment.from_env:
            yield f"export {VISIBLE_DEVICES}={shlex.quote(listed(assignment.uuids))}"
            return
        if assignment.from_env:
            relay = _relay_name(self.service.name)
            refusal = f"{relay} is not set: source slots.sh where {assignment.from_env} is set"
            yield f'[ -n "${{{relay}+set}}" ] || gpusharing_refuse "{refusal}"'
            yield from self._export(f"${relay}")
        elif self._written_by_hand() and not self.job.map_pins:
            yield from self._export(listed(assignment.indexes))
        else:
            yield f"gpusharing_take {' '.join(map(str, assignment.indexes))}"
            yield from self._export("$gpusharing_taken")
        order, value = DEVICE_ORDER
        yield f"export {order}={value}"

    def _export(self, gpus: str) -> Iterator[str]:
        if self.job.visible != "args":
            yield f'export {VISIBLE_DEVICES}="{gpus}"'
            return
        yield f'export {ARGS}="{DEVICE_IDS} {gpus}"'
        yield f"unset {VISIBLE_DEVICES}"

    def _written_by_hand(self) -> bool:
        """Whether the list is one of indexes that somebody wrote, for this service or the one it shares with."""
        owner = self.service.share_with or self.service.name
        pin = next(service.visible_devices for service in self.job.deployed if service.name == owner)
        return pin is not None and pin[:1].isdigit()


def _rank(slots: Sequence[Slot]) -> str:
    """Return the lines that find out which of the slots a step's node is.

    Its name says so in any step, once slots.sh was sourced. Without names its rank does, if the step has all the nodes:
    ranks follow Slurm's list of nodes, and so do slots, unless the plan is for named nodes.
    """
    names = "".join(f'    "${{{_variable(slot)}-}}") gpusharing_rank={at} ;;\n' for at, slot in enumerate(slots))
    count = len(slots)
    if any(slot.node for slot in slots):
        fallback = (
            "gpusharing_refuse \"node '${SLURMD_NODENAME-}' is none of the plan's: source slots.sh where srun is\""
        )
    else:
        fallback = (
            f'[ "${{SLURM_STEP_NUM_NODES-{count}}}" = {count} ] || '
            f'gpusharing_refuse "this step has $SLURM_STEP_NUM_NODES node(s) of {count}: source slots.sh where srun is"'
        )
    return (
        "gpusharing_rank=${SLURM_NODEID-}\n"
        'case ${SLURMD_NODENAME:-"not known"} in\n'
        f"{names}    *) {fallback} ;;\nesac\n"
    )


def _take(*, uuids: bool) -> str:
    """Return the functions that map positions; arguments of a program are indexes, and cannot be UUIDs."""
    if uuids:
        return _TAKE.format(uuids="GPU-*) ;;\n        ", expected="index or GPU UUID")
    return _TAKE.format(uuids="", expected="index")


# What stands behind `sh -c '. FILE; exec `: Ray must be told how many GPUs it has, since it counts the node's.
_ANY_COMMAND = '"$@"\' -- COMMAND'
_COMMANDS = {"ray": f'ray start --num-gpus="${COUNT}" --block\''}
