"""Every allocation policy has a page."""

from pathlib import Path

import pytest

from gpusharing.core.allocation.policies import POLICIES

PAGES = Path(__file__).resolve().parents[4] / "docs" / "reference" / "allocation-policies"


def test_every_policy_has_a_page_and_every_page_a_policy() -> None:
    assert {path.stem for path in PAGES.iterdir()} == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_a_page_begins_with_the_name_and_shows_how_to_ask(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert "kubectl gpusharing prefer - --explain" in text
