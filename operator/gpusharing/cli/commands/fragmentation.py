"""`kubectl gpusharing fragmentation`."""

from collections.abc import Iterator
from typing import Annotated

import typer

from gpusharing.api.fragmentation import FragmentationOverview, NodeFragmentation
from gpusharing.cli.options import ContextOption, KubeconfigOption
from gpusharing.cli.output import (
    MACHINE,
    Column,
    Format,
    FormatOption,
    print_command,
    print_data,
    print_line,
    print_names,
    print_table,
    say,
    short_model,
)
from gpusharing.cli.pictures import bar, filling
from gpusharing.cli.sources import Source, find_node, node_name
from gpusharing.core.restartset import fragmentation_overview

NONE = "-"
SEE = "kubectl get gpunodes"
NODES = (
    Column("NODE"),
    Column("GPUS"),
    Column("FREE"),
    Column("POSSIBLE"),
    Column("FILLING", below=True),
    Column("MODEL", wide=True, below=True),
)
GPUS = (Column("GPU"), Column("FILLING"), Column("IN USE"), Column("HEALTHY"), Column("UUID", wide=True, below=True))
RESOURCES = (Column("NODE"), Column("RESOURCE"), Column("FREE SHARES"), Column("LARGEST REQUEST"))
HINT = "only pods of a controller come back, and only allocation policy packed sends them to GPUs in use"


def fragmentation(
    node: Annotated[
        list[str] | None,
        typer.Argument(metavar="node/NAME", help="Only this node, with each of its GPUs; `node NAME` is taken too."),
    ] = None,
    saved: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read saved reports; - is standard input. They are saved with: kubectl get gpunodes -o json",
        ),
    ] = None,
    output: FormatOption = "table",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
) -> int:
    """Show how many GPUs are free, and how many could be.

    It names the pods to delete for the next free GPU, and deletes none. Pods that are named together must be deleted
    together, or those that are left take the room.

    \b
    Examples:
      kubectl gpusharing fragmentation
      kubectl gpusharing fragmentation node/gpu-a --from gpunodes.json -o yaml
    """
    reports = Source(saved or [], kubeconfig, context, quiet=output in MACHINE).read_reports()
    if node:
        name = node_name(node)
        find_node(reports, name, SEE)
        reports = {name: reports[name]}
    overview = fragmentation_overview(reports, _kubectl(kubeconfig, context))
    _print(overview, output, each_gpu=bool(node))
    return 0


def _kubectl(kubeconfig: str, context: str) -> list[str]:
    """Return how kubectl is called to reach the cluster that was read."""
    flags = {"--kubeconfig": kubeconfig, "--context": context}
    return ["kubectl", *(word for flag, value in flags.items() if value for word in (flag, value))]


def _print(overview: FragmentationOverview, output: Format, *, each_gpu: bool) -> None:
    match output:
        case "json" | "yaml":
            print_data(overview.to_wire(), output)
        case "name":
            print_names("node", (node.node for node in overview.nodes))
        case _:
            _print_text(overview, wide=output == "wide", each_gpu=each_gpu)


def _print_text(overview: FragmentationOverview, *, wide: bool, each_gpu: bool) -> None:
    if not overview.nodes:
        say("hint: no reports: only nodes that run this project's device plugin have one")
        return
    print_table(NODES, map(_node, overview.nodes), wide=wide)
    print_line("")
    if each_gpu:
        _print_gpus(overview.nodes[0], wide=wide)
    if rooms := list(_rooms(overview)):
        print_table(RESOURCES, rooms)
        print_line("")
    for node in overview.nodes:
        _print_restart(node)
    print_line(_summary(overview))
    if any(node.command for node in overview.nodes):
        say(f"hint: {HINT}")


def _node(node: NodeFragmentation) -> list[str]:
    found = node.fragmentation
    return [
        node.node,
        str(len(node.gpus)),
        str(found.free_whole_gpus) if found else NONE,
        str(found.possible_whole_gpus) if found else NONE,
        "".join(map(filling, node.gpus)) or NONE,
        short_model(node.model.replace(" ", "-")),
    ]


def _print_gpus(node: NodeFragmentation, *, wide: bool) -> None:
    rows = [
        (str(gpu.index), bar(gpu), f"{gpu.in_use}/{gpu.shares}", "yes" if gpu.healthy else "no", gpu.uuid)
        for gpu in node.gpus
    ]
    print_table(GPUS, rows, wide=wide)
    print_line("")


def _rooms(overview: FragmentationOverview) -> Iterator[tuple[str, ...]]:
    for node in overview.nodes:
        for room in node.fragmentation.resources if node.fragmentation else ():
            yield node.node, room.name, str(room.free_shares), str(room.largest_request)


def _print_restart(node: NodeFragmentation) -> None:
    restart = node.fragmentation.restart if node.fragmentation else None
    if restart is None:
        return
    index = next((str(gpu.index) for gpu in node.gpus if gpu.uuid == restart.gpu), restart.gpu)
    print_line(f"{node.node}: GPU {index} can be freed.")
    count = len(restart.pods) + restart.more
    if count == 1:
        print_line("The pod on it fits on another GPU in use: delete it.")
    else:
        print_line(f"The {count} pods on it fit on other GPUs in use: delete them together.")
    if node.command:
        print_command(node.command)
    else:
        for pod in restart.pods:
            print_line(f"  {pod}")
        print_line(f"  and {restart.more} more, which the report does not name")
    print_line("")


def _summary(overview: FragmentationOverview) -> str:
    unknown = sum(node.fragmentation is None for node in overview.nodes)
    known = f"Free whole GPUs: {overview.free_whole_gpus} of {overview.gpus}, possible: {overview.possible_whole_gpus}"
    return f"{known}; not known on {unknown} of {len(overview.nodes)} nodes" if unknown else known
