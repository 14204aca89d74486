"""``render_errors [--check]``: write the table of error codes into docs/api.md, or tell whether it is up to date."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.models.mirrors import KEPT
from console.presenters.errors import ERROR_HELP
from linkengine.domain.errors import ErrorCode

PATH = "docs/api.md"
BEGIN = "<!-- from here to the end of the table: written by `make docs`, compared by `make check` -->\n"
END = "<!-- the end of the table -->\n"


class Command(BaseCommand):
    help = "Write the table of error codes into docs/api.md; with --check change nothing and fail if it differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *_args: Any, **options: Any) -> None:
        path = settings.BASE_DIR / PATH
        present = path.read_text()
        text = with_table(present)
        if not options["check"]:
            path.write_text(text)
        elif present != text:
            raise CommandError(f"The error codes of {PATH} are not those of the code. Run `make docs`.")


def with_table(document: str) -> str:
    """Put the present table between its marks; raise CommandError where a mark is missing."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise CommandError(f"{PATH} has lost the marks around the table of error codes.")
    return "".join([head, BEGIN, *_table(), END, tail])


def _table() -> Iterator[str]:
    yield "| code | what it means | what to do |\n|---|---|---|\n"
    for code in (*ErrorCode, *KEPT):
        row = ERROR_HELP[code]
        yield f"| `{row.code}` | {_cell(row.meaning)} | {_cell(row.fix)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
