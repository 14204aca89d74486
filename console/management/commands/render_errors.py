"""``render_errors [--check]``: generate the documentation of all error codes, or check that it is up to date.

Writes a page per error code and their table in docs/operations/troubleshoot/. The text after the generated part of a page is
written by hand and kept.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.models.mirrors import KEPT
from console.presenters.errors import ERROR_HELP, ErrorHelp
from linkengine.domain.errors import ErrorCode

PLACE = "docs/operations/troubleshoot"
INDEX = "README.md"
BEGIN = "<!-- from here to the end of the table: written by `make docs`, compared by `make check` -->\n"
END = "<!-- the end of the table -->\n"
PAGE_END = "<!-- written by `make docs` up to here; what follows is written by hand -->\n"
CODES = tuple(str(code) for code in (*ErrorCode, *KEPT) if code != ErrorCode.NO_ERROR)


class Command(BaseCommand):
    help = "Write the documentation pages of the error codes; with --check change nothing and fail if a page differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *_args: Any, **options: Any) -> None:
        folder = settings.BASE_DIR / PLACE
        wanted = wanted_pages(folder)
        different = [name for name, text in wanted.items() if read(folder / name) != text]
        obsolete = sorted(path.name for path in folder.glob("*.md") if path.name not in wanted)
        if obsolete:
            raise CommandError(f"{PLACE} has pages for error codes that do not exist: {', '.join(obsolete)}. Delete them.")
        if options["check"] and different:
            raise CommandError(f"These pages in {PLACE} differ from the code: {', '.join(different)}. Run `make docs`.")
        for name in different:
            (folder / name).write_text(wanted[name])


def wanted_pages(folder: Path) -> dict[str, str]:
    """Return the text of every page by file name, with the handwritten parts of the existing pages."""
    pages = {f"{code}.md": page(ERROR_HELP[code], by_hand=by_hand(read(folder / f"{code}.md"))) for code in CODES}
    return {INDEX: with_table(read(folder / INDEX)), **pages}


def page(row: ErrorHelp, *, by_hand: str) -> str:
    """Return the page of an error code."""
    fix = f"**What to do.** {row.fix}\n\n" if row.fix else ""
    return f"# {row.code}\n\n*Runbook.*\n\n**What it means.** {row.meaning}\n\n{fix}{PAGE_END}{by_hand}"


def by_hand(document: str) -> str:
    """Return the handwritten part of a page, which follows PAGE_END; the whole page if it has no generated part."""
    _, mark, rest = document.partition(PAGE_END)
    return rest if mark else f"\n{document}" if document else ""


def with_table(document: str) -> str:
    """Return the document with the current table between its marks; raise CommandError if a mark is missing."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise CommandError(f"{PLACE}/{INDEX} has lost the marks around the table of error codes. Restore them from git.")
    return "".join([head, BEGIN, *_table(), END, tail])


def read(path: Path) -> str:
    """Return the text of a file, or "" if it does not exist."""
    return path.read_text() if path.exists() else ""


def _table() -> Iterator[str]:
    yield "| code | what it means |\n|---|---|\n"
    for code in CODES:
        meaning = ERROR_HELP[code].meaning.replace("|", "\\|")
        yield f"| [`{code}`]({code}.md) | {meaning} |\n"
