"""Links between documents, and the functions named on "Where is what", exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from devcluster.kafka import NEWEST, OLDEST
from scripts import check_parts

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"`([A-Za-z_][\w.]*)`")
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


def test_the_documents_name_the_versions_of_kafka_that_the_tests_run() -> None:
    recorded = check_parts.read_record()
    versions = {found[1] for jar in recorded if (found := re.fullmatch(r"kafka[\d.-]*/kafka-clients-([\d.]+)\.jar", jar))}
    (line,) = re.findall(r"^Either side may run .*\n.*$", (ROOT / "docs/operations/configure.md").read_text(), re.MULTILINE)

    assert len(versions) == 3
    assert set(re.findall(r"\d\.\d\.\d", line)) == versions
    assert versions >= {NEWEST, OLDEST}


def test_the_index_of_the_operations_guide_lists_every_page_of_it() -> None:
    index = (ROOT / "docs" / "operations.md").read_text()
    pages = {path for path in (ROOT / "docs" / "operations").rglob("*.md") if path.parent.name != "troubleshoot"}

    assert {page for page in pages if f"(operations/{page.relative_to(ROOT / 'docs' / 'operations')})" not in index} == set()


def test_the_index_of_decisions_has_the_title_and_status_of_each_record() -> None:
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+?) \| (.+?) \|", (ROOT / "docs/adr/README.md").read_text(), re.MULTILINE)
    expected = []
    for path in sorted((ROOT / "docs/adr").glob("0*.md")):
        found = re.match(r"# (\d+)\. (.*)\n\n\* Status: (.*?)\n\* Date: ", path.read_text(), re.DOTALL)
        assert found is not None, path.name
        expected.append((found[1], path.name, found[2], " ".join(found[3].split())))

    assert rows == expected


def defined_in(source: Path) -> set[str]:
    """Return the functions, classes, methods (as ``Class.method``) and variables that a module defines."""
    names = set()
    for node in ast.parse(source.read_text()).body:
        match node:
            case ast.FunctionDef():
                names.add(node.name)
            case ast.ClassDef():
                methods = [member.name for member in node.body if isinstance(member, ast.FunctionDef)]
                names |= {node.name, *(f"{node.name}.{method}" for method in methods)}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def mentions() -> list[tuple[str, str]]:
    """Return each source file that "Where is what" links to, with the names in backticks that follow the link."""
    text = (ROOT / "docs" / "where-is-what.md").read_text()
    return [(file, name) for file, rest in re.findall(r"\]\(\.\./([\w/]+\.py)\)([^\[|]*)", text) for name in CODE.findall(rest)]


@pytest.mark.parametrize(("file", "name"), mentions())
def test_function_named_on_where_is_what_exists(file: str, name: str) -> None:
    assert name in defined_in(ROOT / file)


def test_where_is_what_page_has_ten_behaviours_with_a_begin_and_an_end() -> None:
    text = (ROOT / "docs" / "where-is-what.md").read_text()

    assert [int(number) for number in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)] == list(range(1, 11))
    assert text.count("| begins |") == text.count("| ends |") == 10


def test_where_is_what_page_states_how_many_files_the_usual_case_needs() -> None:
    text = (ROOT / "docs" / "where-is-what.md").read_text()
    (stated,) = re.findall(r"REST and page together: ([^.]*)\.", text)
    counts = {number: int(files) for files, number in re.findall(r"(\d+) in\s(\d+)", stated)}
    tables = dict(re.findall(r"^## (\d+)\. [^\n]*\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL))

    assert set(counts) == {number for number, table in tables.items() if "| only if |" in table} | {"4", "8"}
    for number, files in counts.items():
        usual = [row for row in tables[number].splitlines() if not row.startswith("| only if |")]
        assert len(set(re.findall(r"\]\(\.\./([\w/]+\.py)\)", "\n".join(usual)))) == files, number
