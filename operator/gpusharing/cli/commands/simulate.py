"""`kubectl gpusharing simulate`."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Literal

import typer

from gpusharing.api.scenarioreport import PolicyResult, ScenarioReport, SeedValues
from gpusharing.cli.files import write_text
from gpusharing.cli.findings import print_findings
from gpusharing.cli.output import GAP, NARROW_GAP, print_data, print_line, print_spans, width_for_pictures
from gpusharing.cli.progress import Progress
from gpusharing.cli.scenariofile import InvalidScenario, read_scenario
from gpusharing.core.simulation.comparison import simulate as play
from gpusharing.core.simulation.picture import picture

OK = 0
COLUMNS = ("POLICY", "FREE", "IDEAL", "OF IDEAL", "SPLIT", "STRANDED", "LARGEST")
INDENT = "  "
EMPTY = "-"


def simulate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A scenario as YAML; - is standard input.")],
    output: Annotated[
        Literal["table", "wide", "json", "yaml"],
        typer.Option("--output", "-o", help="table, wide (with the lowest and highest of all seeds), json or yaml."),
    ] = "table",
    svg: Annotated[
        str, typer.Option("--svg", metavar="FILE", help="Write the same picture to this file, as SVG.")
    ] = "",
) -> int:
    """Compare allocation policies under a load.

    It is the plugin's own code, on simulated nodes, with pods that come and go.

    The same file gives the same figures. Needs no cluster and no GPU. config/scenarios has two to begin with.

    Exit code: 0 fine, 1 if the scenario is wrong, 2 where the command line is.

    \b
    Examples:
      kubectl gpusharing simulate config/scenarios/mig-swinging-load.yaml
      kubectl gpusharing simulate scenario.yaml -o json --svg comparison.svg
    """
    try:
        scenario = read_scenario(file)
    except InvalidScenario as error:
        print_findings(error.findings)
        raise
    with Progress(sys.stderr, quiet=output in {"json", "yaml"}) as progress:
        report = play(scenario, partial(progress.bar, "simulating"))
    match output:
        case "json" | "yaml":
            print_data(report.to_wire(), output)
        case _:
            _print_table(report, wide=output == "wide")
    if svg:
        write_text(svg, picture(report))
    return OK


# --- the table


def _print_table(report: ScenarioReport, *, wide: bool) -> None:
    for line in _head(report):
        print_line(line)
    print_line("")
    rows = [COLUMNS, *(_row(result, wide=wide) for result in report.policies)]
    head, *lines = _aligned(rows, width_for_pictures())
    print_line(head, style="bold")
    for result, line in zip(report.policies, lines, strict=True):
        for part in line.split("\n"):
            print_line(part)
        print_spans(_bar(result, report.gpus, length=len(head) - len(INDENT)))
    print_line("")
    for line in _notes(report):
        print_line(line)


def _head(report: ScenarioReport) -> Iterator[str]:
    ids = ", ".join(f"{count:,} × {name}" for name, count in report.resources.items())
    pods = max(result.pods for result in report.policies) // len(report.seeds)
    yield f"{report.scenario}: {_counted(report.gpus, 'GPU')}, {ids}"
    yield f"{_counted(len(report.seeds), 'seed')}, {_counted(pods, 'pod')} each"


def _row(result: PolicyResult, *, wide: bool) -> tuple[str, ...]:
    return (
        result.policy,
        _figure(result.free_gpus, 2, wide=wide),
        _figure(result.ideal_free_gpus, 2, wide=wide),
        _percent(result.of_ideal, wide=wide),
        EMPTY if result.split_part is None else f"{100 * result.split_part:.0f} %",
        " / ".join(_figure(each.stranded, 1, wide=wide) for each in result.resources),
        " / ".join(_figure(each.largest, 1, wide=wide) for each in result.resources),
    )


def _figure(values: SeedValues, digits: int, *, wide: bool) -> str:
    text = f"{values.median:.{digits}f}"
    return f"{text} ({values.lowest:.{digits}f}–{values.highest:.{digits}f})" if wide else text


def _percent(values: SeedValues | None, *, wide: bool) -> str:
    if values is None:
        return EMPTY
    text = f"{100 * values.median:.0f} %"
    return f"{text} ({100 * values.lowest:.0f}–{100 * values.highest:.0f})" if wide else text


def _aligned(rows: Sequence[Sequence[str]], limit: int) -> list[str]:
    """Return the rows as lines, figures flush right; a name that is too long has a line of its own."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = GAP if first + sum(others) + len(GAP) * len(others) <= limit else NARROW_GAP
    room = min(first, max(len(COLUMNS[0]), limit - sum(others) - len(gap) * len(others)))
    figures = [gap.join(cell.rjust(width) for cell, width in zip(cells, others, strict=True)) for _, *cells in rows]
    return [
        f"{name.ljust(room)}{gap}{line}" if len(name) <= room else f"{name}\n{' ' * room}{gap}{line}"
        for (name, *_), line in zip(rows, figures, strict=True)
    ]


def _bar(result: PolicyResult, gpus: int, length: int) -> Sequence[tuple[str, str]]:
    """Return the bar of a policy: the GPUs that are free, what more could ideally be, and the rest."""
    free, ideal, rest = _blocks(sys.stdout.encoding, "█#", "░=", "·.")
    cells = round(length * result.free_gpus.median / gpus)
    ideal_cells = max(cells, round(length * result.ideal_free_gpus.median / gpus))
    return (
        (INDENT, ""),
        (free * cells, "cyan" if result.reference else "green"),
        (ideal * (ideal_cells - cells), "yellow"),
        (rest * (length - ideal_cells), "dim"),
    )


def _notes(report: ScenarioReport) -> Iterator[str]:
    waits = {result.policy: _wait(result) for result in report.policies}
    if len(set(waits.values())) == 1:
        waits = {"": _wait(report.policies[0])}
    yield from (f"{policy}: {wait}" if policy else wait for policy, wait in waits.items() if wait)
    free, ideal = _blocks(sys.stdout.encoding, "█#", "░=")
    yield f"FREE {free}: whole GPUs free. IDEAL {ideal}: if all pods were packed anew at every moment."
    yield "SPLIT: of the pods that one GPU could have held. STRANDED: free ids on GPUs in use."
    yield "LARGEST: ids of the largest request that one GPU can hold. All are means over time."
    if len(report.seeds) > 1:
        yield f"Each figure is the median of {len(report.seeds)} seeds, SPLIT is of all their pods together."


def _wait(result: PolicyResult) -> str:
    if not result.waited:
        return ""
    refused = f", {result.refused:,} of them refused by the plugin" if result.refused else ""
    return f"{result.waited:,} of {_counted(result.pods, 'pod')} waited{refused}"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _blocks(encoding: str | None, *pairs: str) -> list[str]:
    """Return the first of each pair of characters, or where the encoding lacks it the second."""
    try:
        "".join(pairs).encode(encoding or "ascii")
        return [pair[0] for pair in pairs]
    except UnicodeEncodeError:
        return [pair[1] for pair in pairs]
