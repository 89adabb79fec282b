"""`kubectl gpusharing place`."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from gpusharing.api.placement import Algorithm, Inventory
from gpusharing.api.placementplan import SavedPlan
from gpusharing.api.placementrules import OF_SERVICE, SHARE_UNDER_RESERVE
from gpusharing.cli.files import STDIN
from gpusharing.cli.outfolder import write_files
from gpusharing.cli.output import (
    COLOURS,
    Column,
    print_data,
    print_line,
    print_spans,
    print_table,
    say,
    width_for_pictures,
)
from gpusharing.cli.placementfile import Placement, Refused, read_gym, read_inventory, read_placement, read_plan
from gpusharing.core.placement.difference import differences
from gpusharing.core.placement.document import document
from gpusharing.core.placement.plan import Plan, PoolPlan, Refusal
from gpusharing.core.placement.planner import place as plan_placement
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.readers.manifest import is_dns_label
from gpusharing.core.placement.renderers import Job, Visible, Workload, env, explain, kubernetes, slurm, table
from gpusharing.core.placement.request import Compat, Request

PLACED, DIFFERS = 0, 4

Form = Literal["table", "json", "yaml", "env", "slurm", "kubernetes"]
# what writes the files, and the ending by which an earlier run's are known
RENDERERS = {
    "env": (env.render, ".env"),
    "slurm": (slurm.render, ".sh"),
    "kubernetes": (kubernetes.render, ".patch.yaml"),
}
SERVICE_COLOURS = ("cyan", "green", "magenta", "yellow", "blue")


def place(
    file: Annotated[
        str, typer.Option("--filename", "-f", metavar="FILE", help="A GpuPlacement, or its spec alone; - is stdin.")
    ],
    output: Annotated[
        Form, typer.Option("--output", "-o", help="table, json, yaml; or files for env, slurm or kubernetes.")
    ] = "table",
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Write the files there; default: print them one after another.")
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="The placement's namespace; default what it says.")
    ] = "",
    inventory: Annotated[
        str,
        typer.Option(
            "--inventory", metavar="FILE", help="Plan on these nodes, saved with: kubectl get nodes,gpunodes -o json"
        ),
    ] = "",
    algorithm: Annotated[
        Algorithm | None, typer.Option("--algorithm", help="How nodes are packed; default what the placement says.")
    ] = None,
    explained: Annotated[bool, typer.Option("--explain", help="Say of each pool why it takes as many nodes.")] = False,
    check: Annotated[
        str, typer.Option("--check", metavar="FILE", help="Compare with a plan that -o json or yaml printed.")
    ] = "",
    visible: Annotated[
        Visible, typer.Option("--visible", help="env, slurm: name GPUs by index, by UUID, or as --device-ids.")
    ] = "index",
    map_pins: Annotated[
        bool, typer.Option("--map-pins", help="slurm: take lists written by hand as positions, too.")
    ] = False,
    container: Annotated[
        str, typer.Option("--container", metavar="NAME", help="kubernetes: the container; default the service's name.")
    ] = "",
    workload: Annotated[Workload, typer.Option("--workload", help="kubernetes: what is patched.")] = "deployment",
    compat: Annotated[Compat | None, typer.Option("--compat", help="Assign GPUs as NeMo Gym does.")] = None,
    source: Annotated[Literal["gym"] | None, typer.Option("--from", help="Read a submit file of NeMo Gym.")] = None,
) -> int:
    """Plan which GPUs of which node each service gets. Needs no cluster and no GPU.

    Exit codes: 0 placed, 1 cannot run, 2 the file or the command line is wrong, 3 it does not fit, 4 with --check if
    the plan is another one.

    \b
    Examples:
      kubectl gpusharing place -f rl-eval.yaml --explain
      kubectl gpusharing place -f rl-eval.yaml -o slurm --out steps
    """
    if [file, inventory, check].count(STDIN) > 1:
        raise typer.BadParameter("standard input can be read once only; write the others to files")
    if namespace and not is_dns_label(namespace):
        raise typer.BadParameter(f"{namespace!r} is no name of a namespace")
    try:
        placement = read_gym(file, namespace) if source else read_placement(file, namespace)
        if algorithm is not None:
            placement = replace(placement, spec=placement.spec.model_copy(update={"algorithm": algorithm}))
        nodes = read_inventory(inventory, f"{placement.namespace}/{placement.name}") if inventory else None
        plan = _plan(placement, nodes, compat, output)
        if check:
            return _compare(read_plan(check), plan, output)
    except Refused as refused:
        return _refuse(refused, output, explained=explained)
    job = Job(placement.name, placement.namespace, placement.spec, plan, visible, map_pins, container, workload)
    if out and output not in RENDERERS:
        raise typer.BadParameter(f"--out goes with -o {', '.join(RENDERERS)}; -o {output} writes no files")
    match output:
        case "json" | "yaml":
            _print_document(job, placement.notices, output, explained=explained)
        case "table":
            _print_table(job, explained=explained)
            _warn(plan, placement.notices)
        case _:
            _write(job, output, out)
            _warn(plan, placement.notices)
    return PLACED


def _plan(placement: Placement, nodes: Inventory | None, compat: Compat | None, output: Form) -> Plan:
    """Plan for what the output is for. Raises Refused."""
    if output == "kubernetes" and placement.spec.enforcement == "env":
        raise typer.BadParameter("-o kubernetes writes limits, which go with enforcement: reserve and not with env")
    # what env files and Slurm steps start shares its node's network, and needs no resource names
    enforcement: Literal["env"] | None = "env" if output in {"env", "slurm"} else None
    request = Request(placement.spec, compat=compat, namespace=placement.namespace, enforcement=enforcement)
    outcome = plan_placement(request, nodes)
    refused = _share_problems(placement) if output == "kubernetes" else []
    if isinstance(outcome, Refusal):
        raise Refused([*outcome.errors, *refused], outcome.pools)
    if refused:
        raise Refused(refused)
    return outcome


def _share_problems(placement: Placement) -> list[Problem]:
    """Return what a cluster refuses: a pod that asks for no GPUs sees none there (guide, section 5.3)."""
    return [
        Problem(Code.INVALID_FIELDS, OF_SERVICE.format(service=each.name, sentence=SHARE_UNDER_RESERVE))
        for each in placement.spec.services
        if each.deploy and each.share
    ]


def _compare(before: SavedPlan, plan: Plan, output: Form) -> int:
    changes = differences(before, SavedPlan.model_validate(document(plan)))
    if output == "json" or output == "yaml":
        print_data({"changes": changes}, output)
    else:
        for line in changes:
            print_line(line)
    return DIFFERS if changes else PLACED


def _refuse(refused: Refused, output: Form, *, explained: bool) -> int:
    """Say everything that is wrong, and return the exit code."""
    for problem in refused.problems:
        say(f"{problem.code}: {problem.message}")
        if problem.hint:
            say(f"hint: {problem.hint}")
    if explained:
        for line in _sentences(refused.pools):
            say(line)
    refusal = Refusal(refused.problems)
    if output == "json" or output == "yaml":
        print_data(document(refusal), output)
    return refusal.exit


def _sentences(pools: Iterable[PoolPlan]) -> list[str]:
    return [line for pool in pools for line in explain.explain(pool)]


def _print_document(job: Job, notices: tuple[str, ...], output: Literal["json", "yaml"], *, explained: bool) -> None:
    data = document(job.plan)
    data["notices"] += [{"code": "ServiceSkipped", "message": text} for text in notices]
    if explained:
        data["explain"] = {pool.name: _sentences([pool]) for pool in job.plan.pools}
    print_data(data, output)


def _print_table(job: Job, *, explained: bool) -> None:
    for line in table.summary(job):
        print_line(line)
    if job.plan.slots:
        print()
    for pieces in table.pictures(job, width_for_pictures()):
        print_spans((piece.text, _style(piece)) for piece in pieces)
    if rows := list(table.rows(job)):
        print()
        columns = [Column(title, wide=title == "NODE", below=title == "WHY") for title in table.COLUMNS]
        print_table(columns, rows, wide=any(slot.node for slot in job.plan.slots))
    if explained:
        print()
        for line in _sentences(job.plan.pools):
            print_line(line)


def _style(piece: table.Piece) -> str:
    return "" if piece.service is None else f"reverse {SERVICE_COLOURS[piece.service % len(SERVICE_COLOURS)]}"


def _warn(plan: Plan, left_out: tuple[str, ...]) -> None:
    """Say what is worth knowing of the plan."""
    sys.stdout.flush()
    for problem in plan.warnings:
        say(f"warning: {problem.code}: {problem.message}", style=COLOURS["warning"])
    for text in [*(f"{each.code}: {each.message}" for each in plan.notices), *left_out]:
        say(f"notice: {text}")


def _write(job: Job, output: Form, out: str) -> None:
    _need_uuids(job)
    render, suffix = RENDERERS[output]
    files = {file.path: file.text for file in render(job)}
    if out:
        write_files(Path(out), files, marker=job.marker, suffix=suffix)
        say(f"{len(files)} file{'s' if len(files) != 1 else ''} written to {out}")
        return
    for path, text in files.items():
        print(f"# --- {path}\n{text}", end="")


def _need_uuids(job: Job) -> None:
    for slot in job.plan.slots:
        for each in slot.assigned:
            if job.visible == "uuid" and each.service in slot.exported and each.indexes and not each.uuids:
                message = f"--visible uuid needs an --inventory with UUIDs: those of {slot.name} are not known"
                raise typer.BadParameter(message)
