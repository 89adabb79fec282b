"""`kubectl gpusharing status`."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from gpusharing.api import names
from gpusharing.api.overview import OverviewProblem, PolicyOverview, StatusReport
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
    say,
    short_model,
)
from gpusharing.cli.sources import Source
from gpusharing.core.overview import overview

NONE = "-"
NAMED = 3
POLICY_RESOURCE = f"gpusharingpolicy.{names.GROUP}"
POLICIES = (
    Column("POLICY"),
    Column("ALLOCATION", below=True),
    Column("SHARING", below=True),
    Column("MIG", below=True),
    Column("NODES"),
    Column("OWNED"),
    Column("APPLIED"),
    Column("READY"),
    Column("REASON"),
    Column("PRIORITY", wide=True, below=True),
    Column("MODE", wide=True, below=True),
    Column("CONFIG", wide=True, below=True),
)
GROUPS = (Column("MODEL"), Column("OWNER"), Column("STATE"), Column("NODES"), Column("GPUS"))
NODES = (
    Column("NODE"),
    Column("MODEL"),
    Column("OWNER"),
    Column("STATE"),
    Column("CONFIG", below=True),
    Column("DETAIL", below=True),
)


def status(
    nodes: Annotated[bool, typer.Option("--nodes", help="List every GPU node too.")] = False,
    saved: SavedOption = None,
    output: FormatOption = "table",
    layout: LayoutOption = None,
    namespace: NamespaceOption = names.NAMESPACE,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
) -> int:
    """Show policies, GPU nodes and problems at a glance.

    Nodes are grouped by model, owner and state. With -o name it prints the policies.

    \b
    Examples:
      kubectl gpusharing status
      kubectl gpusharing status --nodes -o wide
    """
    world = Source(saved or [], kubeconfig, context, namespace, layout, quiet=output in MACHINE).read()
    report = overview(world, every_node=nodes)
    _print(report, output)
    return 0


def _print(report: StatusReport, output: Format) -> None:
    match output:
        case "json" | "yaml":
            print_data(report.to_wire(), output)
        case "name":
            print_names(POLICY_RESOURCE, (policy.policy for policy in report.policies))
        case _:
            _print_text(report, wide=output == "wide")


def _print_text(report: StatusReport, *, wide: bool) -> None:
    if report.policies:
        print_table(POLICIES, [_policy(row) for row in report.policies], wide=wide)
        print_line("")
    if report.groups:
        print_table(
            GROUPS,
            [
                (short_model(row.model), row.owner or NONE, row.state, str(row.nodes), str(row.gpus))
                for row in report.groups
            ],
        )
        print_line("")
    if report.nodes:
        print_table(
            NODES,
            [
                (row.node, short_model(row.model), row.owner or NONE, row.state, row.config or NONE, row.detail)
                for row in report.nodes
            ],
        )
        print_line("")
    for line in _problems(report.problems):
        print_line(line, style="yellow")
    if report.problems:
        print_line("")
    print_line(_summary(report))
    if not report.policies:
        say("hint: no policies yet: kubectl apply -f one of config/samples")
    elif not report.gpu_nodes:
        say("hint: no GPU nodes: is GPU Feature Discovery (or a GpuNode report) there to label them?")


def _policy(row: PolicyOverview) -> list[str]:
    return [
        row.policy,
        row.allocation or NONE,
        row.sharing or NONE,
        row.mig or NONE,
        str(row.nodes.matched),
        str(row.nodes.owned),
        str(row.nodes.applied),
        row.ready,
        row.reason or NONE,
        str(row.priority),
        row.mode,
        row.config or NONE,
    ]


def _problems(problems: Iterable[OverviewProblem]) -> Iterator[str]:
    """Yield a line for each problem; what is alike of several policies is said once."""
    policies: dict[str, list[str]] = {}
    for problem in problems:
        policies.setdefault(_what(problem), []).append(problem.policy)
    for text, named in policies.items():
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        yield f"{', '.join(named[:NAMED])}{more}: {text}"


def _what(problem: OverviewProblem) -> str:
    if not problem.reason:
        return problem.message
    nodes = "" if problem.nodes is None else f" on {_counted(problem.nodes, 'node')}"
    return f"{problem.reason}{nodes}: {problem.message}"


def _summary(report: StatusReport) -> str:
    nodes = f"{_counted(report.gpu_nodes, 'GPU node')}, {_counted(report.gpus, 'GPU')}"
    states = ", ".join(f"{count} {state}" for state, count in report.states.items())
    return f"{nodes}: {states}" if states else nodes


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
