"""The layout that Python and the packaging depend on."""

import tomllib
from pathlib import Path

import gpusharing

ROOT = Path(__file__).resolve().parents[2]


def test_no_module_stands_directly_in_operator() -> None:
    """With one, `import operator` would no longer find the standard library's."""
    assert [path.name for path in (ROOT / "operator").glob("*.py")] == []


def test_no_lock_file_holds_the_address_of_a_registry() -> None:
    for lock in ("requirements.lock", "requirements-image.lock", "hack/cluster/kubectl.lock"):
        assert "://" not in (ROOT / lock).read_text(), lock


def test_the_image_installs_what_the_projects_lock_pins() -> None:
    project = _pins(ROOT / "requirements.lock")
    image = _pins(ROOT / "requirements-image.lock")
    assert image <= project
    assert not {pin for pin in image if pin.startswith(("pytest==", "mypy==", "ruff=="))}


def _pins(lock: Path) -> set[str]:
    return {line.split()[0] for line in lock.read_text().splitlines() if line[:1].isalnum()}


def test_each_program_has_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == {"controller", "device-plugin", "cli"}
    assert set(project["scripts"]) == {"gpusharing", "kubectl-gpusharing", "kubectl_complete-gpusharing"}
    assert gpusharing.__version__
