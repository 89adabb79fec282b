"""What is wrong in files, one line each: `file:line: error: [config] path: message`, and the hint below it."""

from collections.abc import Iterable

from gpusharing.api.lint import LintFinding
from gpusharing.cli.output import COLOURS, print_line


def print_findings(findings: Iterable[LintFinding]) -> None:
    """Print findings for people."""
    for finding in findings:
        where = f"[{finding.config}] " if finding.config else ""
        where += f"{finding.path}: " if finding.path else ""
        style = COLOURS.get(finding.severity, "")
        print_line(f"{finding.file}:{finding.line}: {finding.severity}: {where}{finding.message}", style=style)
        if finding.hint:
            print_line(f"  hint: {finding.hint}")
