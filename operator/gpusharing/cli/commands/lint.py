"""`kubectl gpusharing lint`."""

from collections import Counter
from typing import Annotated, get_args

import typer

from gpusharing.api.lint import LintReport
from gpusharing.api.problems import Severity
from gpusharing.api.yamltext import MAX_BYTES
from gpusharing.cli.files import read_text
from gpusharing.cli.findings import print_findings
from gpusharing.cli.options import LayoutOption
from gpusharing.cli.output import Format, FormatOption, print_data, print_names, say
from gpusharing.core.lint import lint as find

OK, PROBLEMS = 0, 1


def lint(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files to look at; - is standard input.")],
    output: FormatOption = "table",
    layout: LayoutOption = None,
) -> int:
    """Find what plugin and API server would ignore or refuse. Needs no cluster.

    Takes GpuSharingPolicies, ConfigMaps and files with device-plugin configs, and values of the device plugin's and
    the GPU operator's charts; each is told apart by its own words.

    Exit code: 0 without an error (warnings are printed), 1 with one, 2 where the command line is wrong.

    \b
    Examples:
      kubectl gpusharing lint policy.yaml
      kubectl get configmap -n gpu-operator device-plugin-config -o yaml | kubectl gpusharing lint -
    """
    texts = [(file, read_text(file, at_most=MAX_BYTES + 1)) for file in files]  # a longer one is refused as too long
    findings = find(texts, layout or "per-node")
    _print(LintReport(findings=findings), output)
    counts = Counter(finding.severity for finding in findings)
    found = ", ".join(_counted(counts[severity], severity) for severity in get_args(Severity))
    say(f"{_counted(len(files), 'file')}: {found}")
    return PROBLEMS if counts["error"] else OK


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _print(report: LintReport, output: Format) -> None:
    match output:
        case "json" | "yaml" as form:
            print_data([finding.to_wire() for finding in report.findings], form)
        case "name":
            print_names("file", sorted({finding.file for finding in report.findings}))
        case _:
            print_findings(report.findings)
