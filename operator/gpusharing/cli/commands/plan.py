"""`kubectl gpusharing plan`."""

from collections.abc import Iterator
from typing import Annotated

import typer

from gpusharing.api import names
from gpusharing.api.plan import BeforeAfter, DeviceChange, PlannedNode, PlanReport, PlanTotals
from gpusharing.cli.files import STDIN
from gpusharing.cli.findings import print_findings
from gpusharing.cli.options import ContextOption, KubeconfigOption, LayoutOption, NamespaceOption, SavedOption
from gpusharing.cli.output import (
    MACHINE,
    Column,
    Format,
    FormatOption,
    print_data,
    print_line,
    print_names,
    print_table,
    short_model,
)
from gpusharing.cli.policies import InvalidPolicies, read_policies
from gpusharing.cli.sources import Source, find_policy
from gpusharing.core.errors import InvalidInput
from gpusharing.core.preview import Preview

USAGE_ERROR = 1  # 2 means that there are changes
NOTHING_TO_DO, FAILED, CHANGES = 0, 1, 2
NAMED = 3
COLUMNS = (
    Column("NODE"),
    Column("MODEL"),
    Column("OWNER", below=True),
    Column("CONFIG", below=True),
    Column("CHANGE"),
    Column("DEVICES"),
    Column("NOTES", wide=True, below=True),
)
EMPTY = "-"
ARROW = " → "


def plan(
    files: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", metavar="FILE", help="Policies to apply: a file, a folder, or - for stdin."),
    ] = None,
    deleted: Annotated[
        list[str] | None, typer.Option("--delete", metavar="POLICY", help="Plan the deletion of a policy.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List unchanged nodes too.")] = False,
    saved: SavedOption = None,
    output: FormatOption = "table",
    layout: LayoutOption = None,
    namespace: NamespaceOption = names.NAMESPACE,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
) -> int:
    """Show what applying policies would do to every node.

    The controller decides by the very functions that are used here. Nothing is written.

    Exit codes: 0 nothing to do, 2 changes, 1 any error.

    \b
    Examples:
      kubectl gpusharing plan -f policy.yaml
      kubectl gpusharing plan -f policies/ --from saved.json -o json
    """
    files, deleted, saved = files or [], deleted or [], saved or []
    if not files and not deleted:
        raise InvalidInput(
            "nothing to plan", hint="name policies with -f FILE, or one to be deleted with --delete NAME"
        )
    if [*files, *saved].count(STDIN) > 1:
        raise InvalidInput("standard input can be read once only", hint="write one of the two to a file")
    try:
        policies = read_policies(files) if files else []
    except InvalidPolicies as error:
        print_findings(error.findings)
        raise
    world = Source(saved, kubeconfig, context, namespace, layout, quiet=output in MACHINE).read()
    for name in deleted:
        find_policy(world, name)
    report = Preview.of(world, policies, deleted).report(everything=everything)
    _print(report, output, everything=everything)
    summary = report.summary
    changes = summary.add + summary.change + summary.release + summary.repair
    return CHANGES if changes else NOTHING_TO_DO


def _print(report: PlanReport, output: Format, *, everything: bool) -> None:
    match output:
        case "json" | "yaml":
            print_data(report.to_wire(), output)
        case "name":
            print_names("node", (node.node for node in report.nodes if everything or _listed(node)))
        case _:
            _print_table(report, everything=everything, wide=output == "wide")


def _listed(node: PlannedNode) -> bool:
    return node.change != "unchanged"


def _print_table(report: PlanReport, *, everything: bool, wide: bool) -> None:
    rows = [_row(node) for node in report.nodes if everything or _listed(node)]
    if rows:
        print_table(COLUMNS, rows, wide=wide)
        print()
    for text in _notes(report, nodes=not wide):
        print_line(text)
    print_line(_summary(report.summary))


def _row(node: PlannedNode) -> list[str]:
    return [
        node.node,
        short_model(node.model),
        _transition(node.owner),
        _transition(node.config),
        node.change,
        ", ".join(map(_devices, node.devices)) or EMPTY,
        "; ".join(node.notes),
    ]


def _transition(names_: BeforeAfter) -> str:
    before, after = names_.before or EMPTY, names_.after or EMPTY
    return before if before == after else f"{before}{ARROW}{after}"


def _devices(devices: DeviceChange) -> str:
    before, after = ("?" if count is None else str(count) for count in (devices.before, devices.after))
    counts = before if before == after else f"{before}{ARROW}{after}"
    return f"{devices.resource.removeprefix(names.RESOURCE_DOMAIN)} {counts}"


def _notes(report: PlanReport, *, nodes: bool) -> Iterator[str]:
    """Yield what is worth knowing of policies, then of nodes, alike ones together."""
    for policy in report.policies:
        if policy.as_if_enforced:
            yield f"note: {policy.policy} is in mode dry-run: planned as if enforced; applying it writes nothing"
        yield from (f"note: {policy.policy} {text}" for text in policy.notes)
    by_text: dict[str, list[str]] = {}
    for node in report.nodes if nodes else ():
        for text in node.notes:
            by_text.setdefault(text, []).append(node.node)
    for text, named in by_text.items():
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        yield f"note: {', '.join(named[:NAMED])}{more}: {text}"


def _summary(totals: PlanTotals) -> str:
    repair = f", {totals.repair} to repair" if totals.repair else ""
    return (
        f"{totals.add} to add, {totals.change} to change, {totals.release} to release{repair}, "
        f"{totals.unchanged} unchanged, {totals.skipped} skipped"
    )
