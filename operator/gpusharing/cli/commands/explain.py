"""`kubectl gpusharing explain`."""

from typing import Annotated

import typer

from gpusharing.api import names
from gpusharing.api.explanation import Explanation
from gpusharing.cli.options import ContextOption, KubeconfigOption, LayoutOption, NamespaceOption, SavedOption
from gpusharing.cli.output import (
    MACHINE,
    Column,
    Format,
    FormatOption,
    print_data,
    print_fields,
    print_line,
    print_table,
    short_model,
    yaml_text,
)
from gpusharing.cli.sources import Source, find_node, node_name
from gpusharing.core.account import account

NONE = "-"
POLICIES = (Column("POLICY"), Column("PRIORITY"), Column("MODE"), Column("MATCHES"), Column("WHY", below=True))
RESOURCES = (Column("RESOURCE"), Column("PREDICTED"), Column("ADVERTISED"), Column("IN USE"))


def explain(
    node: Annotated[list[str], typer.Argument(metavar="node/NAME", help="The node; `node NAME` is taken too.")],
    saved: SavedOption = None,
    output: FormatOption = "table",
    layout: LayoutOption = None,
    namespace: NamespaceOption = names.NAMESPACE,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
) -> int:
    """Say why a node has its config, and how far it is.

    Every policy is considered, with the selector term that fails, or who won and by which rule. Policies are listed in
    the order in which they win: the highest priority, then the older, then the name.

    \b
    Examples:
      kubectl gpusharing explain node/gpu-a
      kubectl gpusharing explain node/gpu-a --from saved.json -o yaml
    """
    name = node_name(node)
    world = Source(saved or [], kubeconfig, context, namespace, layout, quiet=output in MACHINE).read()
    find_node(world.nodes, name)
    _print(account(world, name), output)
    return 0


def _print(explanation: Explanation, output: Format) -> None:
    match output:
        case "json" | "yaml":
            print_data(explanation.to_wire(), output)
        case "name":
            print_line(f"node/{explanation.node}")
        case _:
            _print_text(explanation)


def _print_text(it: Explanation) -> None:
    gpus = f"{it.gpus} × {short_model(it.model)}" if it.gpus else short_model(it.model)
    fields = [
        ("Node", f"{it.node}   {gpus}".rstrip()),
        ("Owner", f"{it.owner or NONE}   ({it.rule})"),
        ("State", f"{it.state}   {it.detail}".rstrip()),
        ("Label", it.config.label or NONE),
    ]
    if it.config.wanted and it.config.wanted != it.config.label:
        fields.append(("Wanted", it.config.wanted))
    if it.config.served is not None:
        fields.append(("Served", it.config.served or NONE))
    if it.config.error:
        fields.append(("Error", it.config.error))
    print_fields(fields)
    if it.resources:
        print_line("")
        print_table(
            RESOURCES,
            [(row.resource, _count(row.predicted), _count(row.advertised), _count(row.in_use)) for row in it.resources],
        )
    if it.considered:
        print_line("")
        print_table(
            POLICIES,
            [
                (row.policy, str(row.priority), row.mode, "yes" if row.matches else "no", row.why)
                for row in it.considered
            ],
        )
    if it.config.rendered is not None:
        print_line("")
        print_line(f"Config {it.config.wanted}:")
        for line in yaml_text(it.config.rendered).splitlines():
            print_line(f"  {line}")


def _count(count: int | None) -> str:
    return NONE if count is None else str(count)
