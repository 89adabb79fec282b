"""The folders of `config/` and `crds/`: nothing stands beside its kustomization without being in it."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KUSTOMIZATIONS = sorted([*ROOT.glob("config/**/kustomization.yaml"), ROOT / "crds" / "kustomization.yaml"])
folders = pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: str(path.parent.relative_to(ROOT)))


@folders
def test_every_manifest_of_a_folder_is_used_by_its_kustomization(path: Path) -> None:
    kustomization = yaml.safe_load(path.read_text())
    patches = [patch["path"] for patch in kustomization.get("patches", [])]
    used = {*kustomization.get("resources", []), *patches, *kustomization.get("configurations", [])}
    there = {file.name for file in path.parent.glob("*.yaml")} - {path.name}
    assert {name for name in used if name.endswith(".yaml")} == there


@folders
def test_a_kustomization_refers_to_nothing_outside_the_repository(path: Path) -> None:
    for name in yaml.safe_load(path.read_text()).get("resources", []):
        assert (path.parent / name).resolve().is_relative_to(ROOT)
        assert (path.parent / name).exists()


def test_no_manifest_names_a_registry() -> None:
    for path in ROOT.glob("config/**/*.yaml"):
        for line in path.read_text().splitlines():
            if line.strip().startswith("image:"):
                assert "/" not in line, f"{path.name}: {line.strip()}"
