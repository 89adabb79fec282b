"""Our own format: a `GpuPlacement`, or its spec alone (guide, section 10)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpusharing.api import names
from gpusharing.api.placement import PlacementSpec
from gpusharing.api.placementrules import NAME
from gpusharing.api.problems import Problem as YamlProblem
from gpusharing.api.problems import quoted
from gpusharing.api.yamltext import read as read_yaml
from gpusharing.core.placement.problems import Code, Problem
from gpusharing.core.placement.schema import read as read_model

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A placement as it was written."""

    spec: PlacementSpec
    # empty for a bare spec
    name: str = ""
    # empty where none is named
    namespace: str = ""


def read(text: str) -> Manifest | tuple[Problem, ...]:
    """Return the one placement of the text, or everything that is wrong with it."""
    documents = read_documents(text)
    if isinstance(documents, tuple):
        return documents
    if len(documents) == 1 and not _is_object(documents[0]):
        spec = read_model(PlacementSpec, documents[0], "spec" if isinstance(documents[0], Mapping) else "")
        return Manifest(spec) if isinstance(spec, PlacementSpec) else spec
    placements = [each for document in documents for each in _placements(document)]
    if len(placements) != 1:
        return (_invalid(f"{len(placements)} documents of kind {names.PLACEMENT_KIND}, expected exactly one"),)
    return _manifest(placements[0])


def read_documents(text: str) -> list[Any] | tuple[Problem, ...]:
    """Return the documents of a YAML or JSON text, without empty ones; or what keeps it from being read."""
    documents = read_yaml(text)
    errors = [
        _invalid(f"line {finding.line}: {_located(finding.problem)}", finding.problem.hint)
        for document in documents
        for finding in document.findings
        if finding.problem.severity != "hint"  # the API server, too, refuses a key that stands twice
    ]
    if errors:
        return tuple(errors)
    return [document.data for document in documents if document.data is not None] or [None]


def _located(problem: YamlProblem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


def _is_object(document: object) -> bool:
    return isinstance(document, Mapping) and ("kind" in document or "apiVersion" in document)


def _placements(document: object) -> Iterator[Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        return
    items = document.get("items")
    if isinstance(items, list):
        for item in items:
            yield from _placements(item)
    elif document.get("kind") == names.PLACEMENT_KIND:
        yield document


def _manifest(document: Mapping[str, Any]) -> Manifest | tuple[Problem, ...]:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    problems = []
    if document.get("apiVersion") != names.API_VERSION:
        problems.append(_invalid(f"apiVersion: {quoted(document.get('apiVersion'))}, expected {names.API_VERSION}"))
    for key, wanted in (("name", True), ("namespace", False)):
        value = metadata.get(key)
        if (wanted or value is not None) and not (isinstance(value, str) and is_dns_label(value)):
            problems.append(_invalid(f"metadata.{key}: {quoted(value)}, expected {NAME}"))
    spec = read_model(PlacementSpec, document.get("spec"), "spec")
    if not isinstance(spec, PlacementSpec):
        return (*problems, *spec)
    return tuple(problems) or Manifest(spec, str(metadata["name"]), str(metadata.get("namespace") or ""))


def is_dns_label(name: str) -> bool:
    """Whether the name can be part of a resource name."""
    return _DNS_LABEL.fullmatch(name) is not None


def _invalid(message: str, hint: str = "") -> Problem:
    return Problem(Code.INVALID_DOCUMENT, message, hint)
