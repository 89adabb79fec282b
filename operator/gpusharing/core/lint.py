"""Everything that is wrong in files that people wrote: policies, plugin configs, ConfigMaps, values of two charts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from gpusharing.api.lint import LintFinding
from gpusharing.api.located import Document
from gpusharing.api.problems import Problem
from gpusharing.api.yamltext import read
from gpusharing.core import policyfiles
from gpusharing.core.checks import chartvalues, configmap, operatorvalues, pluginconfig
from gpusharing.core.desired_state import Layout
from gpusharing.core.documents import Embedded, Kind, kind_of
from gpusharing.core.pluginenv import Environment


class _Chart(Protocol):
    """A module of `checks` that knows the values of one Helm chart."""

    def configs(self, values: Mapping[str, Any]) -> list[Embedded]: ...
    def environment(self, values: Mapping[str, Any]) -> Environment: ...
    def check(self, values: Mapping[str, Any], mps_users: Sequence[str]) -> list[Problem]: ...


# A file with more of them is a mistake, or an attack: what is found is cut, and said to be.
FINDINGS_MAX = 1000
CONFIGS_MAX = 1000
_WEIGHT = {"error": 0, "warning": 1, "hint": 2}

_CHARTS: dict[Kind, _Chart] = {Kind.CHART_VALUES: chartvalues, Kind.OPERATOR_VALUES: operatorvalues}


def lint(files: Iterable[tuple[str, str]], layout: Layout) -> list[LintFinding]:
    """Return what is wrong in files (name and text), in order of the files and of the lines in each."""
    linters = []
    for name, text in files:
        linter = _File(name, layout)
        linter.look_at(text)
        linters.append(linter)
    claims = [(linter, document, claim) for linter in linters for document, claim in linter.claims]
    for place, problem in policyfiles.ties([claim for *_, claim in claims]):
        linter, document, claim = claims[place]
        linter.find(document, [problem], claim.name)
    return [finding for linter in linters for finding in sorted(linter.findings, key=lambda finding: finding.line)]


class _File:
    """Looks at one file and keeps what it finds."""

    def __init__(self, name: str, layout: Layout) -> None:
        self._name = name
        self._layout = layout
        self.findings: list[LintFinding] = []
        self.claims: list[tuple[Document, policyfiles.Claim]] = []

    def look_at(self, text: str) -> None:
        """Find everything in a text, whatever it is."""
        documents = read(text)
        first = next((document for document in documents if _says_something(document)), None)
        if first is None:
            self._add(1, "", Problem("", "empty: nothing to look at", severity="hint"))
        elif kind_of(first.data).is_object:
            for document in documents:
                self._object(document)
        else:
            self._standalone(documents)

    def find(self, document: Document, problems: Iterable[Problem], config: str = "") -> None:
        """Keep the problems of a document, the worst ones where there are too many."""
        for problem in _worst(problems):
            self._add(document.line_of(problem.path), config, problem)

    def _add(self, line: int, config: str, problem: Problem) -> None:
        self.findings.append(
            LintFinding(
                file=self._name,
                line=line,
                config=config,
                path=problem.path,
                severity=problem.severity,
                message=problem.message,
                hint=problem.hint,
            )
        )

    def _read_problems(self, document: Document, config: str = "") -> None:
        for finding in (*document.findings[:FINDINGS_MAX], *document.findings[FINDINGS_MAX:][-1:]):
            self._add(finding.line, config, finding.problem)

    def _object(self, document: Document) -> None:
        """One Kubernetes object of perhaps many in the file."""
        if not _says_something(document):
            return
        match kind_of(document.data):
            case Kind.LIST:
                self._read_problems(document)
                items, lines = document.data["items"], document.data["items"].lines
                for item, line in list(zip(items, lines, strict=True))[:CONFIGS_MAX]:
                    self._object(Document(item, line, document.whole))
                self._too_many(document, "items", len(items))
            case Kind.POLICY:
                self._policy(document)
            case Kind.CONFIGMAP:
                self._read_problems(document)
                self._configs(document, configmap.configs(document.data))
                self.find(document, configmap.check(document.data) if document.whole else ())
            case Kind.OTHER_OBJECT:
                self._read_problems(document)
                message = f"kind {document.data['kind']}: not looked at"
                self.find(document, [Problem("kind", message, severity="hint")])
            case _:
                self._read_problems(document)
                message = "neither a Kubernetes object nor, beside objects, a config that the plugin would read"
                self.find(document, [Problem("", message, severity="warning")])

    def _policy(self, document: Document) -> None:
        name = policyfiles.name_of(document.data)
        self._read_problems(document, name)
        if not document.whole:
            return
        claim, problems = policyfiles.check(document.data, self._layout)
        self.find(document, problems, name)
        if claim:
            self.claims.append((document, claim))

    def _standalone(self, documents: Sequence[Document]) -> None:
        """A plugin config or values of a chart: read to the end of the first document."""
        first, *others = documents
        kind = kind_of(first.data)
        if kind in _CHARTS:
            self._values(first, _CHARTS[kind])
        else:
            self._config(first, "", None)
        self._never_read(others)

    def _values(self, document: Document, chart: _Chart) -> None:
        self._read_problems(document)
        configs = self._configs(document, chart.configs(document.data), chart.environment(document.data))
        mps_users = [name for name, config in configs.items() if pluginconfig.uses_mps(config)]
        self.find(document, chart.check(document.data, mps_users) if document.whole else ())

    def _configs(
        self, outer: Document, configs: Sequence[Embedded], environment: Environment | None = None
    ) -> dict[str, Any]:
        """Look at the configs inside another document. Returns name → config."""
        self._too_many(outer, "data", len(configs))
        return {config.name: self._embedded(outer, config, environment) for config in configs[:CONFIGS_MAX]}

    def _too_many(self, document: Document, path: str, count: int) -> None:
        if count > CONFIGS_MAX:
            self.find(document, [Problem(path, f"{count} entries: only the first {CONFIGS_MAX} were looked at")])

    def _embedded(self, outer: Document, config: Embedded, environment: Environment | None) -> Any:
        place = outer.place_of(config.path)
        exact = place.block is not None
        documents = read(config.text, first_line=place.block or place.line, exact=exact)
        if not documents:
            return None
        first, *others = documents
        self._config(first, config.name, environment)
        self._never_read(others, config.name)
        return first.data

    def _config(self, document: Document, name: str, environment: Environment | None) -> None:
        self._read_problems(document, name)
        whole = document.whole
        problems = pluginconfig.check(document.data, environment) if whole else pluginconfig.check_keys(document.data)
        self.find(document, problems, name)

    def _never_read(self, documents: Iterable[Document], config: str = "") -> None:
        message = "never read: only the first document counts"
        for document in filter(_says_something, documents):
            self._add(document.line, config, Problem("", message, "give each config a file or a key", "warning"))


def _worst(problems: Iterable[Problem]) -> Sequence[Problem]:
    """Return the problems, or the worst ones and how many are left out."""
    problems = list(problems)
    if len(problems) <= FINDINGS_MAX:
        return problems
    ordered = sorted(problems, key=lambda problem: _WEIGHT[problem.severity])
    left_out = Problem("", f"{len(problems) - FINDINGS_MAX} more findings are left out", severity="hint")
    return [*ordered[:FINDINGS_MAX], left_out]


def _says_something(document: Document) -> bool:
    return document.data is not None or bool(document.findings)
