"""What `kubectl gpusharing lint -o json|yaml` prints: a list of findings, stable across releases."""

from pydantic import Field

from gpusharing.api.meta import Model
from gpusharing.api.problems import Severity


class LintFinding(Model):
    """One thing that is wrong in a file, or worth knowing."""

    file: str = Field(description="The file as it was named on the command line; - is standard input.")
    line: int = Field(description="The line, from 1. Exact inside literal blocks, else that of the key.", ge=1)
    config: str = Field(description="The named config or policy that it concerns; empty = the file itself.")
    path: str = Field(description="Where in the config: sharing.timeSlicing.resources[0].replicas; empty = all of it.")
    severity: Severity = Field(
        description=(
            "error: refused, or ends the plugin. warning: accepted, but something does not do what it says. "
            "hint: worth knowing."
        )
    )
    message: str = Field(description="What is wrong.")
    hint: str = Field(description="What to do; may be empty.")


class LintReport(Model):
    """Everything that was found, in order of files and lines."""

    findings: list[LintFinding] = Field(description="One entry per finding; empty = nothing to say.")
