"""Scenarios as they stand in files, read as strictly as `lint` reads policies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusharing.api.lint import LintFinding
from gpusharing.api.located import Document, Finding
from gpusharing.api.problems import Problem, parse, quoted
from gpusharing.api.scenario import ScenarioFile
from gpusharing.api.yamltext import MAX_BYTES, read
from gpusharing.cli.files import STDIN, read_text
from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.simulation.reading import scenario_of, wrong_configs
from gpusharing.core.simulation.scenario import Scenario
from gpusharing.discovery.inventoryfile import inventory_of, load_inventory


class InvalidScenario(InvalidInput):
    """A scenario is wrong; `findings` says all that is."""

    def __init__(self, findings: Sequence[LintFinding]) -> None:
        count = len(findings)
        super().__init__(
            f"nothing is simulated: {count} error{'s' if count > 1 else ''} in the scenario",
            hint="docs/guides/simulation.md has the format, config/scenarios has two to begin with",
        )
        self.findings = tuple(findings)


def read_scenario(file: str) -> Scenario:
    """Return the scenario of a file. Raises InvalidScenario with everything that is wrong in it."""
    document, findings = _document(read_text(file, at_most=MAX_BYTES + 1))
    scenario: Scenario | None = None
    if document.whole:
        scenario, problems = _scenario(document.data, file)
        findings += [Finding(document.line_of(problem.path), problem) for problem in problems]
    if scenario is None or findings:
        raise InvalidScenario([_finding(file, found) for found in sorted(findings, key=lambda found: found.line)])
    return scenario


def _document(text: str) -> tuple[Document, list[Finding]]:
    """Return the text's document, and what is wrong with it as YAML."""
    documents = read(text)
    document = documents[0] if documents else Document(None, 1)
    findings = [found for found in document.findings if found.problem.severity != "hint"]
    for other in documents[1:]:
        problem = Problem("", "a second document", "a scenario is one YAML document")
        findings.append(Finding(other.line, problem))
    return document, findings


def _scenario(data: Any, file: str) -> tuple[Scenario | None, list[Problem]]:
    content, problems = parse(ScenarioFile, data)
    problems += wrong_configs(data)
    inventories = []
    for at, said in _said_inventories(data):
        inventory, found = _inventory(said, file, f"node-{at}")
        problems += [_below(f"nodes[{at}].inventory", problem) for problem in found]
        inventories += [inventory] if inventory else []
    if problems or content is None:
        return None, problems
    name = "scenario" if file == STDIN else Path(file).stem
    return scenario_of(content, name, inventories)


def _said_inventories(data: Any) -> Iterator[tuple[int, Any]]:
    nodes = data.get("nodes") if isinstance(data, Mapping) else None
    for at, node in enumerate(nodes if isinstance(nodes, Sequence) else ()):
        if isinstance(node, Mapping) and "inventory" in node:
            yield at, node["inventory"]


def _inventory(said: Any, file: str, node: str) -> tuple[Inventory | None, list[Problem]]:
    """Return the inventory that stands in the scenario, or in the file that it names."""
    if isinstance(said, Mapping):
        loaded, problems = inventory_of(said, node=node, name=node)
    elif isinstance(said, str):
        loaded, problems = None, []
        path = Path("." if file == STDIN else file).parent / said
        try:
            loaded = load_inventory(read_text(str(path), at_most=MAX_BYTES + 1), node=node, name=path.stem)
        except InvalidInput as error:
            problems = [Problem("", f"{said}: {error.message}", error.hint)]
    else:
        hint = "a mapping with gpus, or the name of a file with one"
        return None, [Problem("", f"{quoted(said)} is no inventory", hint)]
    if loaded and loaded.faults:
        problems.append(Problem("faults", "have no effect", "a simulation has no faults: leave them out"))
    return (loaded.inventory if loaded else None), problems


def _below(path: str, problem: Problem) -> Problem:
    return replace(problem, path=f"{path}.{problem.path}" if problem.path else path)


def _finding(file: str, found: Finding) -> LintFinding:
    problem = found.problem
    return LintFinding(
        file=file,
        line=found.line,
        config="",
        path=problem.path,
        severity="error",
        message=problem.message,
        hint=problem.hint,
    )
