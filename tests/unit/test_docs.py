"""What README and docs promise is there: pages, links, targets, commands, policies, versions."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from gpusharing import __version__
from gpusharing.api import names
from gpusharing.api.policy import PolicyObject
from gpusharing.api.problems import parse
from gpusharing.api.reasons import Reason
from gpusharing.cli.app import command_line
from gpusharing.controller.settings import Settings
from gpusharing.core.checks.policy import check_spec
from gpusharing.core.options import NVIDIA
from gpusharing.core.placement.problems import Code
from gpusharing.deviceplugin.settings import OURS

ROOT = Path(__file__).resolve().parents[2]
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def blocks(text: str, *languages: str) -> list[str]:
    """The fenced blocks of these languages, without the indentation of a list around them."""
    found = FENCE.findall(text)
    return [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, kind, body in found if kind in languages]


def prose(text: str) -> str:
    return FENCE.sub("", text)


# --- troubleshooting


def test_every_reason_and_every_code_has_a_page_and_every_page_one_of_them() -> None:
    assert {path.stem for path in TROUBLESHOOTING.iterdir()} == {*map(str, Reason), *map(str, Code)}


@pytest.mark.parametrize("reason", list(Reason), ids=str)
def test_a_reasons_page_opens_with_its_sentence(reason: Reason) -> None:
    assert (TROUBLESHOOTING / f"{reason}.md").read_text().startswith(f"# {reason}\n\n{reason.sentence}\n")


@pytest.mark.parametrize("word", sorted({*map(str, Reason), *map(str, Code)}))
def test_a_page_says_what_is_seen_and_why_and_ends_with_a_command(word: str) -> None:
    text = (TROUBLESHOOTING / f"{word}.md").read_text()
    assert re.match(rf"# {word}\n\n[A-Z].*\.\n\n## ", text)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Symptom", "Cause", "Fix"]
    assert blocks(text.partition("## Fix")[2], "sh")


@pytest.mark.parametrize("code", sorted({*map(str, Code)} - {*map(str, Reason)}))
def test_a_codes_page_shows_it_as_it_is_printed(code: str) -> None:
    [shown] = blocks((TROUBLESHOOTING / f"{code}.md").read_text(), "text")
    assert shown.startswith(f"{code}: ")


# --- links


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@page
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)
    assert dead == []


def test_every_page_is_linked_from_somewhere() -> None:
    linked = {
        (path.parent / target.partition("#")[0]).resolve()
        for path in PAGES
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text()))
    }
    assert [path for path in PAGES if path not in linked and path.name != "README.md"] == []


# --- commands


def shown_commands(text: str) -> Iterator[str]:
    """Each command line in blocks and in the prose, with what continues it and without comments."""
    for block in blocks(text, "sh", "console"):
        for line in block.replace("\\\n", " ").splitlines():
            if line := line.removeprefix("$ ").partition(" #")[0].strip():
                yield line
    yield from re.findall(r"`([^`\n]+)`", prose(text))


@page
def test_every_make_target_is_one(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        word
        for line in shown_commands(page.read_text())
        if re.match(r"(\w+=\S+ )*make\b", line)
        for word in line.partition("make")[2].split()
        if "=" not in word
    }
    assert named - targets == set()


_SETTINGS = {"--help", "--config", *(f"--{name.replace('_', '-')}" for name in Settings.model_fields)}
_PLUGIN_FLAGS = {"--help", *(f"--{flag}" for option in (*NVIDIA, *OURS) for flag in (*option.flags, option.negation))}
# program → its commands → their options
PROGRAMS: dict[str, dict[str, set[str]]] = {
    "gpusharing": {
        "controller": _SETTINGS,
        "cleanup": _SETTINGS,
        "remove-stale-resources": _SETTINGS,
        "device-plugin": _PLUGIN_FLAGS,
        "version": set(),
    },
    "kubectl gpusharing": {
        name: {"-h", "--help", *(flag for option in command.params for flag in option.opts)}
        for name, command in typer.main.get_group(command_line()).commands.items()
    },
}


def calls(line: str) -> Iterator[tuple[str, list[str]]]:
    """Each call of a program of ours in a line, and the words behind it."""
    for part in re.split(r"\||;|&&|\$\(", line):
        for program in PROGRAMS:
            if re.match(rf"\s*{program}(\s|$)", part):
                yield program, shlex.split(part)[len(program.split()) :]


def exists(program: str, words: list[str]) -> bool:
    if not words or words == ["--version"]:
        return True
    command, *rest = words
    options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    return options <= PROGRAMS[program].get(command, set()) and command in PROGRAMS[program]


@page
def test_every_command_of_ours_exists_with_its_options(page: Path) -> None:
    lines = [line for line in shown_commands(page.read_text()) if not all(exists(*call) for call in calls(line))]
    assert lines == []


# --- policies


def policies() -> Iterator[tuple[str, Any]]:
    for path in PAGES:
        for block in blocks(path.read_text(), "yaml"):
            for document in yaml.safe_load_all(block):
                if isinstance(document, dict) and document.get("kind") == names.POLICY_KIND:
                    yield f"{path.relative_to(ROOT)}: {document['metadata']['name']}", document


@pytest.mark.parametrize("policy", [policy for _, policy in policies()], ids=[where for where, _ in policies()])
def test_every_policy_shown_is_a_valid_one(policy: Any) -> None:
    model, problems = parse(PolicyObject, policy)
    assert model, problems
    assert [problem for problem in check_spec(model.spec) if problem.severity == "error"] == []


@page
def test_every_block_of_yaml_is_yaml(page: Path) -> None:
    for block in blocks(page.read_text(), "yaml"):
        assert list(yaml.safe_load_all(block))


# --- versions and places


def test_the_version_is_the_same_everywhere() -> None:
    changelog = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    images = yaml.safe_load((ROOT / "config" / "default" / "kustomization.yaml").read_text())["images"]
    assert changelog
    assert [changelog[1], *(image["newTag"] for image in images)] == [__version__, __version__]


FOLDERS = [".ci", "argocd", "config", "crds", "docs", "hack", "operator", "scripts", "tests"]
HOMES = ("home", "Users", "root", "workspace", "mnt")


def test_nothing_names_a_place_on_somebodys_machine() -> None:
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    places = re.compile(rf"(?<![\w.:/])/(?:{'|'.join(HOMES)})/\w|{re.escape(str(ROOT))}/")
    named = []
    for path in files:
        if path.suffix in {".pyc", ".sum", ".lock"} or "__pycache__" in path.parts:
            continue
        named += [f"{path.relative_to(ROOT)}: {found[0]}" for found in places.finditer(path.read_text(errors="ignore"))]
    assert named == []
