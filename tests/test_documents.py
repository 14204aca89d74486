"""Links between documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_heading_that_exist(document: Path) -> None:
    broken = []
    for link in LINK.findall(document.read_text()):
        file, _, anchor = link.partition("#")
        target = (document.parent / file).resolve() if file else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


def test_the_index_of_the_operations_guide_lists_every_page_of_it() -> None:
    index = (ROOT / "docs" / "operations.md").read_text()
    pages = {path for path in (ROOT / "docs" / "operations").rglob("*.md") if path.parent.name != "troubleshoot"}

    assert {page for page in pages if f"(operations/{page.relative_to(ROOT / 'docs' / 'operations')})" not in index} == set()
