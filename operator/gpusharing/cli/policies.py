"""Policies as they stand in files, for commands that plan them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpusharing.api.lint import LintFinding
from gpusharing.api.yamltext import MAX_BYTES, read
from gpusharing.cli.files import expanded, read_text
from gpusharing.core.documents import Kind, kind_of
from gpusharing.core.errors import InvalidInput
from gpusharing.core.lint import lint


class InvalidPolicies(InvalidInput):
    """Policies of the files are wrong; `findings` says all that is."""

    def __init__(self, findings: Sequence[LintFinding]) -> None:
        count = len(findings)
        super().__init__(f"nothing is planned: {count} error{'s' if count > 1 else ''} in the files")
        self.findings = tuple(findings)


def read_policies(files: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return the policies of files and folders, in order. Raises InvalidPolicies with every error of every file."""
    # one that is longer is refused as too long
    texts = [(name, read_text(name, at_most=MAX_BYTES + 1)) for file in files for name in expanded(file)]
    if errors := [finding for finding in lint(texts, "per-node") if finding.severity == "error"]:
        raise InvalidPolicies(errors)
    policies = [policy for _, text in texts for document in read(text) for policy in _policies(document.data)]
    if not policies:
        raise InvalidInput(
            f"no GpuSharingPolicy in {', '.join(name for name, _ in texts)}",
            hint="config/samples has some to begin with",
        )
    return policies


def _policies(data: Any) -> Iterator[Mapping[str, Any]]:
    match kind_of(data):
        case Kind.POLICY:
            yield data
        case Kind.LIST:
            for item in data["items"]:
                yield from _policies(item)
        case _:  # a folder may hold other things too
            pass
